"""`ccstream-report`: a page about one or several runs of ccstream-train. Images and captions of samples come from `ccdump`.

    RUN/*.json* --run_log--> figures, tables                                             } page.html
    ids in RUN/metrics.jsonl, `ccdump popularity` --> `ccdump cat --thumbnail` --> cards }

Every quantity has one figure with a line for each run, if any run has it. Long lines are reduced to means of equal
parts with a min-max band, so the page stays small.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import dynamics, page as pages, report_state
from .cards import CAPTION_CHARACTERS, Cards, caption_of, images
from .report_state import named
from .run_log import SERIES, Points, RunLog, digits, member, name_apart, number
from .study import (Column as TableColumn, Item, Option, Options, Section, StudyError, Table,
                    UsageError, axis, found, start, table_item)

PURPOSE = "writes an HTML report of one or more runs"
USAGE = ["[-o FILE] RUN...", "--group [-o FILE] RUN...", "--follow [--json] RUN", "[--follow] --tensorboard DIR|--wandb PROJECT RUN"]
ARGUMENTS = (1, 256)
OPTIONS = [
    Option("out", "o", metavar="FILE", help="output page [default: report.html in the first RUN; with --group, group.html in the current "
                                            "folder]"),
    Option("group", kind=bool, help="combine runs that differ only in --seed into one row: mean and standard deviation over seeds, paired "
                                    "differences to the first RUN's row, curves with bands"),
    Option("force", kind=bool, help="replace an existing file that this command did not write"),
    Option("probe-pairs", kind=int, metavar="N", default=0, least=0, most=20000, help="runs of nuclr: encode N training pairs with each "
        "kept checkpoint, and compare zeta with the minimiser of NUCLR's eq. (8) over them; the numbers are kept in RUN/probe.jsonl and "
        "shown on later pages; 0: off"),
    Option("json", kind=bool, help="print the last numbers of each run as JSON; with --group, all numbers of the groups"),
    Option("quiet", "q", bool, help="do not print the path of the page; with --follow, no progress"),
    Option("follow", kind=bool, help="show the progress of one RUN, which another process trains on this host or in a shared folder, "
                                     "until it ends, and write no page; with --json, print the numbers of each step as one JSON object"),
    Option("tensorboard", metavar="DIR", group="Other viewers", help="write the numbers, histograms and retrieval examples of one RUN to "
        "this folder as TensorBoard event files, and no page; requires the Python package tensorboard"),
    Option("wandb", metavar="PROJECT", group="Other viewers", help="log the numbers and histograms of one RUN to Weights & Biases, and "
        "write no page; requires the Python package wandb"),
    Option("data", "d", list, metavar="LOCATION", group="Remote datasets", help="a remote dataset of RUN, whose server may "
           "be contacted; what RUN itself lists is not trusted"),
    Option("trust", kind=bool, group="Remote datasets", help="RUN is your own: contact the servers that its config.json lists, with "
           "its settings, and skip the check that every number of its checkpoint is finite"),
    Option("endpoint", metavar="URL", group="Remote datasets", help="server of s3:// locations [default: AWS_ENDPOINT_URL_S3, "
           "the profile, or Amazon's]"),
    Option("instance-metadata", kind=bool, group="Remote datasets", help="as a last resort, get S3 keys from the instance "
           "metadata service"),
    Option("allow-private", kind=bool, group="Remote datasets", help="names and redirects may lead to private addresses"),
    Option("cache", metavar="DIR", group="Remote datasets", help="cache remote reads on the local disk"),
    Option("cache-size", metavar="SIZE", group="Remote datasets", help="limit of --cache, such as 64GiB"),
]
NOTES = [
    "RUN is the directory of a finished, running or interrupted run. Curves of up to 8 runs share the same axes.",
    "The page is self-contained. It shows losses, recall, learning rates, gradient norm, speed and memory over steps; a time breakdown; "
    "per-sample state with histograms; command, machine, datasets and options. For a single run it also shows the retrieval examples of "
    "the last evaluation, and the samples with the largest and smallest zeta or u. The numbers of each figure can be shown as a table "
    "below it.",
    "'ccstream-train' writes RUN/report.html when it ends; with --report, also at every checkpoint and evaluation.",
    "Images are read from the run's datasets. Remote datasets are read only if you name them with --data, or, for s3://, if --endpoint or "
    "your AWS profile names their server. A run may come from somebody else, so its recorded endpoint, cache and keys are not used "
    "without --trust.",
    "--follow stops when RUN ends or on Ctrl-C; the exit code is 65 if RUN stopped before its last step, else 0. --tensorboard and "
    "--wandb write the existing steps, with --follow also new ones; repeated calls do not write a step twice.",
    "For more images see 'ccdump popularity --html' and 'ccstream-eval retrieval --html'.",
]
EXAMPLES = ["ccstream-report -o report.html runs/a", "ccstream-report -o losses.html runs/nuclr runs/sogclr runs/clip",
            "ccstream-report --group -o table.html runs/*", "ccstream-report --follow --tensorboard board runs/a"]

_MAX_RUNS = 8  # in one figure
_LINE_POINTS = 240
_IMAGE_PX = 128
_IMAGES_UNTIL_BYTES = 900 << 10  # of a page
_EXTREMES = 6


# ---- figures over steps


def _line(name: str, points: Points, scale: float, colour: int, most: int, band: bool, dashed: bool = False) -> Item:
    total = len(points.x)
    count = min(total, most)
    parts = [[y * scale for y in points.y[i * total // count:(i + 1) * total // count]] for i in range(count)]
    out: Item = {"name": name, "x": [points.x[(i + 1) * total // count - 1] for i in range(count)],
                 "y": digits(math.fsum(part) / len(part) for part in parts), "colour": colour}
    if band and count < total:
        out |= {"low": digits(map(min, parts)), "high": digits(map(max, parts))}
    return out | ({"dashed": True} if dashed else {})


def _also(run: RunLog, steps: list[float]) -> dict[str, list[float]]:
    """Epochs, samples and seconds of training (without evaluations) at these steps. With several ranks or resumed sessions the
    seconds are those of rank 0; the unrecorded time of a killed session is missing."""
    per_epoch, batch = number(member(run.launch, "steps_per_epoch")), number(member(run.launch, "batch"))
    every, evaluation = run.series["seconds"], run.series["evaluation_s"]
    if not per_epoch or per_epoch < 0 or batch is None or not every.x or len(every.x) != len(evaluation.x):
        return {}
    seconds, total, k = [], 0.0, 0
    for step in steps:
        while k < len(every.x) and every.x[k] <= step:
            total += every.y[k] - evaluation.y[k]
            k += 1
        seconds.append(total)
    return {"epoch": digits(s / per_epoch for s in steps), "samples": digits(s * batch for s in steps),
            "training time, s": digits(seconds)}


class _Drawer:
    """Adds figures of the runs to a section."""

    def __init__(self, runs: list[RunLog]):
        self.runs = runs
        self.most = 2 * _LINE_POINTS // len(runs) if len(runs) > 2 else _LINE_POINTS  # many share the room that two have
        self.band = len(runs) <= 2  # more cover each other

    def line(self, name: str, points: Points, scale: float, colour: int, dashed: bool = False) -> list[Item]:
        """None if there are no points."""
        return [_line(name, points, scale, colour, self.most, self.band, dashed)] if points.x else []

    def run_line(self, run: RunLog, label: str, name: str, scale: float, colour: int) -> list[Item]:
        lines = self.line(label, run.series[name], scale, colour)
        evaluated = any(name in SERIES[where] for where in ("retrieval", "zeroshot", "features"))
        for line in lines if evaluated else []:
            more = _also(run, line["x"])
            line |= {"also": more} if more else {}
        return lines

    def lines(self, s: Section, title: str, y: str, unit: str, series: list[Item], log: bool = False) -> None:
        if series:
            s.items.append({"kind": "lines", "title": title, "x": axis("step"), "series": series,
                            "y": axis(y, unit, "log" if log else "linear")})

    def runs_of(self, s: Section, name: str, title: str, y: str, unit: str = "", scale: float = 1.0) -> None:
        """One line per run."""
        values = [v for r in self.runs for v in r.series[name].y]
        log = name == "grad_norm" and bool(values) and min(values) > 0 and max(values) > 10 * min(values)
        series = [line for i, r in enumerate(self.runs) for line in self.run_line(r, r.name, name, scale, i + 1)]
        self.lines(s, title, y, unit, series, log)

    def changes(self, s: Section, name: str, title: str, y: str) -> None:
        """The same for a mostly constant quantity: only if it changes, or differs between runs."""
        if len({v for r in self.runs for v in r.series[name].y}) > 1:
            self.runs_of(s, name, title, y)

    def together(self, s: Section, names: dict[str, str], title: str, y: str, unit: str, scale: float = 1.0) -> None:
        """Several lines of one run in one figure; for several runs one figure per line."""
        if len(self.runs) > 1:
            for name, label in names.items():
                self.runs_of(s, name, f"{title}: {label}", y, unit, scale)
            return
        series = [line for i, (name, label) in enumerate(names.items())
                  for line in self.run_line(self.runs[0], label, name, scale, i + 1)]
        self.lines(s, title, y, unit, series)

    def losses(self, s: Section, name: str, title: str) -> None:
        """Losses of several runs share a figure only if lower means better across them."""
        depends = ["task", "loss", "variant", "tau", "positives"] + (["batch-size"] if name == "loss" else [])
        settings = [", ".join(f"{o} {v:g}" if isinstance(v, float) else f"{o} {v}" for o in depends
                              if isinstance(v := r.option(o), (str, int, float))) for r in self.runs if r.series[name].x]
        other = next((t for t in settings if t != settings[0]), None)
        if other is None:
            self.runs_of(s, name, title, "loss")
            return
        s.items.append(_note(f"{title}: a figure for each run, because these are different losses: {settings[0]}; {other}."))
        for i, r in enumerate(self.runs):
            self.lines(s, f"{title} of {r.name}", "loss", "", self.line(r.name, r.series[name], 1.0, i + 1))


def _note(text: str) -> Item:
    return {"kind": "text", "text": text, "small": True}


def _faults(runs: list[RunLog]) -> list[Item]:
    """Notes for readers of the figures if a log is incomplete."""
    notes = []
    for r in runs:
        if r.unread:
            one = r.unread == 1
            last = ", the last: the run was killed." if r.first_unread == r.lines else "."
            notes.append(f"{r.unread} line{'' if one else 's'} of metrics.jsonl of {r.name} cannot be read"
                         f"{': line' if one else '; the first is line'} {r.first_unread}{last}")
        step, why = number(member(r.nonfinite, "step")), member(r.nonfinite, "why")
        if step is not None:
            notes.append(f"A number was not finite in step {step:.0f} of {r.name}: {why if isinstance(why, str) else ''} "
                         "(nonfinite.json in its directory has more).")
    return [_note(n) for n in notes]


def _training(d: _Drawer) -> list[Section]:
    s = Section("Training", items=_faults(d.runs))
    d.losses(s, "loss", "Batch loss")
    d.losses(s, "global_loss", f"Global contrastive loss at tau {d.runs[0].last('tau'):.3g}, estimated from the per-sample state")
    d.together(s, {"mean_r1": "R@1", "mean_r5": "R@5", "mean_r10": "R@10"}, "Retrieval, mean of both directions", "recall", "%")
    d.together(s, {"top1": "top 1", "top5": "top 5"}, "Zero-shot classification", "accuracy", "%")
    d.together(s, {"nn1": "nearest neighbour", "nn10": "ten nearest", "knn": "k-NN", "probe": "linear probe"},
               "Classification by features", "accuracy", "%")
    d.runs_of(s, "lr", "Learning rate", "learning rate")
    d.changes(s, "zeta_lr", "Learning rate of zeta", "learning rate")
    d.changes(s, "tau", "Temperature", "tau")
    d.runs_of(s, "grad_norm", "Gradient norm, before clipping", "norm")
    speed = Section("Speed and memory")
    d.runs_of(speed, "pairs_per_s", "Throughput", "pairs per second")
    d.changes(speed, "replaced", "Damaged samples that were replaced", "samples")
    d.runs_of(speed, "peak_rss_bytes", "Peak memory of the process", "memory", "GiB", 1 / (1 << 30))
    d.runs_of(speed, "device_bytes", "Device memory", "memory", "GiB", 1 / (1 << 30))
    return [s, *_stages(d), speed]


# ---- where the time went, from one checkpoint to the next, and what the loader's threads did meanwhile

_STAGES = {"step_s": "steps", "load_s": "waiting for batches", "ranks_s": "waiting for ranks", "evaluation_s": "evaluation",
           "checkpoint_s": "checkpoints"}


def _stage_percent(r: RunLog, begin: int, end: int) -> list[float]:
    """Percentages of the time of lines [begin, end); the last stage is the remainder."""
    whole = sum(r.series["seconds"].y[begin:end])
    parts = [sum(r.series[name].y[begin:end]) for name in _STAGES]
    return [100 * max(part, 0.0) / whole if whole > 0 else 0.0 for part in [*parts, whole - sum(parts)]]


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return (f"{seconds:.1f}s" if seconds < 59.95 else f"{whole // 60}m{whole % 60:02d}s" if whole < 3600
            else f"{whole // 3600}h{whole // 60 % 60:02d}m")


def _stage_shares(r: RunLog) -> Item:
    """Fractions of the time from one line to the next, stacked."""
    every = r.series["seconds"]
    count = min(len(every.x), _LINE_POINTS // 2)
    ends = [i * len(every.x) // count for i in range(count + 1)]
    shares = [_stage_percent(r, a, b) for a, b in zip(ends, ends[1:])]
    x = [every.x[e - 1] if e > 0 else 0.0 for pair in zip(ends, ends[1:]) for e in pair]
    series = [{"name": name, "x": x, "y": digits(s[k] for s in shares for _ in range(2)), "colour": k + 1}
              for k, name in enumerate([*_STAGES.values(), "other"]) if any(s[k] >= 0.05 for s in shares)]
    return {"kind": "area", "title": "Where the time went, between checkpoints", "x": axis("step"), "y": axis("time", "%"),
            "series": series}


def _stages(d: _Drawer) -> list[Section]:
    """None if no run has recorded stages."""
    if not any(r.series["seconds"].x for r in d.runs):
        return []
    rows = []
    for r in d.runs:
        count = len(r.series["seconds"].x)
        shares: list[Any] = _stage_percent(r, 0, count) if count > 0 else [""] * (len(_STAGES) + 1)
        rows.append([_duration(sum(r.series["seconds"].y)) if count > 0 else "", *shares])
    columns = [TableColumn("time", "s"), *(TableColumn(name, ".1f") for name in [*_STAGES.values(), "other"])]
    whole = table_item("Total time, and its parts in percent", named(d.runs, columns, rows))
    s = Section("Time breakdown", items=[whole | {"columns": [{"name": c["name"]} for c in whole["columns"]]}])
    if len(d.runs) == 1:
        s.items.append(_stage_shares(d.runs[0]))
    d.together(s, {"read_wait_fraction": "reading", "decode_wait_fraction": "decoding",
                   "deliver_wait_fraction": "assembling batches"}, "Loader threads waiting for other stages", "their time", "%",
               100)
    d.runs_of(s, "stall_fraction", "Waiting for batches, in every step", "step time", "%", 100)
    d.runs_of(s, "wait_fraction", "Waiting for other ranks, in every step", "step time", "%", 100)
    s.items.append(_note("The bottleneck of the loader is the stage whose threads wait least; it limits the run only if the "
                         "run waits for batches."))
    return [s]


# ---- tables


def _of(at: float, end: Any) -> str:
    """"3 of 30"; not all logs record the end."""
    last = number(end)
    return "" if not math.isfinite(at) else f"{at:.0f} of {last:.0f}" if last is not None else f"{at:.0f}"


def _summary(runs: list[RunLog]) -> Table:
    rows = []
    for r in runs:
        task, loss, time = r.option("task"), r.option("loss"), r.last_time
        speed = sorted(r.series["pairs_per_s"].y)
        rows.append(["block" if task == "blocks" else loss if isinstance(loss, str) else "",
                     _of(r.last_step, member(r.launch, "total_steps")), _of(1 + r.last("epoch"), r.option("epochs")),
                     r.last("loss"), r.last("global_loss"), r.last("mean_r1"), max(r.series["mean_r1"].y, default=math.nan),
                     speed[len(speed) // 2] if speed else math.nan, r.last("peak_rss_bytes") / (1 << 30),
                     f"{time[:10]} {time[11:19]} UTC" if len(time) > 11 else ""])  # to the second
    names = {"loss function": "s", "step": "s", "epoch": "s", "batch loss": ".4f", "global loss": ".4f", "R@1, %": ".2f",
             "best R@1, %": ".2f", "pairs/s, median": ".0f", "memory, GiB": ".2f", "last entry": "s"}
    return named(runs, [TableColumn(name, form) for name, form in names.items()], rows)


def _redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {pages.redact(k): _redacted(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_redacted(v) for v in value]
    return pages.redact(value) if isinstance(value, str) else value


def _origins(runs: list[RunLog]) -> Section:
    """How the runs were started: command, machine, datasets, options."""
    return Section("Run configurations" if len(runs) > 1 else "Run configuration", items=[
        {"kind": "run", "title": pages.redact(r.path), "launch": _redacted(r.launch),
         "options": _redacted(member(r.config, "options"))} for r in runs])


# ---- samples


class _Samples:
    """Samples of a run's datasets, read by ccdump. Servers that only the run names are not contacted unless the run is
    trusted."""

    def __init__(self, options: Options, run: RunLog, room: int):
        self.card = Cards(room).card
        self.words = []
        own: dict[str, Any] = {"data": [], "endpoint": None, "cache": None, "cache-size": None, "instance-metadata": None, "allow-private": None}
        if options.trust:
            own |= {name: run.option(name) for name in own}
        for name in ("endpoint", "cache", "cache-size"):
            value = getattr(options, name.replace("-", "_")) or own[name]
            self.words += [f"--{name}", str(value)] if isinstance(value, (str, int)) else []
        for name in ("instance-metadata", "allow-private"):
            self.words += [f"--{name}"] if getattr(options, name.replace("-", "_")) or own[name] is True else []
        named = [*options.data, *_texts(own["data"]), *([run.option("val")] if options.trust else [])]
        for place in ["none", *(n for n in named if isinstance(n, str) and n)]:
            self.words += ["--only-data", place]

    def ask(self, words: list[str], arguments: list[str]) -> list[dict[str, Any]]:
        """The lines of JSON that a ccdump command prints."""
        with start(["ccdump", *words, *self.words, "--", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                   stdin=subprocess.DEVNULL) as child:
            out, err = child.communicate()
        if child.returncode:
            said = [line for line in err.decode("utf-8", "replace").splitlines() if "lists every option" not in line]
            name = f"ccdump {words[0]}: "
            raise StudyError(said[-1].removeprefix(name) if said else f"{name}exit code {child.returncode}")
        return [json.loads(line) for line in out.splitlines()]

    def read(self, dataset: str, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Captions and small images by id."""
        text = ",".join(map(str, sorted(set(ids))))
        lines = self.ask(["cat", "--quiet", "--thumbnail", str(_IMAGE_PX), "--id", text], [dataset]) if text else []
        return {line["id"]: line for line in lines}


