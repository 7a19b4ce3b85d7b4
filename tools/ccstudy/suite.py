"""`ccstream-eval suite`: the test sets of a folder in one pass. Images are indexed and encoded in place by `ccpack index`
and `ccstream-eval embed`; prompts, metrics and files are made here.

    DIR/wds_NAME/ --links--> OUT/index/NAME/ --ccpack index, ccstream-eval embed--> images.npy --metrics--> a line of
    all prompts of all sets  -----------------ccstream-eval embed --prompts-------> prompts.npy     eval_results.jsonl

A line is written when a set is finished, and is what a second run skips.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import string
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import page as pages
from . import suite_metrics as metrics
from . import suite_sets
from .study import (Column, DataError, NotFoundError, Option, Options, Progress, Section, StudyError, Table, UsageError,
                    axis, figure, np, series, start, table_item)

PURPOSE = "evaluates a checkpoint on the test sets of a folder, in clip-benchmark's layout, in one pass"
TITLE = "Test sets"
USAGE = ["CHECKPOINT --sets DIR -o OUT [options]"]
ARGUMENTS = (1, 1)
OPTIONS = [
    Option("sets", metavar="DIR", help="folder of sets: wds_NAME as clip-benchmark and DataComp have them, packed datasets, "
           "winogavil with instances.jsonl and images"),
    Option("out", "o", metavar="OUT", help="folder for eval_results.jsonl, suite.json and suite.html; a second run "
           "continues with the sets that are not in eval_results.jsonl"),
    Option("only", kind=list, metavar="NAME,...", help="only these sets: names of folders, or keys of DataComp"),
    Option("group", kind=list, metavar="NAME,...", help="only sets of these groups: " + ", ".join(suite_sets.GROUPS)),
    Option("follow-links", kind=bool, help="read files through links that lead out of the folder of sets, as a cache of the Hub has"),
    Option("force", kind=bool, help="remove the results of another checkpoint in OUT"),
    Option("keep-embeddings", kind=bool, help="leave embeddings, class vectors and labels as .npy in OUT/embeddings"),
    Option("json", kind=bool, help="suite.json on stdout instead of the table"),
    Option("quiet", "q", bool, help="no progress and no table"),
    Option("transform", default="clip", metavar="KIND", choices=("clip", "crop", "squash"), group="Model",
           help="how images become the model's size: ccstream-eval zeroshot --help describes them"),
    Option("image-norm", default="own", metavar="NAME", group="Model",
           help="channel mean and std, as ccstream-eval zeroshot has them"),
    Option("device", default="cpu", metavar="NAME", group="Model", help="cpu, cuda, cuda:N or auto"),
    Option("batch-size", "b", int, 128, "N", "images or prompts encoded at a time", least=1, most=32768, group="Model"),
    Option("threads", "t", int, 0, "N", "compute threads; 0: all CPUs", least=0, most=1024, group="Model"),
]
NOTES = [
    "Every image is decoded and encoded once, and every prompt once for all sets that have it. A class is the mean of its "
    "prompts' embeddings; of equal scores the lower label wins. Images are turned as their EXIF says, which "
    "clip-benchmark ignores. Images that do not decode are counted, listed in suite.json, and not part of a metric.",
    "Metrics are fractions in the files, named as in DataComp's; the table has percent. A set that is none of the 38 is "
    "evaluated too, but is in no average. An average over fewer sets than it has says so.",
]
EXAMPLES = ["ccstream-eval suite runs/a --sets sets -o runs/a-suite",
            "ccstream-eval suite runs/a --sets sets -o out --group imagenet,shifts --device cuda"]

_TYPES = ("classification", "retrieval", "multilabel")
_PARTS = ("race", "gender", "age", "toxic")  # classifiers of FairFace and UTKFace, by the prefix of names and templates
_MOST_TEXT = 16 << 20
_MOST_VALUES = 1 << 20  # of JSON, which take up to 80 bytes each
_MOST_PROMPTS = 256 << 20  # characters of all prompts of a set
_MOST_NUMBERS = 1 << 20  # bytes of an image's .npy


@dataclass
class One:
    """A folder of --sets."""

    folder: Path
    known: suite_sets.Set
    kind: str  # _TYPES, or "winogavil"
    names: list[str] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    tars: list[Path] = field(default_factory=list)
    packed: bool = False
    instances: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def has_faces(self) -> bool:
        return self.known.key in ("fairness/fairface", "fairness/utkface")

    def prompts(self, part: str = "") -> list[list[str]]:
        """Of each class. `part`: those with this prefix alone."""
        cut = len(part) + 1 if part else 0
        templates = [t[cut:] for t in self.templates if not part or t.startswith(part + ":")]
        return [[t.format(c=n[cut:]) for t in templates] for n in self.names if not part or n.startswith(part + ":")]

    def bytes(self) -> int:
        """Of its images, for the remaining time."""
        if self.packed:
            size = _json(self.folder / "dataset.json", 1, _text(self.folder / "dataset.json")).get("image_bytes")
            return size if isinstance(size, int) and size > 0 else 1
        names = {n for row in self.instances for n in row["candidates"]}
        return sum(p.stat().st_size for p in [*self.tars, *(self.folder / "images" / n for n in names)]) or 1


# ---- reading a folder


def _text(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path}: is {'no file' if path.exists() else 'missing'}")
    with path.open("rb") as file:
        data = file.read(_MOST_TEXT + 1)
    if len(data) > _MOST_TEXT:
        raise DataError(f"{path}: more than {_MOST_TEXT >> 20} MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}: line {line}: byte {error.start} is not UTF-8") from None
    if "\0" in text:
        raise DataError(f"{path}: line {text.count(chr(10), 0, text.index(chr(0))) + 1}: holds a NUL byte")
    return text


def _json(path: Path, line: int, text: str) -> dict[str, Any]:
    if sum(map(text.count, "[{,")) > _MOST_VALUES:
        raise DataError(f"{path}: line {line}: more than {_MOST_VALUES:,} values")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DataError(f"{path}: line {line}: is no JSON object")
    return value


def text_lines(path: Path) -> list[str]:
    """Every line, also an empty one, without white space at its ends; as clip-benchmark reads them."""
    lines = [line.strip() for line in _text(path).replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def read_templates(path: Path) -> list[str]:
    templates = text_lines(path)
    for number, template in enumerate(templates, 1):
        try:
            fields = [(name, spec, how) for _, name, spec, how in string.Formatter().parse(template) if name is not None]
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}; {{{{ and }}}} are braces that stay") from None
        if not fields or any(f != ("c", "", None) for f in fields):
            raise DataError(f"{path}: line {number}: '{template[:80]}' requires {{c}}, the place of the class name, and no "
                            "other braces")
    if not templates:
        raise DataError(f"{path}: holds no template")
    return templates


def _shards(folder: Path, notes: list[str]) -> list[Path]:
    path = folder / "test/nshards.txt"
    try:
        count = int(_text(path))
    except ValueError:
        raise DataError(f"{path}: '{_text(path)[:40].strip()}' is no number of tars") from None
    if not 1 <= count <= 1000000:
        raise DataError(f"{path}: {count} tars; it must be at least 1")
    tars = [folder / f"test/{i}.tar" for i in range(count)]
    for tar in tars:
        if not tar.is_file():
            raise DataError(f"{path} says {count}, but {tar} is missing")
        with tar.open("rb") as file:
            if file.read(34).startswith(b"version https://git-lfs"):
                raise DataError(f"{tar}: a pointer of git-lfs, not the tar: git lfs pull fetches it")
    if (folder / f"test/{count}.tar").exists():
        notes.append(f"nshards.txt says {count}: {count}.tar and what follows is not read")
    return tars


def _instances(folder: Path) -> list[dict[str, Any]]:
    path, out = folder / "instances.jsonl", []
    for number, line in enumerate(text_lines(path), 1):
        row = _json(path, number, line)
        try:
            good = (isinstance(row["cue"], str) and row["cue"] and set(row["associations"]) <= set(row["candidates"]) and
                    row["associations"])
        except (KeyError, TypeError):
            good = False
        if not good:
            raise DataError(f"{path}: line {number}: requires cue, candidates, and associations, which are some of them")
        for name in row["candidates"]:
            if not isinstance(name, str) or Path(name).name != name or not (folder / "images" / name).is_file():
                raise DataError(f"{path}: line {number}: images/{str(name)[:60]} is missing")
        out.append(row)
    if not out:
        raise DataError(f"{path}: holds no instance")
    return out


def _check_links(folder: Path, top: Path) -> None:
    """None leads out of the folder of sets: its texts and images would be a stranger's choice of one's own files."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink() and not path.resolve().is_relative_to(top.resolve()):
            raise DataError(f"{path}: is a link out of {top}; --follow-links reads such files too")


