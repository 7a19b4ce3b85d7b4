"""The content of RUN/metrics.jsonl and RUN/sessions.jsonl, as lists of numbers over steps.

Runs are untrusted: a line that does not parse, such as the last one of a killed run, is counted and skipped. If steps are
repeated because a run was resumed from an earlier one, the later lines count: a line whose step is not after the previous one
discards everything from that step on, as the run itself does when it is resumed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .study import NotFoundError, StudyError

_MAX_FILE_BYTES = 1 << 30
MAX_LINE_BYTES = 1 << 20  # a longer one is none of ccstream-train; parsed, it would take up to 50 times as much
_MAX_COLUMNS = 64
_MAX_BINS = 48

# The names of metrics.jsonl, by the member that has them; "": a line itself.
SERIES = {
    "": ["epoch", "loss", "global_loss", "tau", "lr", "zeta_lr", "grad_norm", "pairs_per_s", "stall_fraction",
         "wait_fraction", "replaced", "peak_rss_bytes", "device_bytes"],
    "batch": ["image.log_u", "text.log_u", "image.zeta", "text.zeta"],
    "stages": ["seconds", "step_s", "load_s", "ranks_s", "evaluation_s", "checkpoint_s", "read_wait_fraction",
               "decode_wait_fraction", "deliver_wait_fraction"],
    "retrieval": ["mean_r1", "mean_r5", "mean_r10", "i2t_r1", "t2i_r1"],
    "zeroshot": ["top1", "top5"],
    "features": ["nn1", "nn10", "knn", "probe"],
}
EVALUATIONS = [*SERIES["retrieval"], *SERIES["zeroshot"], *SERIES["features"]]
LABELS = {"mean_r1": "R@1", "mean_r5": "R@5", "mean_r10": "R@10", "i2t_r1": "image to text R@1", "t2i_r1": "text to image R@1",
          "top1": "zero-shot top 1", "top5": "zero-shot top 5", "nn1": "nearest neighbour", "nn10": "ten nearest",
          "knn": "k-NN", "probe": "linear probe"}


class LimitError(StudyError):
    code = 65


def number(value: Any) -> float | None:
    """None if it is not a finite number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            return None
        return value if math.isfinite(value) else None
    return None


def digits(values: Iterable[float]) -> list[float]:
    """Rounds to nine digits: enough for every step number, and more than a figure shows."""
    return [float(f"{v:.9g}") for v in values]


def member(value: Any, name: str) -> Any:
    """A field of an object; None if it is absent."""
    return value.get(name) if isinstance(value, dict) else None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def parse(text: bytes) -> Any:
    """None if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse) if len(text) <= MAX_LINE_BYTES else None
    except (ValueError, RecursionError):
        return None


@dataclass
class Points:
    """x: steps, ascending; y: finite values."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)

    def add(self, x: float, value: Any) -> None:
        y = number(value)
        if y is not None:
            self.rewind(x)
            self.x.append(x)
            self.y.append(y)

    def rewind(self, step: float) -> None:
        while self.x and self.x[-1] >= step:
            self.x.pop()
            self.y.pop()

    def last(self) -> float:
        return self.y[-1] if self.y else math.nan


@dataclass
class Histogram:
    step: float
    low: float  # bin i begins at low + i width
    width: float
    shares: list[float]  # of the entries that were visited, in percent


class Column:
    """One column of the per-sample state over checkpoints. at_min, at_max: number of entries with the smallest or largest
    value."""

    NUMBERS = ("visited", "min", "mean", "max", "std", "at_min", "at_max")

    def __init__(self) -> None:
        self.visited, self.min, self.mean, self.max, self.std, self.at_min, self.at_max = (Points() for _ in self.NUMBERS)
        self.histograms: list[Histogram] = []

    def add(self, step: float, value: Any) -> None:
        visited = number(member(value, "visited"))
        if visited is None:
            return
        self.visited.add(step, visited)
        if visited > 0:
            for name in self.NUMBERS[1:]:
                getattr(self, name).add(step, member(value, name))
            self._add_histogram(step, member(value, "histogram"), visited)

    def _add_histogram(self, step: float, value: Any, visited: float) -> None:
        """Omits a histogram that is not valid."""
        while self.histograms and self.histograms[-1].step >= step:
            self.histograms.pop()
        low, width, counts = (member(value, name) for name in ("low", "width", "counts"))
        low, width = number(low), number(width)
        if low is None or not width or width < 0 or not isinstance(counts, list) or not 0 < len(counts) <= _MAX_BINS:
            return
        numbers = [number(n) for n in counts]
        if all(n is not None and n >= 0 for n in numbers):
            self.histograms.append(Histogram(step, low, width, [100 * n / visited for n in numbers if n is not None]))

    def rewind(self, step: float) -> None:
        for name in self.NUMBERS:
            getattr(self, name).rewind(step)


