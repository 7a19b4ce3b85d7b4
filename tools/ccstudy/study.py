"""The interface of every study. A study is a module NAME.py of this package with

    PURPOSE    one line for --help                TITLE     of the page
    OPTIONS    list[Option], in addition to COMMON  NOTES   paragraphs of --help
    EXAMPLES   command lines                      USAGE     optional: words after the name
    run(options, progress) -> dict                the JSON; fields that begin with "_" are for `page` only
    table(result) -> Table                        the text on stdout and the page's summary
    page(result, options) -> list[Section]        figures and tables; figures are also written as SVG and PNG files
    check(options)                                optional: raises UsageError before the work
    stem(options) -> str                          optional: base name of the files, else NAME
    ARGUMENTS                                     optional: (min, max) number of arguments, else none
    exit_code(result) -> int                      optional: of a run that has a result, else 0

Modules import np (and scipy, sklearn, ccstream) from here: they are loaded on first use, so that --help needs
none of them, and a missing one stops the program with a line that says what to install.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

Options = SimpleNamespace  # a member for every option, dashes as underscores; `given`, `arguments`
Item = dict[str, Any]  # a figure or table of the page: tools/inspect/page/README.md


class StudyError(Exception):
    """Stops the program with its text on stderr. Exit codes are those of the other programs."""

    code = 70


class UsageError(StudyError):
    code = 64


class DataError(StudyError):
    """A file violates its format, or does not match the other files."""

    code = 65


class NotFoundError(StudyError):
    code = 66


class MissingError(StudyError):
    """A library is not installed."""

    code = 69


_PACKAGES = {"numpy": "python3-numpy", "scipy": "python3-scipy", "matplotlib": "python3-matplotlib",
             "sklearn": "python3-sklearn", "torch": "python3-torch"}


def load(name: str) -> ModuleType:
    """Imports a module, or raises MissingError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).split(".")[0]
        if missing in _PACKAGES and isinstance(error, ModuleNotFoundError):
            pip = "scikit-learn" if missing == "sklearn" else missing
            raise MissingError(f"{missing} is not installed: apt install {_PACKAGES[missing]}, or "
                               f"pip install {pip}") from None
        raise MissingError(f"cannot import the Python package ccstream ({error}): install libccstream0, or build with "
                           "python3-dev") from None


class _Lazy:
    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        module = load(self._name)
        self.__dict__.update(vars(module))
        return getattr(module, attribute)


if TYPE_CHECKING:
    import ccstream as ccstream
    import numpy as np
else:
    np, ccstream = _Lazy("numpy"), _Lazy("ccstream")


def check_dataset(path: str) -> None:
    """Raises NotFoundError if the path is not a dataset; remote paths are not checked."""
    if "://" in path or os.path.exists(os.path.join(path, "dataset.json")):
        return
    if os.path.exists(os.path.join(path, "config.json")):
        raise NotFoundError(f"{path} is a training run, not a dataset")
    raise NotFoundError(f"{path}: no such dataset; create one with ccpack")


def found(name: str) -> str | None:
    """The path of another program: next to this one, else in PATH."""
    path = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), name)
    return path if os.access(path, os.X_OK) else shutil.which(name, path=_absolute(os.environ.get("PATH", "")))


def program(name: str) -> str:
    """As found; raises MissingError if there is none."""
    path = found(name)
    if path is None:
        raise MissingError(f"{name} is neither next to this program nor in PATH")
    return path


def _absolute(folders: str) -> str:
    """PATH without relative folders, which depend on the (untrusted) current folder."""
    return ":".join(f for f in folders.split(":") if f.startswith("/"))


