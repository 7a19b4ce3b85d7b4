"""A table of a paper: losses x seeds x test sets, trained, tuned and tested by child processes.

    tune: each row's settings, first seed --> the best on validation --> train: each row x seed --> test: each run x set
    OUT/jobs/NAME.json is the result of a finished job; OUT/runs/NAME is a run, which is resumed if it was interrupted

A job's name includes a hash of its command and of its data's fingerprints, so that different specs share equal jobs.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import page as pages
from .run_log import LABELS, Points, RunLog
from .study import (Column, DataError, NotFoundError, Option, Options, Progress, Section, StudyError, Table, UsageError,
                    axis, figure, series, start, table_item)

PURPOSE = "makes a table of losses x seeds x test sets from one file"
TITLE = "Table"
USAGE = ["SPEC -o OUT [options]"]
ARGUMENTS = (1, 1)
OPTIONS = [
    Option("out", "o", metavar="OUT", help="folder for the page, the numbers and all runs; run the same command again to resume"),
    Option("set", kind=list, metavar="NAME=DIR", help="dataset, or folder of test sets, called NAME in the spec"),
    Option("seeds", kind=int, default=0, metavar="N", least=0, most=100, help="use only the first N seeds of the spec; 0: all"),
    Option("rows", kind=list, metavar="NAME,...", help="only these rows of the spec"),
    Option("jobs", "j", int, 0, "N", "concurrent trainings and tests; 0: one per two CPUs", least=0, most=256),
    Option("device", default="cpu", metavar="NAME", help="device of all jobs, as in ccstream-train"),
    Option("force", kind=bool, help="also replace files of these names that this command did not write"),
    Option("json", kind=bool, help="print all numbers as JSON"),
    Option("quiet", "q", bool, help="no progress and no table"),
]
NOTES = [
    "SPEC is a TOML file, or the name of an installed one: nuclr-table1, nuclr-table1-small, nuclr-figure4, zeta0, "
    "fastclip, emc2-figure5, dcl-figure3, hcl-figure2. docs/evaluation.md describes it.",
    "Hyperparameters are chosen on the validation data with the first seed, never on the test sets. Errors are standard deviations over "
    "seeds; differences from the baseline are paired by seed and have standard errors.",
    "Interrupted trainings are resumed and finished jobs are not repeated, so interruptions change nothing but the times in the table.",
]
EXAMPLES = ["ccstudy table nuclr-table1-small -o table --set train=cc3m --set val=cc3m-val --set coco=coco-test "
            "--set flickr=flickr30k-test --set cifar=cifar10-test", "ccstudy table mine.toml -o out --seeds 1"]


@dataclass
class Row:
    name: str
    options: list[str]
    tune: dict[str, list[Any]] = field(default_factory=dict)


@dataclass
class Test:
    name: str
    run: str
    data: str
    metric: str
    options: list[str] = field(default_factory=list)


@dataclass
class Spec:
    title: str
    about: list[str]
    data: list[str]
    val: str
    knn: str
    metric: str
    seeds: list[int]
    options: list[str]
    baseline: str
    tests: list[Test]
    rows: list[Row]


# ---- the file

_KINDS = {str: "a text", int: "an integer", list: "a list", dict: "a table"}


class _Reader:
    """Reads the fields of a TOML table; fields that remain are reported as unknown."""

    def __init__(self, where: str, values: Any):
        if not isinstance(values, dict):
            raise DataError(f"{where}: must be a table")
        self.where, self.values = where, dict(values)

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        value = self.values.pop(name, default)
        if value is None:
            raise DataError(f"{self.where}: {name} is missing: {_KINDS[kind]}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(f"{self.where}: {name} must be {_KINDS[kind]}")
        return value

    def words(self, name: str, default: list[str] | None = None) -> list[str]:
        values = self.take(name, list, default)
        if not all(isinstance(v, (str, int, float)) and not isinstance(v, bool) for v in values):
            raise DataError(f"{self.where}: {name} must be a list of texts and numbers")
        return [str(v) for v in values]

    def end(self) -> None:
        if self.values:
            raise DataError(f"{self.where}: '{min(self.values)}' is unknown")


def _tune(where: str, values: dict[str, Any]) -> dict[str, list[Any]]:
    for name, choices in values.items():
        if not name.startswith("--") or not isinstance(choices, list) or not choices:
            raise DataError(f"{where}: {name} must be an option of ccstream-train, with a list of values")
    return values


def read_spec(path: Path) -> Spec:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file, and no table of this name is installed") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}") from None
    r = _Reader(str(path), values)
    shared = _tune(f"{path}: tune", r.take("tune", dict, {}))
    rows, tests = [], []
    for name, value in r.take("rows", dict).items():
        one = _Reader(f"{path}: rows.{name}", value)
        rows.append(Row(name, one.words("options"), shared | _tune(one.where, one.take("tune", dict, {}))))
        one.end()
    for name, value in r.take("tests", dict).items():
        one = _Reader(f"{path}: tests.{name}", value)
        tests.append(Test(name, one.take("run", str), one.take("data", str), one.take("metric", str), one.words("options", [])))
        one.end()
    spec = Spec(r.take("title", str, path.stem), r.words("about", []), r.words("data"), r.take("val", str), r.take("knn", str, ""),
                r.take("metric", str, "mean_r1"), r.take("seeds", list), r.words("options", []),
                r.take("baseline", str, rows[0].name if rows else ""), tests, rows)
    r.end()
    if not rows or not tests or not spec.seeds or not all(type(s) is int and s >= 0 for s in spec.seeds):
        raise DataError(f"{path}: requires rows, tests, and integer seeds")
    if spec.baseline not in [row.name for row in rows]:
        raise DataError(f"{path}: baseline '{spec.baseline}' is not a row")
    return spec


def _path(options: Options) -> Path:
    name = options.arguments[0]
    shipped = Path(__file__).parent / f"{name}.toml"
    return shipped if shipped.exists() and not os.path.exists(name) else Path(name)


def stem(options: Options) -> str:
    return _path(options).stem


def check(options: Options) -> None:
    if options.out is None:
        raise UsageError("pass --out DIR, the folder of runs and results")


# ---- child processes


_BUSY = "is being trained by another process"  # ccstream-train's words


def _dies_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:  # which was killed meanwhile
        os._exit(1)


class Children:
    """Runs commands; if one fails, or the user interrupts, the others are stopped."""

    def __init__(self, out: Path, options: Options):
        cpus = len(os.sched_getaffinity(0))
        self.jobs = options.jobs or max(1, cpus // 2)
        self.common = ["--device", options.device, "--threads", str(max(1, cpus // self.jobs))]
        self.folder = out / "jobs"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.took: dict[str, list[float]] = {}  # seconds of the jobs that were made, by their kind
        self._locks: dict[str, threading.Lock] = {}
        self._running: set[subprocess.Popen[bytes]] = set()

    def call(self, name: str, words: list[str]) -> str:
        """Runs a command and returns its stdout. Its stderr goes to jobs/NAME.log."""
        log = self.folder / f"{name}.log"
        parent = os.getpid()
        with log.open("wb") as err, start(words, stdout=subprocess.PIPE, stderr=err,
                                          preexec_fn=lambda: _dies_with(parent)) as child:
            self._running.add(child)
            out = child.communicate()[0]
            self._running.discard(child)
        if child.returncode:
            said = [line for line in log.read_text("utf-8", "replace").splitlines() if "lists every option" not in line]
            last = said[-1] if said else f"killed by signal {-child.returncode}"
            error = StudyError(f"{name}: {last} (the whole output is in {log})")
            error.code = child.returncode if child.returncode > 0 else 70
            raise error
        return out.decode("utf-8", "replace")

    def all(self, acts: list[Callable[[], Any]]) -> list[Any]:
        with ThreadPoolExecutor(self.jobs) as pool:
            futures: list[Future[Any]] = [pool.submit(act) for act in acts]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                failed = next((f for f in futures if f.done() and not f.cancelled() and f.exception()), None)
                return [f.result() for f in ([failed] if failed else futures)]
            except BaseException:
                for f in futures:
                    f.cancel()
                for child in list(self._running):
                    child.terminate()
                raise

    def kept(self, kind: str, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of a job, which runs only once."""
        path = self.folder / f"{name}.json"
        with self._locks.setdefault(name, threading.Lock()):
            if not path.exists():
                begun = time.monotonic()
                pages.write(path, json.dumps(make()).encode())
                self.took.setdefault(kind, []).append(time.monotonic() - begun)
            return json.loads(path.read_text("utf-8"))


