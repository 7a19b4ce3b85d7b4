"""`ccstream-report --follow`, `--tensorboard DIR` and `--wandb PROJECT`: one run while it is trained, here and in other viewers.

    RUN/metrics.jsonl --_lines--> one step's lines --_numbers--> event files, Weights & Biases, or JSON on stdout
                                 `--> _Live, the progress line that ccstream-train shows

Every number and histogram is named by its path ("retrieval/mean_r1"). A step is written when the next one begins, so that an
evaluation is in one record with it. If a run was resumed from an earlier step, its steps are repeated: event files then purge
the old ones from there on; W&B ignores steps that it already has.
"""

from __future__ import annotations

import base64
import fcntl
import importlib
import json
import math
import os
import shutil
import struct
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from .cards import caption_of
from .page import redact
from .run_log import MAX_LINE_BYTES, RunLog, member, number, parse
from .study import DataError, MissingError, Progress, StudyError, UsageError

_POLL_SECONDS = 1.0
_LOCK = struct.Struct("hhqqi4x")  # struct flock
Examples = Callable[[Any], tuple[list[list[bytes]], list[str]]]


# ---- the lines of a run


def _is_held(run: str) -> bool:
    """Whether ccstream-train is training the run: it holds a lock on sessions.jsonl while it runs."""
    try:
        with open(os.path.join(run, "sessions.jsonl"), "rb") as file:
            asked = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
            return bool(_LOCK.unpack(asked)[0] != fcntl.F_UNLCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # a file system without such locks


def _lines(run: str, follow: bool) -> Iterator[bytes]:
    """Yields whole lines, and an empty one while there is no new one, until the run ends or (without `follow`) the file ends.
    Restarts at the first line if the file was replaced. Too long lines are truncated."""
    path = os.path.join(run, "metrics.jsonl")
    file, rest = None, b""
    try:
        while True:
            held = follow and _is_held(run)  # before all that it wrote is read
            here = os.stat(path) if os.path.exists(path) else None
            if here and (file is None or here.st_ino != os.fstat(file.fileno()).st_ino or here.st_size < file.tell()):
                if file:
                    file.close()
                file, rest = open(path, "rb"), b""
            while file and (chunk := file.read(MAX_LINE_BYTES)):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
                rest = rest[:MAX_LINE_BYTES + 1]
            yield b""
            if not held:
                return
            time.sleep(_POLL_SECONDS)
    finally:
        if file:
            file.close()


def _numbers(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(name, number or histogram) for everything in an object, including nested objects."""
    for key, one in value.items():
        name = f"{path}/{key}" if path else key
        if number(one) is not None:
            if name != "step":
                yield name, one
        elif isinstance(one, dict):
            if isinstance(one.get("counts"), list):
                if _is_histogram(one):
                    yield name, one
            else:
                yield from _numbers(one, name)


def _is_histogram(h: dict[str, Any]) -> bool:
    counts = [number(c) for c in h["counts"]]
    return bool(counts) and None not in (*counts, number(h.get("low")), number(h.get("width")))


class _Live:
    """Shows steps as ccstream-train does: one line, redrawn on a terminal, else one every ten seconds; and evaluations."""

    def __init__(self, run: str):
        self.run = run
        self.in_place = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.width = 0
        self.total: float | None = None
        self.begun = 0.0  # the first step that came while this looked, and when
        self.begun_s: float | None = None
        self.step: dict[str, Any] = {}
        self.recall: float | None = None
        self.drawn: tuple[float, Any] = (-math.inf, None)  # when, and the step

    def add(self, text: bytes) -> None:
        line = parse(text) if text else None
        if line is None:
            self._draw()
        elif number(member(line, "step")) is not None:
            self.recall = number(member(member(line, "retrieval"), "mean_r1")) or self.recall
            if number(member(line, "pairs_per_s")) is not None:
                self.step = line

    def close(self) -> None:
        self._draw(last=True)
        if self.width:
            print(file=sys.stderr)

    def _left(self, step: float) -> str:
        now = time.monotonic()
        if self.begun_s is None or step < self.begun:
            self.begun, self.begun_s = step, now
        if self.total is None or step <= self.begun:
            return ""
        return f"  {Progress.duration((now - self.begun_s) / (step - self.begun) * (self.total - step))} left"

    def _draw(self, last: bool = False) -> None:
        now, step = time.monotonic(), number(member(self.step, "step"))
        if step is None or self.drawn[1] is self.step or (now - self.drawn[0] < (0 if self.in_place or last else 10)):
            return
        self.drawn = (now, self.step)
        launch = RunLog.last_launch(self.run)  # a run that was resumed may have another end
        self.total = number(member(launch, "total_steps"))
        of = f"/{self.total:.0f}" if self.total else ""
        name = "loss" if member(self.step, "global_loss") is None else "global_loss"
        value, epoch = number(member(self.step, name)), number(member(self.step, "epoch"))
        text = (f"step {step:.0f}{of}  epoch {(epoch or 0) + 1:.0f}  {name.replace('_', ' ')} {value or 0:.4f}  "
                f"{number(self.step['pairs_per_s']):.0f} pairs/s  stall {100 * (number(member(self.step, 'stall_fraction')) or 0):.0f} %" + ("" if self.recall is None else f"  R@1 {self.recall:.1f} %"))
        text += self._left(step)
        if not self.in_place:
            print(text, file=sys.stderr, flush=True)
            return
        text = text[:shutil.get_terminal_size().columns - 1]
        print(f"\r{text}{' ' * (self.width - len(text))}", end="", file=sys.stderr, flush=True)
        self.width = len(text)


class _Steps:
    """Joins the lines of a step and passes them to a sink."""

    def __init__(self, sink: Any):
        self.sink = sink
        self.step: int | None = None
        self.values: dict[str, Any] = {}
        self.time = 0.0
        self.examples: Any = None

    def add(self, text: bytes) -> None:
        line = parse(text) if text else {}
        step = number(member(line, "step"))
        if step is None:
            return
        if step != self.step:
            self.flush()
            if self.step is None or step < self.step:
                self.sink.start(int(step))
            self.step = int(step)
        self.values.update(_numbers(line))
        self.examples = line.get("examples") or self.examples
        try:
            self.time = datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()
        except (KeyError, AttributeError, ValueError):
            pass

    def flush(self) -> None:
        if self.step is not None and self.values:
            self.sink.log(self.step, self.time, self.values, self.examples)
        self.values, self.examples = {}, None

    def close(self) -> None:
        self.flush()
        self.sink.close()


# ---- where they are written


class _Printer:
    def start(self, step: int) -> None:
        pass

    def log(self, step: int, when: float, values: dict[str, Any], examples: Any) -> None:
        print(json.dumps({"step": step, **values}), flush=True)

    def close(self) -> None:
        pass


class _EventFiles:
    """A TensorBoard event file. Its first record, and one at every repeated step, purges later steps that the folder already
    has."""

    def __init__(self, folder: str, examples: Examples):
        if "://" in folder:
            raise UsageError(f"{folder}: output must be a local folder; upload it afterwards")
        try:
            self.event: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
            self.summary: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
            self.tensor: Any = importlib.import_module("tensorboard.compat.proto.tensor_pb2").TensorProto
            self.shape: Any = importlib.import_module("tensorboard.compat.proto.tensor_shape_pb2").TensorShapeProto
            self.kinds: Any = {kind: importlib.import_module(f"tensorboard.plugins.{kind}.metadata").create_summary_metadata
                               for kind in ("image", "text")}
            writer = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        except ImportError as error:
            raise MissingError(f"{error.name or 'tensorboard'} is not installed for {sys.executable}: pip install tensorboard") from None
        self.examples = examples
        self.warned = False
        self.writer = writer.EventFileWriter(folder)

    def start(self, step: int) -> None:
        start = self.event.SessionLog(status=self.event.SessionLog.START)
        self.writer.add_event(self.event.Event(wall_time=time.time(), step=step, session_log=start))

    def _histogram(self, h: dict[str, Any]) -> Any:
        low, width, counts = h["low"], h["width"], h["counts"]
        middles = [low + (i + 0.5) * width for i in range(len(counts))]
        return self.summary.HistogramProto(
            min=low, max=low + len(counts) * width, num=sum(counts), sum=sum(c * m for c, m in zip(counts, middles)),
            sum_squares=sum(c * m * m for c, m in zip(counts, middles)),
            bucket_limit=[low + (i + 1) * width for i in range(len(counts))], bucket=counts)

    def _strings(self, tag: str, kind: str, strings: list[bytes]) -> Any:
        about = self.kinds[kind](display_name=tag, description="")
        shape = self.shape(dim=[self.shape.Dim(size=len(strings))])
        tensor = self.tensor(dtype="DT_STRING", tensor_shape=shape, string_val=strings)
        return self.summary.Summary.Value(tag=tag, metadata=about, tensor=tensor)

    def log(self, step: int, when: float, values: dict[str, Any], examples: Any) -> None:
        value = self.summary.Summary.Value
        out = [value(tag=tag, histo=self._histogram(v)) if isinstance(v, dict) else value(tag=tag, simple_value=v)
               for tag, v in values.items()]
        rows, texts = self._read(examples) if examples else ([], [])
        for k, row in enumerate(rows):
            out.append(self._strings(f"examples/{k + 1}", "image", [b"128", b"128", *row]))
        if texts:
            out.append(self._strings("examples/captions", "text", [text.encode() for text in texts]))
        self.writer.add_event(self.event.Event(wall_time=when, step=step, summary=self.summary.Summary(value=out)))
        self.writer.flush()

    def _read(self, examples: Any) -> tuple[list[list[bytes]], list[str]]:
        try:
            return self.examples(examples)
        except (StudyError, KeyError, TypeError, ValueError, AttributeError) as error:
            if not self.warned:
                said = error if isinstance(error, StudyError) else "metrics.jsonl has them in another form"
                print(f"ccstream-report: no retrieval examples in the event files: {said}", file=sys.stderr)
            self.warned = True
            return [], []

    def close(self) -> None:
        self.writer.close()


class _Wandb:
    """The run of W&B with the id of the training run, continued if it exists."""

    def __init__(self, project: str, run: RunLog):
        try:
            self.wandb: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise MissingError(f"{error.name or 'wandb'} is not installed for {sys.executable}: pip install wandb") from None
        self.run = self.wandb.init(project=project, id=member(run.config, "run"), resume="allow",
                                   config=_shown(member(run.config, "options")))
        self.last = self.run.step - 1

    def start(self, step: int) -> None:
        pass

    def log(self, step: int, when: float, values: dict[str, Any], examples: Any) -> None:
        if step > self.last:
            self.run.log({k: self._histogram(v) if isinstance(v, dict) else v for k, v in values.items()}, step=step)
            self.last = step

    def _histogram(self, h: dict[str, Any]) -> Any:
        edges = [h["low"] + i * h["width"] for i in range(len(h["counts"]) + 1)]
        return self.wandb.Histogram(np_histogram=(h["counts"], edges))

    def close(self) -> None:
        self.run.finish()


def _shown(value: Any) -> Any:
    """Options, with secrets removed from locations."""
    if isinstance(value, dict):
        return {key: _shown(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shown(one) for one in value]
    return redact(value) if isinstance(value, str) else value


def examples_of(read: Callable[[list[int]], dict[int, dict[str, Any]]]) -> Examples:
    """Retrieval examples as images: for each caption its own image and the retrieved ones, nearest first, and a text that marks
    its own. read: captions and thumbnails by sample id."""
    def make(found: Any) -> tuple[list[list[bytes]], list[str]]:
        queries = [(q, [f for f in member(q, "found") or [] if isinstance(f, dict)]) for q in member(found, "t2i") or []]
        known = read([one["id"] for q, hits in queries for one in [q, *hits]])
        rows, texts = [], []
        for k, (q, hits) in enumerate(queries):
            shown = [known[one["id"]].get("thumbnail", "") for one in [q, *hits]]
            rows.append([base64.b64decode(uri.partition(",")[2]) for uri in shown if uri])
            places = [str(i + 1) for i, hit in enumerate(hits) if hit["id"] == q["id"]]
            where = f"found as number {places[0]}" if places else f"number {q['rank']} of all, not shown"
            texts.append(f"{k + 1}. {caption_of(known[q['id']], q.get('caption', 0))} (own image first; {where})")
        return rows, texts
    return make


def follow(options: Any, run: RunLog, examples: Examples) -> None:
    """Raises DataError if a followed run stops before its end."""
    viewers: list[_Steps | _Live] = []
    if options.tensorboard is not None:
        viewers.append(_Steps(_EventFiles(options.tensorboard, examples)))
    if options.wandb is not None:
        viewers.append(_Steps(_Wandb(options.wandb, run)))
    if options.json:
        viewers.append(_Steps(_Printer()))
    if options.follow and not options.quiet:
        viewers.append(_Live(run.path))
    stopped = False
    try:
        for line in _lines(run.path, options.follow):
            for viewer in viewers:
                viewer.add(line)
    except KeyboardInterrupt:
        stopped = True
    for viewer in viewers:
        viewer.close()
    last = RunLog(run.path)
    if last.unread and not options.quiet:
        print(f"ccstream-report: {run.path}/metrics.jsonl: {last.unread} lines were skipped: not JSON objects with a step", file=sys.stderr)
    if not options.follow or stopped:
        return
    if not last.is_finished():
        raise DataError(f"{run.path} is not being trained; it stopped at step {last.last_step:g}; resume with --resume {run.path}")
    if not options.quiet:
        print(f"ccstream-report: {run.path} is finished after {last.last_step:g} steps", file=sys.stderr)