def read_set(folder: Path) -> One | None:
    """A set, or None for a folder that is none. Raises DataError."""
    short = folder.name.removeprefix("wds_").removesuffix("_test")
    known = suite_sets.BY_FOLDER.get(short)
    if (folder / "instances.jsonl").exists():
        return One(folder, known or suite_sets.BY_FOLDER["winogavil"], "winogavil", instances=_instances(folder))
    packed = (folder / "dataset.json").is_file()
    if not packed and not (folder / "test").is_dir():
        return None
    kind, names = "classification", []
    if packed:
        manifest = _json(folder / "dataset.json", 1, _text(folder / "dataset.json"))
        names = manifest.get("classes", [])
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise DataError(f"{folder}/dataset.json: its classes are no list of names")
        kind = "classification" if names else "retrieval"
    elif (folder / "dataset_type.txt").exists():
        kind = _text(folder / "dataset_type.txt").strip().lower()
        if kind not in _TYPES:
            raise DataError(f"{folder}/dataset_type.txt: '{kind[:40]}' is none of {', '.join(_TYPES)}")
    main = {"retrieval": "mean_recall@1", "multilabel": "mean_average_precision"}.get(kind, "acc1")
    one = One(folder, known or suite_sets.Set(folder.name, folder.name, main), kind, packed=packed)
    one.tars = [] if packed else _shards(folder, one.notes)
    if kind == "retrieval":
        return one
    path = folder / "zeroshot_classification_templates.txt"
    one.names = names if packed else text_lines(folder / "classnames.txt")
    one.templates = ["a photo of a {c}."] if packed and not path.exists() else read_templates(path)
    if not one.names:
        raise DataError(f"{folder}/classnames.txt: holds no class")
    size = len(one.names) * sum(map(len, one.templates)) + sum(map(len, one.names)) * sum(t.count("{") for t in one.templates)
    if size > _MOST_PROMPTS:
        raise DataError(f"{folder}: {len(one.names):,} classes in {len(one.templates):,} templates are {size:,} characters of "
                        f"prompts, more than {_MOST_PROMPTS:,}")
    for part in _PARTS if one.has_faces else ():
        if not all(one.prompts(part)) or not one.prompts(part):
            raise DataError(f"{folder}: no class name, or no template, begins with '{part}:'")
    return one