def _texts(value: Any) -> list[str]:
    return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []


def _whole(value: Any, name: str) -> int:
    n = number(member(value, name))
    return int(n) if n is not None and 0 <= n < 1 << 53 else 0


def _list(value: Any, name: str) -> list[Any]:
    found = member(value, name)
    return found if isinstance(found, list) else []


def _rank(query: Any, before: list[Any]) -> str:
    """"number 3, at first 17": the same queries are used at every evaluation, but listed by rank."""
    first = [f", at first {_whole(old, 'rank')}" for old in before
             if (_whole(old, "id"), _whole(old, "caption")) == (_whole(query, "id"), _whole(query, "caption"))]
    return f"number {_whole(query, 'rank')}" + "".join(first[:1])


def _mark(query: Any, found: Any) -> str:
    return "right" if _whole(query, "id") == _whole(found, "id") else "wrong"


def _score(found: Any) -> float:
    return number(member(found, "score")) or 0.0


def _examples(samples: _Samples, run: RunLog) -> list[Section]:
    """Retrieved captions and images of the last evaluation. None if the run was not evaluated on captions."""
    val, now, first = run.option("val"), run.last_examples, run.first_examples
    if now is None or not isinstance(val, str):
        return []
    first = {} if first is now else first
    sides = {side: _list(now, side) for side in ("t2i", "i2t")}
    try:
        known = samples.read(val, [_whole(one, "id") for queries in sides.values() for q in queries
                                   for one in [q, *_list(q, "found")]])
        cards = []
        for q in sides["t2i"]:
            own = known[_whole(q, "id")]
            text = caption_of(own, _whole(q, "caption"))
            group = f"\u201c{text[:100]}\u201d, its image is {_rank(q, _list(first, 't2i'))}"
            cards.append(samples.card(own, text, ["its own"], "own", group))
            for found in _list(q, "found")[:5]:
                one = known[_whole(found, "id")]
                line = {"mark": _mark(q, found), "text": f"{_score(found):.3f}, id {one['id']}"}
                cards.append(samples.card(one, caption_of(one, 0), [line], _mark(q, found), group))
        rows = []
        for q in sides["i2t"]:
            own = known[_whole(q, "id")]
            lines: list[Any] = [f"id {own['id']}, its caption is {_rank(q, _list(first, 'i2t'))}"]
            for found in _list(q, "found"):
                text = caption_of(known[_whole(found, "id")], _whole(found, "caption"))
                lines.append({"mark": _mark(q, found), "text": f"{_score(found):.3f} {text[:CAPTION_CHARACTERS]}"})
            rows.append(samples.card(own, caption_of(own, 0), lines))
    except StudyError as error:
        return [Section("Text-to-image retrieval", items=[_note(f"Retrieval examples are missing: {error}")])]
    return [Section("Text-to-image retrieval, last evaluation", items=[images(cards)]),
            Section("Image-to-text retrieval", items=[images(rows, "rows")])]