def _slug(*words: Any) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", str(w)).strip("_") for w in words)


def _fingerprint(path: str) -> str:
    """A dataset's fingerprint; the name of any other folder or of a remote dataset."""
    try:
        return json.loads((Path(path) / "dataset.json").read_text("utf-8"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        return path


@dataclass
class Training:
    row: Row
    settings: dict[str, Any]
    seed: int
    words: list[str]
    name: str


class Driver:
    def __init__(self, options: Options, progress: Progress):
        self.options, self.progress = options, progress
        path = _path(options)
        self.spec = read_spec(path)
        self.out = Path(options.out)
        given = dict(text.partition("=")[::2] for text in options.set)
        names = [n for n in (*self.spec.data, self.spec.val, self.spec.knn, *(t.data for t in self.spec.tests)) if n]
        unknown = set(given) - set(names)
        if unknown:
            raise UsageError(f"--set {min(unknown)}: {path} has no data of this name; it has {', '.join(sorted(set(names)))}")
        self.place = {name: given.get(name) or name for name in names}
        for name, place in self.place.items():
            if "://" not in place and not os.path.isdir(place):
                raise NotFoundError(f"{place}: no such folder; pass --set {name}=DIR")
        only = {n for text in options.rows for n in text.split(",") if n}
        if only - {row.name for row in self.spec.rows}:
            raise UsageError(f"--rows {min(only - {row.name for row in self.spec.rows})}: not a row of {path}")
        self.rows = [row for row in self.spec.rows if not only or row.name in only]
        self.seeds = self.spec.seeds[:options.seeds or None]
        self.children = Children(self.out, options)
        self.count = self.total = 0
        self.left: dict[str, int] = {}  # jobs by their kind

    def training(self, row: Row, settings: dict[str, Any], seed: int) -> Training:
        watched = (["--knn", f"{self.place[self.spec.knn]}:{self.place[self.spec.val]}"] if self.spec.knn else
                   ["--val", self.place[self.spec.val]])
        words = ["ccstream-train", *(w for d in self.spec.data for w in ("--data", self.place[d])), *watched,
                 *self.spec.options, *row.options,
                 *(str(w) for pair in settings.items() for w in pair), "--seed", str(seed)]
        prints = [_fingerprint(self.place[n]) for n in (*self.spec.data, self.spec.val, self.spec.knn) if n]
        digest = hashlib.sha256(json.dumps([words, prints]).encode()).hexdigest()[:8]
        return Training(row, settings, seed, words, _slug(row.name, f"s{seed}", digest))

    def train(self, t: Training) -> dict[str, Any]:
        run = self.out / "runs" / t.name

        def make() -> dict[str, Any]:
            if (run / "config.json").exists():
                words = ["ccstream-train", "--resume", str(run)]
            else:
                shutil.rmtree(run, ignore_errors=True)
                run.parent.mkdir(exist_ok=True)
                words = [*t.words, "--out", str(run)]
            for pause_s in (1, 2, 4, 8, 0):
                try:
                    self.children.call(t.name, [*words, "-q", *self.children.common])
                    break
                except StudyError as error:
                    if _BUSY not in str(error) or pause_s == 0:
                        raise
                    time.sleep(pause_s)  # a child of a driver that was killed just now is about to end
            return _read_run(run, self.spec.metric)
        result = self.children.kept("train", t.name, make)
        self.say("train", f"{t.row.name}, seed {t.seed}{''.join(f', {k} {v}' for k, v in t.settings.items())}: {result['value']:.2f}")
        return result

    def test(self, t: Training, test: Test) -> float:
        run, place = str(self.out / "runs" / t.name), self.place[test.data]
        learns = ["--train", self.place[self.spec.knn]] if self.spec.knn and test.run in ("knn", "linear", "mean") else []
        digest = hashlib.sha256(json.dumps([test.run, test.options, _fingerprint(place)]).encode()).hexdigest()[:8]
        name = f"{t.name}-{_slug(test.run, digest)}"  # tests of one command share it

        def make() -> dict[str, Any]:
            where = ["--sets", place, "-o", str(self.out / "suites" / name)] if test.run == "suite" else [*learns, "--data", place]
            text = self.children.call(name, ["ccstream-eval", test.run, run, *where, "--json", *test.options,
                                             *self.children.common])
            return json.loads(text)
        value = _metric(self.children.kept(test.run, name, make), test)
        self.say(test.run, f"{t.row.name}, seed {t.seed}, {test.name}: {value:.2f}")
        return value

    def say(self, kind: str, text: str) -> None:
        self.count += 1
        self.left[kind] -= 1
        if not self.options.quiet:
            took = {k: statistics.fmean(seconds) for k, seconds in self.children.took.items()}
            left = sum(n * took.get(k, 0.0) for k, n in self.left.items()) / self.children.jobs
            about = f", about {self.progress.duration(left)} left" if took else ""  # else all were there
            print(f"{self.count} of {self.total}  {text}{about}", file=sys.stderr)

    def run(self) -> dict[str, Any]:
        grids = {row.name: [dict(zip(row.tune, values)) for values in itertools.product(*row.tune.values())]
                 for row in self.rows}
        tuned = [self.training(row, s, self.seeds[0]) for row in self.rows for s in grids[row.name] if len(grids[row.name]) > 1]
        runs_count = len(self.rows) * len(self.seeds)
        self.left = {"train": len(tuned) + runs_count}
        for test in self.spec.tests:
            self.left[test.run] = self.left.get(test.run, 0) + runs_count
        self.total = sum(self.left.values())
        values = self.children.all([lambda t=t: self.train(t) for t in tuned])
        tried: dict[str, list[Any]] = {row.name: [] for row in self.rows}
        for t, result in zip(tuned, values):
            tried[t.row.name].append({"settings": t.settings, "value": result["value"]})
        chosen = {name: max(all_, key=lambda v: v["value"])["settings"] if all_ else grids[name][0]
                  for name, all_ in tried.items()}
        runs = [self.training(row, chosen[row.name], seed) for row in self.rows for seed in self.seeds]
        trained = self.children.all([lambda t=t: self.train(t) for t in runs])
        tests = self.children.all([lambda t=t, test=test: self.test(t, test) for t in runs for test in self.spec.tests])
        each = iter(tests)
        rows: dict[str, Any] = {row.name: {"settings": chosen[row.name], "tried": tried[row.name], "runs": []}
                                for row in self.rows}
        for t, result in zip(runs, trained):
            rows[t.row.name]["runs"].append({
                "seed": t.seed, "run": t.name, "command": " ".join(t.words), **result,
                "tests": {test.name: next(each) for test in self.spec.tests}})
        return {"title": self.spec.title, "about": self.spec.about, "metric": self.spec.metric, "seeds": self.seeds,
                "baseline": self.spec.baseline, "tests": [vars(t) for t in self.spec.tests], "rows": rows,
                "data": {name: {"folder": place, "fingerprint": _fingerprint(place)} for name, place in self.place.items()}}


def _read_run(run: Path, metric: str) -> dict[str, Any]:
    """The validation metric over epochs and at the end, the time, and the checkpoint's hash."""
    log = RunLog(str(run))
    if not log.is_finished():  # by a signal, which ccstream-train obeys with exit code 0
        raise StudyError(f"{run} was stopped at step {log.last_step:.0f}; run the same command again to continue")
    points = log.evaluations.get(metric, Points())
    if not points.x:
        raise DataError(f"{run}: metrics.jsonl has no '{metric}' of a validation")
    digest = hashlib.sha256((run / "last").read_bytes()).hexdigest()[:16]
    return {"value": points.last(), "curve": list(zip(points.x, points.y)), "steps": int(log.last_step),
            "steps_per_epoch": log.steps_per_epoch(), "seconds": round(sum(log.series["seconds"].y), 1), "checkpoint": digest}


def _metric(result: dict[str, Any], test: Test) -> float:
    """The metric in percent."""
    value = result.get(test.metric)
    if test.run == "suite":
        named = {r["dataset"]: r["metrics"]["main_metric"] for r in result["sets"]}
        named |= {a["name"]: a["value"] for a in result["averages"]}
        value = named.get(test.metric)
        value = None if value is None else 100 * value
    value = value.get("top1") if isinstance(value, dict) else value  # of knn, whose classifiers have names
    if not isinstance(value, (int, float)):
        raise DataError(f"tests.{test.name}: the output of ccstream-eval {test.run} has no number '{test.metric}'")
    return float(value)


def run(options: Options, progress: Progress) -> dict[str, Any]:
    return Driver(options, progress).run()


# ---- what is shown


def _columns(result: dict[str, Any]) -> list[str]:
    return [t["name"] for t in result["tests"]] + (["mean"] if len(result["tests"]) > 1 and result.get("with_mean", True) else [])


def _values(row: dict[str, Any], column: str) -> dict[int, float]:
    """The values by seed."""
    return {r["seed"]: r["tests"][column] if column in r["tests"] else statistics.fmean(r["tests"].values())
            for r in row["runs"]}


def _spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{deviation}"


def table(result: dict[str, Any]) -> Table:
    names = _columns(result)
    return Table([Column(n, "s") for n in ["", *names]],
                 [[name, *(_spread(list(_values(row, c).values())) for c in names)] for name, row in result["rows"].items()])


def _difference(row: dict[str, Any], base: dict[str, Any], column: str) -> str:
    """Paired difference over the seeds that both have."""
    own, other = _values(row, column), _values(base, column)
    d = [own[seed] - other[seed] for seed in own if seed in other]
    error = f" ± {statistics.stdev(d) / len(d) ** 0.5:.2f}" if len(d) > 1 else ""
    return f"{statistics.fmean(d):+.2f}{error}" if d else "no seed in common"


def differences(result: dict[str, Any]) -> Section:
    names, base = _columns(result), result["rows"].get(result["baseline"])
    rows = [[name, *(_difference(row, base, c) for c in names)]
            for name, row in result["rows"].items() if base and name != result["baseline"]]
    return Section(f"Differences to {result['baseline']}",
                   ["Paired by seed; the error is the standard error of the mean difference."] if rows else [],
                   [table_item("", Table([Column(n, "s") for n in ["", *names]], rows))] if rows else [])


BANDS = "Lines: means over seeds; bands: minimum to maximum."


def curves(title: str, y: dict[str, Any], rows: dict[str, list[list[Any]]], epochs: bool) -> Any:
    """rows: the curve of each seed, [x, value] at every evaluation; empty if a row has none."""
    lines = []
    for colour, (name, each) in enumerate(rows.items()):
        if not each:
            continue
        x = [at for at, _ in each[0]]
        same = [[v for _, v in curve] for curve in each if len(curve) == len(x)]
        more = {"low": [min(v) for v in zip(*same)], "high": [max(v) for v in zip(*same)]} if len(same) > 1 else {}
        lines.append(series(name, x, [statistics.fmean(v) for v in zip(*same)], colour=colour % 8 + 1, **more))
    return figure("lines", title, axis("epoch" if epochs else "step"), y, lines)


def _over_epochs(run: dict[str, Any]) -> list[Any]:
    return [[step / (run.get("steps_per_epoch") or 1), value] for step, value in run["curve"]]


def page(result: dict[str, Any], options: Options) -> list[Section]:
    seeds = len(result["seeds"])
    epochs = all(r.get("steps_per_epoch") for row in result["rows"].values() for r in row["runs"])
    tried = Table([Column("row", "s"), Column("settings", "s"), Column("validation", ".2f"), Column("", "s")],
                  [[name, " ".join(f"{k} {v}" for k, v in t["settings"].items()), t["value"],
                    "chosen" if t["settings"] == row["settings"] else ""] for name, row in result["rows"].items()
                   for t in row["tried"]])
    runs = Table([Column("row", "s"), Column("seed", "d"), Column("validation", ".2f"),
                  *(Column(t["name"], ".2f") for t in result["tests"]), Column("seconds", ".0f"), Column("checkpoint", "s"),
                  Column("command", "s")],
                 [[name, r["seed"], r["value"], *(r["tests"][t["name"]] for t in result["tests"]), r["seconds"],
                   r["checkpoint"], r["command"]] for name, row in result["rows"].items() for r in row["runs"]])
    data = Table([Column("data", "s"), Column("folder", "s"), Column("fingerprint", "s")],
                 [[name, d["folder"], d["fingerprint"]] for name, d in result["data"].items()])
    what = "Mean and standard deviation over seeds" if seeds > 1 else "One seed, so no standard deviations"
    return [Section("", [*result["about"], f"{what}; percent."]),
            differences(result),
            Section("Curves", [BANDS], [curves("Validation while training", axis(LABELS.get(result["metric"], result["metric"]), "%"), {
                name: [_over_epochs(r) for r in row["runs"]] for name, row in result["rows"].items()}, epochs)]),
            Section("Chosen settings", ["Chosen by validation with the first seed; the test sets were not used."],
                    [table_item("", tried)] if tried.rows else []),
            Section("Runs", [], [table_item("", runs), table_item("", data)])]