def find(options: Options) -> list[One]:
    """The sets that the options choose, in the order of DataComp's list, others after them."""
    top = Path(options.sets)
    if not top.is_dir():
        raise NotFoundError(f"{top}: no such folder")
    only = {n for text in options.only for n in text.split(",") if n}
    groups = {n for text in options.group for n in text.split(",") if n}
    if groups - set(suite_sets.GROUPS):
        raise UsageError(f"--group {min(groups - set(suite_sets.GROUPS))}: is none of {', '.join(suite_sets.GROUPS)}")
    found: list[One] = []
    unused = set(only)
    for folder in sorted(p for p in top.iterdir() if p.is_dir()):
        short = folder.name.removeprefix("wds_").removesuffix("_test")
        known = suite_sets.BY_FOLDER.get(short)
        names = {folder.name, short} | ({known.key, known.name} if known else set())
        unused -= names
        if (only and not only & names) or (groups and not (known and groups & set(known.groups))):
            continue
        if not options.follow_links:
            _check_links(folder, top)
        one = read_set(folder)
        if one is not None:
            twin = next((o for o in found if o.known.key == one.known.key), None)
            if twin:
                raise DataError(f"{twin.folder} and {folder} are one set, {one.known.key}; --only chooses")
            found.append(one)
    if unused:
        raise UsageError(f"--only {min(unused)}: no such set in {top}")
    if not found:
        raise NotFoundError(f"{top}: holds none of the sets: folders wds_NAME with test/nshards.txt are expected")
    order = [s.key for s in suite_sets.SETS]
    return sorted(found, key=lambda o: (order.index(o.known.key) if o.known.key in order else len(order), o.name))


