"""The parts of `ccstream-report`'s page about per-sample state: its range, quantiles and histograms over checkpoints, how well
zeta agrees with the minimiser of eq. (8), and the samples that moved most."""

from __future__ import annotations

import math
from typing import Any

from . import dynamics, page as pages
from .cards import caption_of, images
from .run_log import Column, Points, RunLog, digits, member, number
from .study import Column as TableColumn, Item, Section, Table, axis, table_item

_MAX_RIDGES = 10
_MOVED = 6
_SHARES = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}


def named(runs: list[RunLog], columns: list[TableColumn], rows: list[list[Any]]) -> Table:
    """One row per run; for a single run without its name, which is the page's title. Empty if a number is unknown."""
    cells = [[pages.redact("" if not isinstance(v, str) and not math.isfinite(v) else c.text(v)) for c, v in zip(columns, row)]
             for row in rows]
    if len(runs) > 1:
        columns, cells = [TableColumn("run", "s"), *columns], [[r.name, *row] for r, row in zip(runs, cells)]
    return Table([TableColumn(c.name, "s") for c in columns], cells)


# ---- columns

_SHARE = axis("samples seen", "%")


def _column_lines(d: Any, s: Section, name: str) -> None:
    """Minimum, mean and maximum at every checkpoint; for several runs only the means."""
    if len(d.runs) == 1:
        c = d.runs[0].columns[name]
        d.lines(s, name, name, "", d.line("max", c.max, 1, 1, True) + d.line("mean", c.mean, 1, 1) +
                d.line("min", c.min, 1, 1, True))
        return
    d.lines(s, f"{name}, mean", name, "", [line for i, r in enumerate(d.runs) if name in r.columns
                                           for line in d.line(r.name, r.columns[name].mean, 1, i + 1)])


def _last_histograms(d: Any, s: Section, name: str) -> None:
    series = []
    for i, r in enumerate(d.runs):
        for h in r.columns.get(name, Column()).histograms[-1:]:
            series.append({"name": r.name, "x": digits(h.low + h.width * k for k in range(len(h.shares) + 1)),
                           "y": digits(h.shares), "colour": i + 1})
    if series:
        s.items.append({"kind": "histogram", "title": f"{name} in the last checkpoint", "x": axis(name), "y": _SHARE,
                        "series": series})


