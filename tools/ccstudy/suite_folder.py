"""The folders of `ccstream-eval suite`: texts, tars and instances of each set, checked before anything is encoded.

    wds_NAME/     classification, retrieval, multilabel: clip-benchmark's and DataComp's layout, or a dataset of ccpack
    winogavil/    instances.jsonl, images/
    winoground/   examples.jsonl, images/ (facebook/winoground)
    sugar_crepe/  TASK.json, val2017/ (clip-benchmark's layout)
"""

from __future__ import annotations

import json
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import suite_sets
from .study import DataError

_TYPES = ("classification", "retrieval", "multilabel")
PARTS = ("race", "gender", "age", "toxic")  # classifiers of FairFace and UTKFace, by the prefix of names and templates
_MOST_TEXT = 16 << 20
_MOST_VALUES = 1 << 20  # of JSON, which take up to 80 bytes each
_MOST_PROMPTS = 256 << 20  # characters of all prompts of a set


@dataclass
class One:
    """One test set: a folder of --sets."""

    folder: Path
    known: suite_sets.Set
    kind: str  # _TYPES, or of an own layout "winogavil" or "pairing"
    names: list[str] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    tars: list[Path] = field(default_factory=list)
    packed: bool = False
    images: list[Path] = field(default_factory=list)  # of an own layout
    location: str | None = None  # of a remote set
    instances: list[dict[str, Any]] = field(default_factory=list)  # name images by their place in `images`
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def has_faces(self) -> bool:
        return self.known.key in ("fairness/fairface", "fairness/utkface")

    def prompts(self, part: str = "") -> list[list[str]]:
        """Prompts per class. `part`: only those with this prefix."""
        cut = len(part) + 1 if part else 0
        templates = [t[cut:] for t in self.templates if not part or t.startswith(part + ":")]
        return [[t.format(c=n[cut:]) for t in templates] for n in self.names if not part or n.startswith(part + ":")]

    def all_prompts(self) -> list[str]:
        if self.instances:
            return [text for row in self.instances for text in row["texts"]]
        return [p for part in (PARTS if self.has_faces else ("",)) for of_class in self.prompts(part) for p in of_class]

    def bytes(self) -> int:
        """Total size of its images, to estimate the remaining time."""
        if self.packed:
            size = read_json(self.folder / "dataset.json", 1, read_text(self.folder / "dataset.json")).get("image_bytes")
            return size if isinstance(size, int) and size > 0 else 1
        return len(self.tars) if self.location else sum(p.stat().st_size for p in [*self.tars, *self.images]) or 1


# ---- texts


def read_text(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path}: is {'not a file' if path.exists() else 'missing'}")
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


def read_json(path: Path, line: int, text: str) -> dict[str, Any]:
    if sum(map(text.count, "[{,")) > _MOST_VALUES:
        raise DataError(f"{path}: line {line}: more than {_MOST_VALUES:,} values")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DataError(f"{path}: line {line}: not a JSON object")
    return value