def environment(words: list[str]) -> dict[str, str]:
    """The environment of a child process: without secrets, except server credentials if a word or a run's config.json may name
    a server."""
    secret = re.compile("AWS_|TOKEN|SECRET|PASSW|CREDENTIAL|API_KEY|ACCESS_KEY|PRIVATE_KEY|JWT|_PROXY|AUTH_SOCK", re.I)
    server = re.compile("AWS_|HF_|.*_PROXY", re.I)
    remote = any("://" in w or w in ("--resume", "--only-data") for w in words)
    code = re.compile("BASH_ENV|ENV|PYTHON(BREAKPOINT|INSPECT|STARTUP)|LD_(AUDIT|PRELOAD)=(.*[: ])?[^/: ]+/.*", re.S)
    out = {n: v for n, v in os.environ.items()
           if (not secret.search(n) or (remote and server.match(n))) and not code.fullmatch(n) and not code.fullmatch(f"{n}={v}")}
    for name in {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"} & out.keys():
        out[name] = _absolute(out[name])
        if not out[name]:
            del out[name]
    return out


def start(words: list[str], **how: Any) -> subprocess.Popen[Any]:
    """Starts a ccstream program."""
    return subprocess.Popen([program(words[0]), *words[1:]], env=environment(words), **how)


def hide_secrets(redact: Callable[[str], str]) -> None:
    """Overwrites user names, passwords and queries of locations in the command line that `ps` shows."""
    command = Path("/proc/self/cmdline").read_bytes()
    words = [os.fsencode(redact(os.fsdecode(word))) for word in command.split(b"\0")]
    shown = b"\0".join(words)
    if shown != command:
        import ctypes  # which takes a while

        first = int(Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[45])  # arg_start
        ctypes.memmove(first, shown.ljust(len(command), b"\0"), len(command))


class Terminal:
    """Standard output or error; escapes control characters of untrusted texts, and marks that change the writing direction."""

    def __init__(self, to: Any):
        self._to = to

    def write(self, text: str) -> int:
        self._to.write("".join(c if c.isprintable() or c in "\n\r\t" else ascii(c)[1:-1] for c in text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


@dataclass
class Option:
    """A row of an option table. kind: int, float or str; bool for a flag; list for a repeatable option."""

    name: str
    letter: str = ""
    kind: type = str
    default: Any = None
    metavar: str = ""
    help: str = ""
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    word: str = ""  # a word instead of a number; the value is then None
    group: str = "Options"
    former: str = ""  # an earlier name, still accepted


COMMON = [
    Option("out", "o", metavar="DIR", help="folder for NAME.json, NAME.html and the figures; created if missing"),
    Option("force", kind=bool, help="also replace files of these names that this command did not write"),
    Option("seed", "s", int, 0, "N", "random seed", least=0),
    Option("quick", kind=bool, help="run a smaller experiment"),
    Option("json", kind=bool, help="print all numbers as JSON"),
    Option("quiet", "q", bool, help="no progress and no table"),
]


@dataclass
class Column:
    """A column of a Table: its name, and the format of its numbers."""

    name: str
    format: str = "g"

    def text(self, value: Any) -> str:
        if value is None or value != value:
            return "-"
        return value if isinstance(value, str) else format(value, self.format)


@dataclass
class Table:
    columns: list[Column]
    rows: list[list[Any]]


@dataclass
class Section:
    """A part of the page: paragraphs, then figures and tables. folded: closed until clicked."""

    title: str
    text: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    folded: bool = False


def axis(title: str, unit: str = "", scale: str = "linear", categories: list[str] | None = None) -> dict[str, Any]:
    out: dict[str, Any] = {"title": title, "unit": unit, "scale": scale}
    if categories is not None:
        out["categories"] = categories
    return out


def series(name: str, x: Any, y: Any, **more: Any) -> dict[str, Any]:
    """x, y and the optional low, high, error: any sequences, NaN for a gap; dashed: bool."""
    lists = {"x": x, "y": y} | {key: more.pop(key) for key in ("low", "high", "error") if key in more}
    return {"name": name} | {key: list(map(_plain, values)) for key, values in lists.items()} | more


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) or value is None else float(value)


def figure(kind: str, title: str, x: dict[str, Any], y: dict[str, Any], lines: list[dict[str, Any]],
           note: str = "") -> Item:
    """kind: lines, scatter, bars, histogram or area."""
    return {"kind": kind, "title": title, "x": x, "y": y, "series": lines, "note": note}


def table_item(title: str, table: Table) -> Item:
    columns = [{"name": c.name, "unit": "", "align": "right" if c.format != "s" else "left"} for c in table.columns]
    return {"kind": "table", "title": title, "columns": columns,
            "rows": [[c.text(v) for c, v in zip(table.columns, row)] for row in table.rows]}


class Progress:
    """A progress bar on a terminal, else one line per minute, on stderr. `total` is in any unit of work."""

    def __init__(self, quiet: bool):
        self.total = 1.0
        self.done = 0.0
        self._in_place = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._quiet = quiet
        self._started = time.monotonic()
        self._drawn = 0.0 if self._in_place else self._started
        self._width = 0

    def advance(self, work: float = 1.0) -> None:
        self.done += work
        now = time.monotonic()
        if self._quiet or now - self._drawn < (0.1 if self._in_place else 60.0):
            return
        self._drawn = now
        fraction = min(1.0, self.done / self.total)
        left = (now - self._started) * (1.0 / fraction - 1.0) if fraction > 0 else 0.0
        line = f"{100 * fraction:3.0f} %  {self.duration(left)} left"
        if not self._in_place:
            print(line.strip(), file=sys.stderr)
            return
        columns = shutil.get_terminal_size().columns - 1
        if columns >= 40:
            full = int(20 * fraction)
            line = f"[{'#' * full}{'-' * (20 - full)}] {line}"
        line = line[:columns]
        print(f"\r{line}{' ' * (self._width - len(line))}", end="", file=sys.stderr, flush=True)
        self._width = len(line)

    def clear(self) -> None:
        if self._width > 0:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
            self._width = 0

    @staticmethod
    def duration(seconds: float) -> str:
        if seconds < 60:
            return f"{seconds:.0f} s"
        minutes = round(seconds / 60)
        return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
