"""Averages, table and page of `ccstream-eval suite`."""

from __future__ import annotations

from typing import Any

from . import suite_sets
from .study import Column, Options, Section, Table, axis, figure, series, table_item


def clean(text: str) -> str:
    """An untrusted text without control characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]


def averages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_key = {r["key"]: r["metrics"].get("main_metric") for r in rows}
    out = []
    for name, sets in suite_sets.AVERAGES:
        values = [by_key[s.key] for s in sets if by_key.get(s.key) is not None]
        out.append({"name": name, "value": sum(values) / len(values) if values else None, "sets": len(values),
                    "of": len(sets)})
    return out


def _main_name(row: dict[str, Any]) -> str:
    known = next((s for s in suite_sets.SETS + suite_sets.EXTRAS if s.key == row["key"]), None)
    if known:
        return known.main or "no main metric"
    return next((n for n in ("mean_recall@1", "mean_average_precision", "acc1") if n in row["metrics"]), "")


def shown(row: dict[str, Any]) -> str:
    value = row["metrics"].get("main_metric")
    return f"{_main_name(row)} {100 * value:.2f}" if value is not None else _main_name(row)


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def table(result: dict[str, Any]) -> Table:
    rows: list[list[Any]] = []
    for row in result["sets"]:
        m = row["metrics"]
        rows.append([row["dataset"], _main_name(row), _percent(m.get("main_metric")), _percent(m.get("acc1")),
                     _percent(m.get("acc5")), str(row.get("images", "-")), str(len(row.get("skipped", [])))])
    for a in filter(lambda a: a["sets"], result["averages"]):
        rows.append([a["name"], f"mean of {a['sets']} of {a['of']} sets", _percent(a["value"]), None, None, "-", "-"])
    return Table([Column("set", "s"), Column("main metric", "s"), Column("%", ".2f"), Column("acc1", ".2f"),
                  Column("acc5", ".2f"), Column("images", "d"), Column("skipped", "d")], rows)


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
        notes.append(f"Not among the sets: {', '.join(result['missing'])}.")
    bars = figure("bars", "Main metric of each set", axis(""), axis("main metric", "%"),
                  [series("", [r["dataset"] for r in shown], [_percent(r["metrics"]["main_metric"]) for r in shown])])
    return [Section("Sets", notes, [bars] if shown else []),
            Section("Beside published results", ["Rows of papers are not measured here, and are not comparable with one "
                    "another: the pairs that could still be downloaded, epochs and towers differ."],
                    [table_item("From papers", anchors)]),
            Section("All metrics", [], [table_item("", details)])]
