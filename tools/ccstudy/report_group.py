"""`ccstream-report --group`: existing runs in the form of `ccstudy table`: one row for runs that differ only in --seed."""

from __future__ import annotations

import json
import math
from typing import Any

from . import page as pages
from . import table
from .run_log import EVALUATIONS, LABELS, RunLog, member, number
from .study import Column, DataError, Section, Table, UsageError, figure, axis, series, table_item

# Options of ccstream-train that change where a run is, how it is watched and how fast it is, but not what it learns.
_NO_SETTINGS = {
    "attach", "autotune", "cache", "cache-size", "checkpoint-every", "checkpoint-seconds", "config", "cuda-graph", "dry-run",
    "endpoint", "instance-metadata", "allow-private", "io-engine", "json", "keep-checkpoints", "list-devices", "loader-threads",
    "on-full-disk", "out", "plan-cache", "preset", "progress", "quiet", "rank-timeout", "remap-state", "report", "resume", "seed",
    "state-memory", "threads", "transport"}


def _settings(run: RunLog) -> dict[str, Any]:
    options = member(run.config, "options")
    if not isinstance(options, dict):
        raise DataError(f"{run.path}/config.json has no options; --group compares them")
    return {name: value for name, value in options.items() if name not in _NO_SETTINGS}


def _seed(run: RunLog) -> int:
    seed = number(run.option("seed"))
    if seed is None:
        raise DataError(f"{run.path}/config.json has no seed")
    return int(seed)


def _shown(value: Any) -> str:
    return pages.redact(value if isinstance(value, str) else json.dumps(value))


def _grouped(runs: list[RunLog]) -> list[list[RunLog]]:
    groups: dict[str, list[RunLog]] = {}
    for run in runs:
        group = groups.setdefault(json.dumps(_settings(run), sort_keys=True), [])
        twin = next((r for r in group if _seed(r) == _seed(run)), None)
        if twin is not None:
            raise UsageError(f"{twin.path} and {run.path} have the same settings and the same seed {_seed(run)}; pass only one of them")
        group.append(run)
    return list(groups.values())


def _differing(groups: list[list[RunLog]]) -> list[str]:
    """Options with several values, the loss first."""
    every = [_settings(g[0]) for g in groups]
    names = dict.fromkeys(name for s in every for name in s)
    differ = [n for n in names if any(s.get(n) != every[0].get(n) for s in every)]
    return sorted(differ, key=lambda n: n != "loss")


def _row_names(groups: list[list[RunLog]], differ: list[str]) -> list[str]:
    names: list[str] = []
    for g in groups:
        words = [_shown(g[0].option(n)) if n == "loss" else f"{n} {_shown(g[0].option(n))}" for n in differ[:4]]
        name = ", ".join(words) or _shown(g[0].option("loss"))
        names.append(name if name not in names else f"{name} ({g[0].name})")
    return names


def _result(runs: list[RunLog]) -> dict[str, Any]:
    """The JSON of `ccstudy table`, as far as runs record it."""
    groups = _grouped(runs)
    differ = _differing(groups)
    tests = [name for name in EVALUATIONS if all(r.series[name].x for r in runs)]
    if not tests:
        raise DataError("the runs have no evaluation in common; train all with the same of --val, --zeroshot, --knn and --probe")
    rows: dict[str, Any] = {}
    for name, group in zip(_row_names(groups, differ), groups):
        rows[name] = {"settings": {n: group[0].option(n) for n in differ}, "runs": [{
            "seed": _seed(r), "run": r.path, "steps": int(r.last_step), "finished": r.is_finished(),
            "steps_per_epoch": r.steps_per_epoch(), "seconds": round(sum(r.series["seconds"].y), 3),
            "tests": {LABELS[t]: r.last(t) for t in tests},
            "curves": {LABELS[t]: list(zip(r.series[t].x, r.series[t].y)) for t in tests},
            "losses": list(zip(*_thinned(r.series["loss"].x, r.series["loss"].y)))} for r in group]}
    return {"title": f"{len(runs)} runs", "baseline": next(iter(rows)), "with_mean": False,
            "seeds": sorted({_seed(r) for r in runs}), "tests": [{"name": LABELS[t]} for t in tests], "rows": rows}


def _thinned(x: list[float], y: list[float], most: int = 120) -> tuple[list[float], list[float]]:
    """Means of equal parts, placed at their ends."""
    ends = [i * len(x) // min(most, len(x)) for i in range(min(most, len(x)) + 1)] if x else []
    return [x[b - 1] for b in ends[1:]], [math.fsum(y[a:b]) / (b - a) for a, b in zip(ends, ends[1:])]


def _scaled(points: list[Any], run: dict[str, Any], epochs: bool) -> list[Any]:
    return [[x / run["steps_per_epoch"] if epochs else x, y] for x, y in points]


def _sections(result: dict[str, Any]) -> list[Section]:
    rows = result["rows"]
    runs = [(name, r) for name, row in rows.items() for r in row["runs"]]
    epochs = all(r["steps_per_epoch"] for _, r in runs)
    lines = [table.curves(t["name"][0].upper() + t["name"][1:], axis(t["name"], "%"), {
        name: [_scaled(r["curves"][t["name"]], r, epochs) for r in row["runs"]] for name, row in rows.items()}, epochs)
        for t in result["tests"]]
    losses = {name: [_scaled(r["losses"], r, epochs) for r in row["runs"] if r["losses"]] for name, row in rows.items()}
    lines += [table.curves(f"Batch loss of {name}", axis("loss"), {other: each if other == name else [] for other in rows}, epochs)
              for name, each in losses.items() if each]
    times = [series("", list(rows), [math.fsum(r["seconds"] for r in row["runs"]) / len(row["runs"]) for row in rows.values()])]
    stopped = [f"{r['run']} was stopped at step {r['steps']}; its last evaluation counts." for _, r in runs if not r["finished"]]
    settings = sorted({n for row in rows.values() for n in row["settings"]}, key=lambda n: n != "loss")
    listed = [[name, r["seed"], *r["tests"].values(), r["steps"], r["seconds"], pages.redact(r["run"])] for name, r in runs]
    return [Section("Stopped runs", stopped),
            table.differences(result),
            Section("Curves", [table.BANDS], lines),
            Section("Settings that differ", [], [table_item("", Table(
                [Column(n, "s") for n in ["", *settings]],
                [[name, *(_shown(row["settings"].get(n)) for n in settings)] for name, row in rows.items()]))]
                if settings else []),
            Section("Times", [], [figure("bars", "Time of a run", axis(""), axis("time", "s"), times,
                                         "Mean over seeds, with evaluations and checkpoints, as the machine was then.")]),
            Section("Runs", [], [table_item("", Table(
                [Column("row", "s"), Column("seed", "d"), *(Column(t["name"], ".2f") for t in result["tests"]),
                 Column("steps", "d"), Column("seconds", ".0f"), Column("run", "s")], listed))])]


def make(runs: list[RunLog], program: str) -> tuple[dict[str, Any], bytes, Table]:
    """The numbers, the page, and its summary."""
    result = _result(runs)
    sections = _sections(result)
    plain = pages.plain_figure(sections[2].items[0])
    summary = table.table(result)
    what = "Mean and standard deviation over seeds" if len(result["seeds"]) > 1 else "One seed, so no standard deviations;"
    return result, pages.page_html(program, result["title"], summary, [s for s in sections if s.items or s.text], plain,
                                   f"{what} of the last evaluation, in percent"), summary