def _lines(path: Path) -> Iterator[bytes]:
    """Lines of a file; none if it is absent. Too long lines are truncated."""
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise LimitError(f"{path} is larger than {_MAX_FILE_BYTES >> 30} GiB")
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 2):
                yield line.rstrip(b"\n")
                while len(line) == MAX_LINE_BYTES + 2 and line[-1:] != b"\n":
                    line = file.readline(MAX_LINE_BYTES + 2)
    except (FileNotFoundError, NotADirectoryError):
        pass


def _document(path: Path) -> Any:
    """None if the file is absent or does not parse."""
    try:
        with path.open("rb") as file:
            return parse(file.read(MAX_LINE_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None


class RunLog:
    def __init__(self, run: str):
        if not any(os.path.exists(os.path.join(run, name)) for name in ("config.json", "metrics.jsonl")):
            raise NotFoundError(f"{run} is not a run of ccstream-train: it has no config.json and no metrics.jsonl")
        self.path = run.rstrip("/") or "/"
        self.folders = 1  # of the path, at its end, that the name has
        self.series = {name: Points() for names in SERIES.values() for name in names}
        self.columns: dict[str, Column] = {}
        self.evaluations: dict[str, Points] = {}  # every number of an evaluation
        self.last_step = math.nan
        self.last_time = ""
        self.ended: float | None = None  # the step at which metrics.jsonl says that the run has finished
        self.lines = self.unread = self.first_unread = 0
        self.first_examples: Any = None  # of retrieval, with "rank" of every query
        self.last_examples: Any = None
        folder = Path(self.path)
        self.config = _document(folder / "config.json")
        self.nonfinite = _document(folder / "nonfinite.json")
        self.launch = self.last_launch(run)
        for line in _lines(folder / "metrics.jsonl"):
            self.lines += 1
            if line:
                self._add(parse(line))

    @staticmethod
    def last_launch(run: str) -> dict[str, Any] | None:
        """The last line of sessions.jsonl that parses."""
        found = None
        for launch in map(parse, _lines(Path(run) / "sessions.jsonl")):
            found = launch if isinstance(launch, dict) else found
        return found

    @property
    def name(self) -> str:
        """Name in legends: the end of the path."""
        return "/".join(self.path.split("/")[-self.folders:]) or self.path

    def option(self, name: str) -> Any:
        """The value in config.json; None: not known."""
        return member(member(self.config, "options"), name)

    def last(self, name: str) -> float:
        return self.series[name].last()

    def steps_per_epoch(self) -> float | None:
        found = number(member(self.launch, "steps_per_epoch"))
        return found if found and found > 0 else None

    def is_finished(self) -> bool:
        """Whether the last step is the last of the schedule, or --patience stopped it there."""
        return self.last_step in (self.ended, number(member(self.launch, "total_steps")))

    def _add(self, line: Any) -> None:
        step = number(member(line, "step"))
        if step is None or step < 0 or step != int(step):
            self.first_unread = self.first_unread or self.lines
            self.unread += 1
            return
        self.last_step = step
        if isinstance(line.get("time"), str):
            self.last_time = line["time"]
        if "finished" in line:
            self.ended = step
        if "loss" in line:
            for lists in (self.series, self.columns, self.evaluations):
                for points in lists.values():
                    points.rewind(step)
        for where, names in SERIES.items():
            values = line if where == "" else line.get(where)
            if isinstance(values, dict):
                for name in names:
                    if name in values:
                        self.series[name].add(step, values[name])
        for where in ("retrieval", "zeroshot", "features"):
            values = line.get(where)
            for name, value in values.items() if isinstance(values, dict) else ():
                if name in self.evaluations or len(self.evaluations) < _MAX_COLUMNS:
                    self.evaluations.setdefault(name, Points()).add(step, value)
        state = line.get("state")
        for name, value in state.items() if isinstance(state, dict) else ():
            if name in self.columns or len(self.columns) < _MAX_COLUMNS:
                self.columns.setdefault(name, Column()).add(step, value)
        if isinstance(line.get("examples"), dict):
            self.last_examples = line["examples"]
            self.first_examples = self.first_examples or self.last_examples


def name_apart(runs: list[RunLog]) -> None:
    """Lengthens equal names of runs to the left, as for a/run and b/run."""
    longer = True
    while longer:
        names = [r.name for r in runs]
        same = [r for r in runs if names.count(r.name) > 1 and r.name != r.path]
        for r in same:
            r.folders += 1
        longer = bool(same)