def _ridges(d: Any, s: Section, name: str) -> None:
    """For a single run: histograms at evenly spaced checkpoints, including the first and the last."""
    all_ = d.runs[0].columns[name].histograms
    count = min(len(all_), _MAX_RIDGES)
    chosen = [all_[i * (len(all_) - 1) // (count - 1) if count > 1 else 0] for i in range(count)]
    if chosen:
        s.items.append({"kind": "ridges", "title": f"{name} of visited samples, at checkpoints", "x": axis(name), "y": _SHARE,
                        "label": "step", "series": [{"label": h.step, "low": h.low, "width": h.width, "y": digits(h.shares)}
                                                    for h in chosen]})


def _base(name: str) -> str:
    """zeta of text.zeta.2"""
    return name.split(".")[1] if "." in name else name


def _unit(r: RunLog, name: str, step: float) -> float:
    """zeta is a similarity, so its unit is tau; log u is a plain logarithm."""
    points = r.series["tau"]
    at = max((k for k, x in enumerate(points.x) if x <= step), default=-1)
    return points.y[at] if _base(name) == "zeta" and at >= 0 and points.y[at] > 0 else 1.0


def _quantiles(d: Any, s: Section, name: str) -> None:
    """Quantiles of zeta (in units of tau) and log u at every checkpoint."""
    series = []
    for i, r in enumerate(d.runs):
        all_ = r.columns.get(name, Column()).histograms
        count = min(len(all_), d.most)
        chosen = [all_[(i + 1) * len(all_) // count - 1] for i in range(count)]
        rows = [[v / _unit(r, name, h.step) for v in dynamics.quantiles(h, _SHARES.values())] for h in chosen]
        low, quarter, half, three, high = (digits(row[k] for row in rows) for k in range(len(_SHARES)))
        line: Item = {"x": [h.step for h in chosen], "colour": i + 1}
        alone = len(d.runs) == 1
        series += [line | {"name": "median, and the middle half" if alone else r.name, "y": half} | (
            {"low": quarter, "high": three} if d.band else {})] if rows else []
        if rows and alone:
            series += [line | {"name": share, "y": y, "dashed": True} for share, y in (("5 %", low), ("95 %", high))]
    unit = "tau" if _base(name) == "zeta" else ""
    d.lines(s, f"{name}{' in units of tau' if unit else ''}: quantiles over visited samples", name, unit, series)


def _percent(c: Column, points: Points) -> float:
    return 100 * points.last() / c.visited.last() if points.y and c.visited.last() > 0 else math.nan


def _spread(d: Any, s: Section) -> None:
    """One row per column and run, from the run's last checkpoint that has visited samples."""
    heads = ["column", "unit", "samples", *_SHARES, "deviation", "at the smallest, %", "at the largest, %"]
    forms = ["s", "s", "s", *[".4g"] * (len(_SHARES) + 1), ".3g", ".3g"]
    rows = []
    for r in d.runs:
        for name, c in r.columns.items():
            if _base(name) not in ("log_u", "zeta", "tau") or not c.histograms:
                continue
            unit = _unit(r, name, c.histograms[-1].step)
            rows.append([r.name] * (len(d.runs) > 1) + [name, "tau" if _base(name) == "zeta" else "", f"{c.visited.last():.0f}"] +
                        [v / unit for v in dynamics.quantiles(c.histograms[-1], _SHARES.values())] +
                        [c.std.last() / unit, _percent(c, c.at_min), _percent(c, c.at_max)])
    if rows:
        columns = [TableColumn("run", "s")] * (len(d.runs) > 1) + [TableColumn(h, f) for h, f in zip(heads, forms)]
        s.items.append(table_item("Spread over samples, last checkpoint", Table(columns, [
            [pages.redact(v) if isinstance(v, str) else v for v in row] for row in rows])))
        s.items.append({"kind": "text", "small": True, "text": (
            "Quantiles are read off histograms of up to 48 bins. The last two columns: samples that hold exactly the smallest or the "
            "largest value, where many of them mean a bound, such as tau-min, or eps under log u.")})


def _probes(d: Any, s: Section) -> None:
    """The content of RUN/probe.jsonl."""
    agree, spread, notes = [], [], []
    for i, r in enumerate(d.runs):
        lines = dynamics.probed(r.path)
        for k, side in enumerate(dynamics.SIDES):
            label = f"{side}s" if len(d.runs) == 1 else f"{r.name}, {side}s"
            for figures, name, dashed in ((agree, "correlation", False), (spread, "spread", False), (spread, "minimiser_spread", True)):
                points = Points()
                for line in lines:
                    points.add(line["step"], member(line.get(side), name))
                what = ", of the minimiser" if dashed else ""
                figures += d.line(label + what, points, 1.0, 2 * i + k + 1, dashed)
        if lines:
            own = number(member(lines[-1].get("text"), "own_share"))
            gap = max(number(member(lines[-1].get(side), "gap")) or 0.0 for side in dynamics.SIDES)
            used = number(lines[-1].get("used"))
            notes.append(f"{pages.redact(r.name)}: {used or 0:.0f} training pairs, without augmentation. The own pair has "
                         f"{100 * (own or 0.0):.1f} % of an image's mass at the minimiser, which above 70 % is hardly determined; its "
                         f"gradient there is at most {gap:.1g}, in units where a sample's own is 1.")
    d.lines(s, "Correlation of zeta with the minimiser of eq. (8) on probe pairs", "correlation", "", agree)
    d.lines(s, "Spread of zeta and of that minimiser over probe pairs", "standard deviation", "tau", spread)
    s.items += [{"kind": "text", "text": note, "small": True} for note in notes]


def columns(d: Any) -> list[Section]:
    """Every column of any run, except moving averages of gradients."""
    state, momenta = Section("Per-sample state"), Section("Momenta of zeta", folded=True)
    _probes(d, state)
    _spread(d, state)
    for name in dict.fromkeys(name for r in d.runs for name in r.columns):
        s = momenta if "_momentum" in name else state
        _column_lines(d, s, name)
        if _base(name) in ("zeta", "log_u"):
            _quantiles(d, s, name)
        (_last_histograms if len(d.runs) > 1 else _ridges)(d, s, name)
    return [state, momenta]


# ---- samples


def chosen_columns(run: RunLog) -> list[str]:
    """zeta of both sides, or log u if zeta has not changed yet; only columns whose entries differ."""
    names = [f"{side}.{by}" for by in ("zeta", "log_u") for side in ("text", "image")]
    differ = [name for name in names if name in run.columns and run.columns[name].max.last() > run.columns[name].min.last()]
    return [name for name in differ if name.endswith("zeta")] or differ


def moved(samples: Any, run: RunLog, places: list[str]) -> list[Section]:
    """The samples whose zeta or log u changed most between the run's checkpoints. None if it has a single one."""
    found = dynamics.moves(run.path, chosen_columns(run), _MOVED)
    if found is None:
        return []
    s = Section("Samples that moved most", items=[{"kind": "text", "text": (
        f"From step {found.first} to step {found.last}, the oldest and the newest checkpoint that the run keeps (--keep-checkpoints).")}])
    for name, rows in found.of.items():
        by, before, after = _base(name), _unit(run, name, found.first), _unit(run, name, found.last)
        unit = " tau" if by == "zeta" else ""
        cards = []
        for place in sorted({m.place for m in rows}):
            if place >= len(places):
                continue
            known = samples.read(places[place], [m.id for m in rows if m.place == place])
            cards += [(m, samples.card(known[m.id], caption_of(known[m.id], m.caption), [
                f"{m.before / before:.3g} to {m.after / after:.3g}{unit}, id {m.id}"])) for m in rows if m.place == place and m.id in known]
        cards.sort(key=lambda pair: rows.index(pair[0]))
        s.items.append(images([card for _, card in cards], title=f"{name}, largest change first"))
    return [s]