def text_lines(path: Path) -> list[str]:
    """Every line, including empty ones, without leading and trailing white space, as clip-benchmark reads them."""
    lines = [line.strip() for line in read_text(path).replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def read_templates(path: Path) -> list[str]:
    templates = text_lines(path)
    for number, template in enumerate(templates, 1):
        try:
            fields = [(name, spec, how) for _, name, spec, how in string.Formatter().parse(template) if name is not None]
        except ValueError as error:
            raise DataError(f"{path}: line {number}: {error}; write {{{{ and }}}} for literal braces") from None
        if not fields or any(f != ("c", "", None) for f in fields):
            raise DataError(f"{path}: line {number}: '{template[:80]}' must contain {{c}} for the class name, and no "
                            "other braces")
    if not templates:
        raise DataError(f"{path}: contains no template")
    return templates


def _shards(folder: Path, notes: list[str], there: bool) -> list[Path]:
    path = folder / "test/nshards.txt"
    try:
        count = int(read_text(path))
    except ValueError:
        raise DataError(f"{path}: '{read_text(path)[:40].strip()}' is not a number of tar files") from None
    if not 1 <= count <= 1000000:
        raise DataError(f"{path}: {count} tar files; expected at least 1")
    tars = [folder / f"test/{i}.tar" for i in range(count)]
    for tar in tars if there else ():
        if not tar.is_file():
            raise DataError(f"{path}: expects {count} tar files, but {tar} is missing")
        with tar.open("rb") as file:
            if file.read(34).startswith(b"version https://git-lfs"):
                raise DataError(f"{tar}: a git-lfs pointer instead of the tar file; fetch it with git lfs pull")
    if (folder / f"test/{count}.tar").exists():
        notes.append(f"nshards.txt says {count}: {count}.tar and what follows is not read")
    return tars


# ---- own layouts


class _Images:
    """Images of a folder, each once."""

    def __init__(self, folder: Path):
        self.folder, self.place = folder, {}

    def find(self, where: str, name: object) -> int:
        path = self.folder / name if isinstance(name, str) and name and Path(name).name == name else None
        if path is None or not path.is_file():
            raise DataError(f"{where}: {self.folder.name}/{str(name)[:60]} is missing")
        return self.place.setdefault(path, len(self.place))


def _winogavil(folder: Path, images: _Images) -> list[dict[str, Any]]:
    path, out = folder / "instances.jsonl", []
    for number, line in enumerate(text_lines(path), 1):
        row, where = read_json(path, number, line), f"{path}: line {number}"
        try:
            good = (isinstance(row["cue"], str) and row["cue"] and set(row["associations"]) <= set(row["candidates"]) and
                    row["associations"])
        except (KeyError, TypeError):
            good = False
        if not good:
            raise DataError(f"{where}: requires cue, candidates, and associations chosen from the candidates")
        cue = " ".join(row["cue"].lower().split())
        out.append({"texts": [("An " if cue[:1] in tuple("aeiou") else "A ") + cue],
                    "images": [images.find(where, name) for name in row["candidates"]],
                    "right": [name in row["associations"] for name in row["candidates"]]})
    return out


def _winoground(folder: Path, images: _Images) -> list[dict[str, Any]]:
    path, out = folder / "examples.jsonl", []
    for number, line in enumerate(text_lines(path), 1):
        row, where = read_json(path, number, line), f"{path}: line {number}"
        texts = _captions(where, [row.get("caption_0"), row.get("caption_1")])
        names = [row.get("image_0"), row.get("image_1")]
        names = [f"{n}.png" if isinstance(n, str) and "." not in n else n for n in names]
        out.append({"task": "", "texts": texts, "images": [images.find(where, name) for name in names]})
    return out


def _sugar_crepe(folder: Path, images: _Images) -> list[dict[str, Any]]:
    out = []
    for path in sorted(folder.glob("*.json")):
        rows = read_json(path, 1, read_text(path))
        for key, row in rows.items():
            where = f"{path}: '{key[:40]}'"
            if not isinstance(row, dict):
                raise DataError(f"{where}: not a JSON object")
            texts = _captions(where, [row.get("caption"), row.get("negative_caption")])
            out.append({"task": path.stem, "texts": texts, "images": [images.find(where, row.get("filename"))]})
    return out


def _captions(where: str, texts: list[Any]) -> list[str]:
    """Each caption on one line, as in the file of all prompts; CLIP's tokenizer treats both alike."""
    if not all(isinstance(t, str) for t in texts):
        raise DataError(f"{where}: requires two captions")
    return [" ".join(t.split()) for t in texts]


_OWN = [  # a file of the layout, images, how instances are read, its kind
    ("winogavil", "instances.jsonl", "images", _winogavil, "winogavil"),
    ("winoground", "examples.jsonl", "images", _winoground, "pairing"),
    ("sugar_crepe", "val2017", "val2017", _sugar_crepe, "pairing"),
]


def _read_own(folder: Path) -> One | None:
    for name, mark, images_folder, read, kind in _OWN:
        for top in (folder, folder / "data"):  # the repository of Winoground has its files there
            if (top / mark).exists():
                images = _Images(top / images_folder)
                known = suite_sets.BY_FOLDER[name]
                one = One(folder, known, kind, instances=read(top, images))
                one.images = list(images.place)
                if not one.instances:
                    raise DataError(f"{top}: contains no instance")
                return one
    return None


# ---- clip-benchmark's layout, and ours


def check_links(folder: Path, top: Path) -> None:
    """Refuses links out of the folder of sets: an untrusted set could otherwise select private files of the user."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink() and not path.resolve().is_relative_to(top.resolve()):
            raise DataError(f"{path}: a link out of {top}; pass --follow-links to read such files")


def is_retrieval(folder: Path) -> bool:
    path = folder / "dataset_type.txt"
    return path.exists() and read_text(path).strip().lower() == "retrieval"


def read_set(folder: Path, tars_are_there: bool = True) -> One | None:
    """A set, or None if the folder is not one. Raises DataError."""
    known = suite_sets.BY_FOLDER.get(suite_sets.short_name(folder.name))
    own = _read_own(folder)
    if own is not None:
        return own
    packed = (folder / "dataset.json").is_file()
    if not packed and not (folder / "test").is_dir():
        return None
    kind, names = "classification", []
    if packed:
        manifest = read_json(folder / "dataset.json", 1, read_text(folder / "dataset.json"))
        names = manifest.get("classes", [])
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise DataError(f"{folder}/dataset.json: classes must be a list of names")
        kind = "classification" if names else "retrieval"
    elif (folder / "dataset_type.txt").exists():
        kind = read_text(folder / "dataset_type.txt").strip().lower()
        if kind not in _TYPES:
            raise DataError(f"{folder}/dataset_type.txt: '{kind[:40]}': expected one of {', '.join(_TYPES)}")
    main = {"retrieval": "mean_recall@1", "multilabel": "mean_average_precision"}.get(kind, "acc1")
    one = One(folder, known or suite_sets.Set(folder.name, folder.name, main), kind, packed=packed)
    one.tars = [] if packed else _shards(folder, one.notes, tars_are_there)
    if kind == "retrieval":
        return one
    path = folder / "zeroshot_classification_templates.txt"
    one.names = names if packed else text_lines(folder / "classnames.txt")
    one.templates = ["a photo of a {c}."] if packed and not path.exists() else read_templates(path)
    if not one.names:
        raise DataError(f"{folder}/classnames.txt: contains no class")
    size = len(one.names) * sum(map(len, one.templates)) + sum(map(len, one.names)) * sum(t.count("{") for t in one.templates)
    if size > _MOST_PROMPTS:
        raise DataError(f"{folder}: {len(one.names):,} classes in {len(one.templates):,} templates are {size:,} characters of "
                        f"prompts, more than {_MOST_PROMPTS:,}")
    for part in PARTS if one.has_faces else ():
        if not all(one.prompts(part)) or not one.prompts(part):
            raise DataError(f"{folder}: no class name, or no template, begins with '{part}:'")
    return one
