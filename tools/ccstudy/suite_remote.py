"""Remote sets of `ccstream-eval suite`: their texts are fetched first, the tars of a set just before it is evaluated."""

from __future__ import annotations

import os
from pathlib import Path

from . import suite_folder, suite_sets
from .study import NotFoundError, Options, StudyError, UsageError, ccstream


class ServerError(StudyError):
    code = 74


def fetch(location: str, path: Path) -> None:
    """Fetches a file unless it exists; it is renamed to its final name once complete."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            ccstream.read_remote(location, file.write)
        part.rename(path)
    except ccstream.NotFoundError as error:
        raise NotFoundError(str(error)) from None
    except ccstream.UsageError as error:
        raise UsageError(str(error)) from None
    except ccstream.Error as error:
        raise ServerError(str(error)) from None
    finally:
        part.unlink(missing_ok=True)


def _read(location: str, folder: Path) -> suite_folder.One:
    def text(name: str) -> None:
        fetch(f"{location}/{name}", folder / name)

    text("test/nshards.txt")
    try:
        text("dataset_type.txt")
    except NotFoundError:
        pass  # classification
    if not suite_folder.is_retrieval(folder):
        text("classnames.txt")
        text("zeroshot_classification_templates.txt")
    one = suite_folder.read_set(folder, tars_are_there=False)
    assert one is not None  # there is a folder `test`
    one.location = location
    return one


def find(options: Options, only: set[str], groups: set[str]) -> list[suite_folder.One]:
    """The sets of --only, or those of the list that the server has."""
    try:
        ccstream.configure_remote(endpoint=options.endpoint, allow_private=options.allow_private)
    except ccstream.ExistsError:
        pass  # by an earlier call of this process
    place = options.sets if "{}" in options.sets else f"{options.sets.rstrip('/')}/{{}}"
    prefix = "" if "{}" in options.sets else "wds_"
    cache, found = Path(options.cache or Path(options.out) / "cache"), []
    wanted = [[name] for name in sorted(only)] or [
        [prefix + folder + end for folder in one.folders for end in ("", "_test")]
        for one in suite_sets.SETS if not groups or groups & set(one.groups)]
    for names in wanted:  # the names that one set may have
        for name in names:
            if Path(name).name != name:
                raise UsageError(f"--only {name}: not a valid folder name at {options.sets}")
            try:
                found.append(_read(place.replace("{}", name), cache / name))
                break
            except NotFoundError:
                if only:
                    raise
    if not found:
        raise NotFoundError(f"{options.sets}: contains none of the sets, such as {place.replace('{}', prefix + 'cifar10')}; pass other names with --only")
    return found


def fetch_tars(one: suite_folder.One) -> None:
    for tar in one.tars:
        fetch(f"{one.location}/test/{tar.name}", tar)