def _places(run: RunLog) -> list[str]:
    """The training datasets, without weights."""
    return [place if os.path.exists(place) else re.sub(r":[\d.]+(e-?\d+)?$", "", place) for place in _texts(run.option("data"))]


def _extremes(samples: _Samples, run: RunLog) -> list[Section]:
    """The samples with the largest and smallest zeta in the last checkpoint, or u if zeta has not changed yet. None if no
    checkpoint has either."""
    if not any(f"{side}.{by}" in run.columns for by in ("zeta", "log_u") for side in dynamics.SIDES):
        return []
    s = Section("Extreme samples", items=[{"kind": "text", "text": (
        "From the last checkpoint, visited samples only. zeta: learned popularity of a caption or image (the more it matches, "
        "the larger). u: how much better other candidates match than the positive; the larger, the harder the sample.")}])
    chosen = report_state.chosen_columns(run)
    if not chosen:
        s.items.append(_note("All of them have the same numbers so far."))
    try:
        places = _places(run)
        for name in chosen:
            side, by = name.split(".")
            picks = samples.ask(["popularity", "--side", side, "--by", by, "--top", str(_EXTREMES), "--json"],
                                [run.path, *places])
            known = {place: samples.read(place, [p["id"] for p in picks if p["dataset"] == pages.redact(place)])
                     for place in places}
            for title, part in (("largest", picks[:len(picks) // 2]), ("smallest", picks[len(picks) // 2:])):
                cards = [samples.card(known[place][p["id"]], p["caption"], [f"{p[by]:.4g}, id {p['id']}"]) for p in part
                         for place in places if p["dataset"] == pages.redact(place)]
                s.items.append(images(cards, title=f"The {title} {name}"))
    except StudyError as error:
        s.items.append(_note(f"The extreme samples are missing: {error}"))
    return [s]


def _moved(samples: _Samples, run: RunLog) -> list[Section]:
    try:
        return report_state.moved(samples, run, _places(run))
    except StudyError as error:
        return [Section("Samples that moved most", items=[_note(f"The samples that moved most are missing: {error}")])]


# ---- the program


def _check_size(text: str) -> None:
    """Checks the size as ccdump does, before the work."""
    found = re.fullmatch(r"([0-9]+)(KiB|MiB|GiB|TiB)?", text)
    power = ["", "KiB", "MiB", "GiB", "TiB"].index(found[2] or "") if found else 0
    if found is None or not 256 << 20 <= int(found[1]) << 10 * power <= 1024 << 40:
        raise UsageError(f"--cache-size must be from 256MiB to 1024TiB, not '{text}'")


def check_model(run: str) -> None:
    """Refuses a run with an invalid last checkpoint: its figures would look like results."""
    if os.path.exists(os.path.join(run, "last")) and found("ccdump"):
        with start(["ccdump", "state", "--json", "--", run], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
            said = child.communicate()[1].decode("utf-8", "replace").splitlines()
        if child.returncode:
            said = [line for line in said if "lists every option" not in line]
            error = StudyError(said[-1].removeprefix("ccdump state: ") if said else f"{run}/last cannot be read")
            error.code = child.returncode if child.returncode > 0 else 70
            raise error


def _probe(runs: list[RunLog], pairs: int) -> list[Item]:
    """Extends every RUN/probe.jsonl; returns notes on what is missing."""
    for r in runs:
        if r.columns and "text.zeta" not in r.columns:
            raise UsageError(f"--probe-pairs compares zeta, which the loss {r.option('loss')} of {r.path} does not keep")
    missing = [f"{r.name}: {text}" for r in runs for text in dynamics.probe(r, _places(r), pairs)]
    for text in missing:
        print(f"ccstream-report: {pages.redact(text)}", file=sys.stderr)
    return [_note(pages.redact(text)) for text in missing]


def _sections(runs: list[RunLog], options: Options) -> list[Section]:
    d = _Drawer(runs)
    missing = _probe(runs, options.probe_pairs) if options.probe_pairs else []
    sections = [*_training(d), *report_state.columns(d), Section("Probe", items=missing)]
    if len(runs) == 1:
        used = sum(len(json.dumps(item)) for s in sections for item in s.items)
        samples = _Samples(options, runs[0], _IMAGES_UNTIL_BYTES - used)
        sections += _examples(samples, runs[0]) + _extremes(samples, runs[0]) + _moved(samples, runs[0])
    return [s for s in [*sections, _origins(runs)] if s.items]


def _numbers(run: RunLog) -> dict[str, Any]:
    steps, probes = run.series["loss"].x, dynamics.probed(run.path)
    return {"run": run.path, "entries": len(steps), "step": steps[-1] if steps else 0} | {
        name: points.last() for name, points in run.series.items() if points.x} | ({"probe": probes[-1]} if probes else {})


def _follow(options: Options) -> None:
    from . import report_follow

    if len(options.arguments) > 1:
        raise UsageError("--follow, --tensorboard and --wandb take one RUN")
    for name in {"out", "group", "force"} & options.given:
        raise UsageError(f"--{name} applies to pages; --follow, --tensorboard and --wandb write no page")
    run = RunLog(options.arguments[0])
    val, samples = run.option("val"), _Samples(options, run, 0)
    report_follow.follow(options, run, report_follow.examples_of(lambda ids: samples.read(str(val), ids)))


def act(options: Options, program: str) -> None:
    if options.arguments == ["-"]:  # ccdump, ccstream-eval
        from . import command_page

        command_page.write()
        return
    if options.follow or options.tensorboard is not None or options.wandb is not None:
        _follow(options)
        return
    if len(options.arguments) > _MAX_RUNS and not options.group:
        raise UsageError(f"at most {_MAX_RUNS} runs fit one page; with --group, runs that differ only in --seed form one row")
    if options.cache_size is not None:
        _check_size(options.cache_size)
    runs = [RunLog(run) for run in options.arguments]
    name_apart(runs)
    own = os.path.join(options.arguments[0], "report.html")
    out = options.out or (own if not options.group else "group.html")
    if out != own:
        pages.check_file(out, program, options.force)
    for run in options.arguments if not options.trust else []:
        check_model(run)
    summary = None
    if options.group:
        from . import report_group  # which imports much

        result, data, summary = report_group.make(runs, program)
    else:
        sections = _sections(runs, options)
        result = {"page": out, "runs": [_numbers(r) for r in runs]}
        figures = [item for s in sections for item in s.items if item["kind"] == "lines"]
        data = pages.page_html(program, f"{len(runs)} runs" if len(runs) > 1 else runs[0].name, _summary(runs), sections,
                               next(filter(None, map(pages.plain_figure, figures[:4])), ""),
                               "Last recorded values; recall is the mean of both directions", tiles=True)
    pages.write(Path(out), data)
    if options.json:
        sys.stdout.write(pages.json_text(result))
    elif not options.quiet:
        if summary is not None:
            pages.print_table(summary)
        print(out)