# ---- other programs


class ChildError(StudyError):
    """Of a child process, with its exit code and last line."""


def _call(name: str, *words: object) -> None:
    """Its stderr, a line a minute of progress, is passed on; its last line is the message of a failure."""
    with start([name, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace") as child:
        try:
            last = ""
            for line in child.stderr:
                sys.stderr.write(last)
                last = line
            code = child.wait()
        except BaseException:
            child.terminate()
            raise
    if code:
        error = ChildError(last.strip() or f"{name} was ended by signal {-code}")
        error.code = code if code > 0 else 70
        raise error
    sys.stderr.write(last)


class Model:
    """The checkpoint, through ccstream-eval embed."""

    def __init__(self, options: Options):
        self.path = options.arguments[0]
        self.words = ["--device", options.device, "--batch-size", options.batch_size, "--threads", options.threads,
                      "--image-norm", options.image_norm, "--transform", options.transform, "--force",
                      *(["-q"] if options.quiet else [])]

    def embed(self, prefix: Path, *words: object) -> None:
        _call("ccstream-eval", "embed", self.path, "-o", prefix, *words, *self.words)

    def hash(self) -> str:
        """Of what is evaluated, so that results of another model are not continued."""
        path = Path(self.path)
        if path.is_dir():
            files = [path / "last"] if (path / "last").exists() else sorted(
                p for p in path.iterdir() if p.suffix in (".safetensors", ".json", ".bin", ".txt"))
        else:
            files = [path]
        if not files or not all(f.is_file() for f in files):
            raise NotFoundError(f"{path}: no checkpoint, and no run with one")
        digest = hashlib.sha256(" ".join(map(str, self.words[6:10])).encode())
        for file in files:
            with file.open("rb") as data:
                digest.update(hashlib.file_digest(data, "sha256").digest())
        return digest.hexdigest()[:16]


# ---- one set


def _rows(tars: list[Path], member: str) -> list[bytes | None]:
    """Of each row of the tars, a member by its extension. Rows are as ccpack counts them."""
    rows: list[bytes | None] = []
    for path in tars:
        last = None
        try:
            with tarfile.open(path, "r:") as tar:
                for m in tar:
                    folder, base = os.path.split(m.name)
                    key, _, extension = base.partition(".")
                    if not m.isfile() or not key:
                        continue
                    if (folder, key) != last:
                        rows.append(None)
                        last = (folder, key)
                    if extension.lower() == member and m.size <= _MOST_NUMBERS:
                        rows[-1] = tar.extractfile(m).read()
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise DataError(f"{path}: {error}") from None
    return rows


def _numbers(data: bytes) -> Any:
    """A .npy of no more numbers than it has bytes. Raises ValueError."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    count = 1
    for n in shape:
        count *= n
    if dtype.kind not in "biuf" or not 0 < count * dtype.itemsize <= len(data):
        raise ValueError
    numbers = np.load(io.BytesIO(data), allow_pickle=False).ravel()
    if not np.isfinite(numbers).all():
        raise ValueError
    return numbers


def read_meta(tars: list[Path], ids: Any, least: int) -> Any:
    """The .npy of each sample, as one array."""
    rows, out = _rows(tars, "npy"), []
    for i in ids:
        data = rows[i] if i < len(rows) else None
        try:
            out.append(_numbers(data or b""))
        except Exception:  # of a damaged header NumPy raises what its parser does: TokenError, TypeError, MemoryError, ...
            raise DataError(f"{tars[0].parent}: row {i}: its .npy is missing, or no array of numbers") from None
        if len(out[-1]) != len(out[0]) or len(out[-1]) < least:
            raise DataError(f"{tars[0].parent}: row {i}: its .npy has {len(out[-1])} numbers, not {max(least, len(out[0]))}")
    return np.stack(out)


def _work_tars(one: One, work: Path) -> list[Path]:
    if one.kind != "winogavil":
        return one.tars
    path = work / "images.tar"
    names = sorted({n for row in one.instances for n in row["candidates"]})
    with tarfile.open(path, "w") as tar:
        for i, name in enumerate(names):
            tar.add(one.folder / "images" / name, f"{i:07d}{Path(name).suffix}")
            info = tarfile.TarInfo(f"{i:07d}.cls")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"0"))
    return [path]


def _index(one: One, work: Path, check: bool) -> tuple[Path, list[dict[str, Any]]]:
    """A dataset of links to the tars; and the rows that were rejected."""
    if one.packed:
        return one.folder, []
    data = work / "data"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    links = []
    for i, tar in enumerate(_work_tars(one, work)):
        links.append(data / f"{i}.tar")
        links[-1].symlink_to(tar.resolve())
    if one.kind != "retrieval":  # numbers: names may be empty or equal
        (data / "classnames.txt").write_text("".join(f"{i}\n" for i in range(max(len(one.names), 1))))
    _call("ccpack", "index", "-q", "--max-bad", "100%", *([] if check else ["--no-check"]),
          *(["--caption-lines", "each"] if one.kind == "retrieval" else []), *links)
    with (data / "rejects.jsonl").open(encoding="utf-8") as file:
        return data, [json.loads(line) for line in file]


def _embed(one: One, model: Model, work: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Arrays by name; and the rejected rows."""
    texts = ["--texts"] if one.kind == "retrieval" else []
    data, rejected = _index(one, work, check=False)
    try:
        model.embed(work / "e", "--data", data, *texts)
    except ChildError as error:
        if error.code != 65 or one.packed:
            raise
        data, rejected = _index(one, work, check=True)  # finds images that do not decode
        model.embed(work / "e", "--data", data, *texts)
    names = ["images", "ids", "labels"] + (["texts", "owners"] if texts else [])
    return {n: np.load(work / f"e.{n}.npy", allow_pickle=False) for n in names}, rejected


class Prompts:
    """The unit vectors of all prompts, each encoded once."""

    def __init__(self, sets: list[One], model: Model, work: Path):
        wanted: dict[str, int] = {}
        for one in sets:
            for prompt in _all_prompts(one):
                wanted.setdefault(prompt, len(wanted))
        self.rows = wanted
        if wanted:
            path, done = work / "prompts.txt", work / "e.prompts.npy"
            text = "".join(f"{p}\n" for p in wanted).encode()
            if not (done.exists() and path.exists() and path.read_bytes() == text):
                done.unlink(missing_ok=True)
                pages.write(path, text)
                model.embed(work / "new", "--prompts", path)
                (work / "new.prompts.npy").rename(done)
            self.vectors = np.load(done, allow_pickle=False)

    def classes(self, prompts: list[list[str]]) -> Any:
        vectors = np.stack([self.vectors[[self.rows[p] for p in of_class]].mean(0) for of_class in prompts])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _cue(row: dict[str, Any]) -> str:
    cue = row["cue"].lower()
    return ("An " if cue[0] in "aeiou" else "A ") + cue


def _all_prompts(one: One) -> list[str]:
    if one.kind == "winogavil":
        return [_cue(row) for row in one.instances]
    return [p for part in (_PARTS if one.has_faces else ("",)) for of_class in one.prompts(part) for p in of_class]


def _same_vectors(one: One, vectors: Any) -> list[str]:
    """Notes about classes of different names that the model cannot tell apart."""
    first: dict[bytes, int] = {}
    pairs = [(first.setdefault(v.tobytes(), i), i) for i, v in enumerate(vectors)]
    same = [(a, b) for a, b in pairs if one.names[a] != one.names[b]]
    return [f"{len(same)} classes have the vector of another, such as '{one.names[same[0][0]]}' and "
            f"'{one.names[same[0][1]]}': the model's context ends before the name in every template, or its tokenizer "
            "does not know the letters"] if same else []


def _winogavil(one: One, prompts: Prompts, images: Any, ids: Any) -> dict[str, Any]:
    names = sorted({n for row in one.instances for n in row["candidates"]})
    place = {names[i]: k for k, i in enumerate(ids)}
    found = []
    for row in one.instances:
        there = [c for c in row["candidates"] if c in place]
        truth = np.isin(there, row["associations"])
        if not truth.any():
            one.notes.append(f"no association of '{row['cue']}' decodes: the instance is left out")
            continue
        found.append((len(row["candidates"]), metrics.jaccard(
            images[[place[c] for c in there]] @ prompts.vectors[prompts.rows[_cue(row)]], truth)))
    return metrics.winogavil(found)


def evaluate(one: One, model: Model, prompts: Prompts, work: Path, keep: Path | None) -> dict[str, Any]:
    """The line of a set."""
    begun = time.monotonic()
    work.mkdir(parents=True, exist_ok=True)
    arrays, rejected = _embed(one, model, work)
    images, ids, labels = arrays["images"], arrays["ids"].astype(np.int64), arrays["labels"].astype(np.int64)
    more: dict[str, Any] = {}
    if one.kind == "retrieval":
        out = metrics.retrieval(images, arrays["texts"], arrays["owners"])
        more = metrics.first_captions(images, arrays["texts"], arrays["owners"])
    elif one.kind == "winogavil":
        out = _winogavil(one, prompts, images, ids)
    else:
        key = one.known.key
        meta = read_meta(one.tars, ids, metrics.META.get(key, 1)) if key in metrics.META or one.kind == "multilabel" else None
        if one.has_faces:
            every = {p: prompts.classes(one.prompts(p)) for p in _PARTS}
            arrays |= {f"class_vectors_{p}": v for p, v in every.items()}
            out = metrics.faces({p: metrics.classify(images, v, ids * 0)[0] for p, v in every.items()}, meta.astype(np.int64))
        else:
            vectors = arrays["class_vectors"] = prompts.classes(one.prompts())
            one.notes += _same_vectors(one, vectors)
            if one.kind == "multilabel":
                if meta.shape[1] != len(one.names):
                    raise DataError(f"{one.folder}: the .npy have {meta.shape[1]} numbers for {len(one.names)} classes")
                out = metrics.mean_average_precision(images, vectors, meta)
            else:
                out = _classification(one, key, images, vectors, labels, meta, arrays, more)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(keep / f"{one.name}.{name}.npy", array)
    skipped = [{k: clean(str(r.get(k, ""))) for k in ("key", "reason", "detail")} for r in rejected]
    main = None if one.known.main is None else out.get(one.known.main)
    return {"key": one.known.key, "dataset": one.known.name, "metrics": out | {"main_metric": main}, "more": more,
            "folder": one.name, "images": len(images), "skipped": skipped, "notes": [clean(n) for n in one.notes],
            "seconds": round(time.monotonic() - begun, 1)}


def _classification(one: One, key: str, images: Any, vectors: Any, labels: Any, meta: Any, arrays: dict[str, Any],
                    more: dict[str, Any]) -> dict[str, Any]:
    if (labels < 0).any():
        raise DataError(f"{one.folder}: {int((labels < 0).sum())} of {len(labels)} images have no label: no .cls")
    predicted, ranks = metrics.classify(images, vectors, labels)
    arrays["predicted"] = predicted
    out = metrics.accuracies(predicted, ranks, labels, len(vectors))
    if meta is not None:
        groups, others = metrics.wilds(key, predicted, ranks, labels, meta.astype(np.int64))
        out |= groups
        more |= others
    return out


def clean(text: str) -> str:
    """A stranger's text without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]


# ---- all sets


def _finished(path: Path, model: str, force: bool) -> list[dict[str, Any]]:
    """The lines of eval_results.jsonl. One that another model has is an error."""
    if not path.exists():
        return []
    out = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        row = _json(path, number, line)
        if not isinstance(row.get("metrics"), dict) or not isinstance(row.get("key"), str):
            raise DataError(f"{path}: line {number}: is no result of a set; remove it, or use another --out")
        if row.get("model") != model and not force:
            raise pages.ExistsError(f"{path}: line {number}: is of another checkpoint or other options; --force starts again")
        out += [row] if row.get("model") == model else []
    return out


def _averages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_key = {r["key"]: r["metrics"].get("main_metric") for r in rows}
    out = []
    for name, sets in suite_sets.AVERAGES:
        values = [by_key[s.key] for s in sets if by_key.get(s.key) is not None]
        out.append({"name": name, "value": sum(values) / len(values) if values else None, "sets": len(values),
                    "of": len(sets)})
    return out


def check(options: Options) -> None:
    if options.sets is None or options.out is None:
        raise UsageError("--sets names the folder of sets, and --out that of the results")


def run(options: Options, progress: Progress) -> dict[str, Any]:
    sets = find(options)
    model = Model(options)
    own = model.hash()
    out, started = Path(options.out), time.monotonic()
    path, folder = out / "eval_results.jsonl", out / "index"
    rows = _finished(path, own, options.force)
    done = {r["key"] for r in rows}
    left = [one for one in sets if one.known.key not in done]
    failed = []
    if left:
        folder.mkdir(parents=True, exist_ok=True)
        _say(options, f"{len(left)} of {len(sets)} sets to evaluate; their prompts")
        prompts = Prompts(left, model, folder)
        total, passed = sum(one.bytes() for one in left), 0
        begun = time.monotonic()
        for number, one in enumerate(left, 1):
            try:
                rows.append(evaluate(one, model, prompts, folder / one.name,
                                     out / "embeddings" if options.keep_embeddings else None) | {"model": own})
            except (ChildError, DataError) as error:
                if error.code not in (65, 66):
                    raise
                failed.append(f"{one.name}: {error}")
                print(f"ccstream-eval suite: {failed[-1]}", file=sys.stderr)
                continue
            finally:
                shutil.rmtree(folder / one.name, ignore_errors=True)
            pages.write(path, "".join(json.dumps(pages._finite(r)) + "\n" for r in rows).encode())
            passed += one.bytes()
            remaining = (time.monotonic() - begun) / passed * (total - passed)
            _say(options, f"{number} of {len(left)}  {one.known.name}  {_shown(rows[-1])}, "
                 f"{progress._duration(remaining)} left")
    if failed and not rows:
        raise DataError(failed[0])
    shutil.rmtree(folder, ignore_errors=True)
    chosen = {one.known.key for one in sets}
    order = [s.key for s in suite_sets.SETS]
    rows.sort(key=lambda r: (order.index(r["key"]) if r["key"] in order else len(order), r["key"]))
    return {"checkpoint": model.path, "model": own, "transform": options.transform, "sets": rows,
            "averages": _averages(rows), "failed": failed,
            "missing": [s.key for s in suite_sets.SETS if s.main and s.key not in chosen | {r["key"] for r in rows}],
            "seconds": round(time.monotonic() - started, 1)}


def _say(options: Options, text: str) -> None:
    if not options.quiet:
        print(text, file=sys.stderr, flush=True)


def _main_name(row: dict[str, Any]) -> str:
    known = next((s for s in suite_sets.SETS if s.key == row["key"]), None)
    if known:
        return known.main or "no main metric"
    return next((n for n in ("mean_recall@1", "mean_average_precision", "acc1") if n in row["metrics"]), "")


def _shown(row: dict[str, Any]) -> str:
    value = row["metrics"].get("main_metric")
    return f"{_main_name(row)} {100 * value:.2f}" if value is not None else _main_name(row)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def exit_code(result: dict[str, Any]) -> int:
    return 65 if result["failed"] else 0


def table(result: dict[str, Any]) -> Table:
    rows: list[list[Any]] = []
    for row in result["sets"]:
        m = row["metrics"]
        rows.append([row["dataset"], _main_name(row), _percent(m.get("main_metric")), _percent(m.get("acc1")),
                     _percent(m.get("acc5")), str(row.get("images", "-")), str(len(row.get("skipped", [])))])
    for a in filter(lambda a: a["sets"], result["averages"]):
        rows.append([a["name"], f"mean of {a['sets']} of {a['of']} sets", _percent(a["value"]), None, None, "-", "-"])
    return Table([Column("set", "s"), Column("main metric", "s"), Column("%", ".2f"), Column("acc1", ".2f"),
                  Column("acc5", ".2f"), Column("images", "s"), Column("skipped", "s")], rows)


def page(result: dict[str, Any], options: Options) -> list[Section]:
    shown = [r for r in result["sets"] if r["metrics"].get("main_metric") is not None]
    own = {a["name"]: _percent(a["value"]) if a["sets"] == a["of"] else None for a in result["averages"]}
    one = {r["dataset"]: _percent(r["metrics"].get("main_metric")) for r in result["sets"]}
    mine = [own["Average"], own["ImageNet"], own["ImageNet & variants"], own["Flickr and MSCOCO"], one.get("Flickr"),
            one.get("MSCOCO")]
    anchors = Table([Column(n, "s" if n in ("data and towers", "method", "source") else ".2f") for n in
                     ("data and towers", "method", "average of 38", "ImageNet", "ImageNet & variants",
                      "Flickr and MSCOCO", "Flickr", "MSCOCO", "source")],
                    [["this checkpoint", clean(result["checkpoint"]), *mine, "measured"]] +
                    [row[:2] + [None if v == "-" else float(v) for v in row[2:8]] + row[8:] for row in suite_sets.published()])
    details = Table([Column("set", "s"), Column("metric", "s"), Column("value", ".4f")],
                    [[r["dataset"], name, value] for r in result["sets"] for name, value in
                     (r["metrics"] | r.get("more", {})).items() if name != "main_metric"])
    notes = [f"{r['dataset']}: {n}" for r in result["sets"] for n in r.get("notes", [])]
    notes += [f"{r['dataset']}: {len(r['skipped'])} images skipped, the first {r['skipped'][0]['key']}: "
              f"{r['skipped'][0]['detail']}" for r in result["sets"] if r.get("skipped")]
    notes += [f"failed: {clean(f)}" for f in result["failed"]]
    if result["missing"]:
        notes.append("not among the sets: " + ", ".join(result["missing"]))
    bars = figure("bars", "Main metric of each set", axis(""), axis("main metric", "%"),
                  [series("", [r["dataset"] for r in shown], [_percent(r["metrics"]["main_metric"]) for r in shown])])
    return [Section("Sets", notes, [bars] if shown else []),
            Section("Beside published results", ["Rows of papers are not measured here, and are not comparable with one "
                    "another: the pairs that could still be downloaded, epochs and towers differ."],
                    [table_item("From papers", anchors)]),
            Section("All metrics", [], [table_item("", details)])]
