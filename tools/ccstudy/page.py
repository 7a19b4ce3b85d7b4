"""What a study leaves: NAME.json, figures as NAME-*.svg and NAME-*.png, NAME.html, and the table on stdout."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from . import study
from .study import Item, Options, Section, Table


class ExistsError(study.StudyError):
    code = 73


def _kept_by_us(folder: Path) -> str | None:
    """What tools/cli/output.c says of a folder."""
    try:
        if '"ccstream-dataset"' in (folder / "dataset.json").read_text("utf-8", "replace")[:1024]:
            return "dataset"
    except OSError:
        pass
    return "run" if (folder / "config.json").exists() and (folder / "metrics.jsonl").exists() else None


def _mark(stem: str) -> str:
    return f'<meta name="generator" content="ccstudy {stem}">'


def check_folder(out: str, stem: str, force: bool) -> None:
    """Before the work: whether files may be written to this folder, which is made with the first of them."""
    if "://" in out:
        raise study.UsageError(f"{out}: only local folders are written; upload the folder afterwards")
    if os.path.exists(out) and not os.path.isdir(out):
        raise ExistsError(f"{out} is a file; --out requires a folder")
    whole = Path(out).resolve()
    for folder in (whole, *whole.parents):
        kind = _kept_by_us(folder)
        if kind is not None:
            raise ExistsError(f"{out}: is in the {kind} {folder}, where no other output is written; choose another place")
    path = Path(out) / f"{stem}.html"
    ours = path.is_file() and _mark(stem) in path.read_text("utf-8", "replace")[:1024]
    for end in ("json", "html", "1.svg", "1.png"):
        path = Path(out) / (f"{stem}-{end}" if end[0] == "1" else f"{stem}.{end}")
        if path.exists() and not ours and not force:
            raise ExistsError(f"{path} exists, and nothing shows that 'ccstudy {stem}' made it; --force replaces it")


def write(path: Path, data: bytes) -> None:
    """All of it or nothing: a reader never sees a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(data)
            os.umask(mask := os.umask(0o077))
            os.fchmod(file.fileno(), 0o666 & ~mask)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _finite(value: Any) -> Any:
    """For JSON: plain numbers, None for those that are not finite, no members that begin with "_"."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items() if not str(k).startswith("_")}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if hasattr(value, "tolist"):  # of NumPy
        return _finite(value.tolist())
    if isinstance(value, float):
        return None if value != value or abs(value) == float("inf") else int(value) if value == int(value) else value
    return value


def json_text(value: Any) -> str:
    return json.dumps(_finite(value), separators=(",", ":")) + "\n"


def print_table(table: Table) -> None:
    cells = [[c.name for c in table.columns]]
    cells += [[c.text(v) for c, v in zip(table.columns, row)] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        print("  ".join(f"{text:<{w}}" if c.format == "s" else f"{text:>{w}}"
                        for text, w, c in zip(row, widths, table.columns)).rstrip())


# ---- figures by matplotlib


def _scale(axes: Any, item: Item) -> None:
    for letter in "xy":
        info = item.get(letter) or {"title": ""}
        unit = f" ({info['unit']})" if info.get("unit") else ""
        getattr(axes, f"set_{letter}label")(info["title"] + unit)
        if info.get("scale") == "log":
            getattr(axes, f"set_{letter}scale")("log")
        if info.get("categories"):
            getattr(axes, f"set_{letter}ticks")(range(len(info["categories"])), info["categories"])


def _draw_series(axes: Any, item: Item) -> None:
    kind, count = item["kind"], len(item["series"])
    if kind == "area":
        axes.stackplot(item["series"][0]["x"], *[s["y"] for s in item["series"]],
                       labels=[s["name"] for s in item["series"]])
    for i, s in enumerate(item["series"] if kind != "area" else []):
        y = [float("nan") if v is None else v for v in s["y"]]
        if kind == "histogram":
            axes.stairs(y, s["x"], label=s["name"])
        elif kind == "bars":
            axes.bar([a + 0.8 * ((i + 0.5) / count - 0.5) for a in range(len(y))], y, 0.8 / count, label=s["name"],
                     yerr=s.get("error"))
            axes.set_xticks(range(len(y)), s["x"])
        elif kind == "scatter":
            axes.plot(s["x"], y, "--" if s.get("dashed") else ".", label=s["name"])
        else:
            line = axes.errorbar(s["x"], y, yerr=s.get("error"), linestyle="--" if s.get("dashed") else "-",
                                 marker="o" if len(y) <= 20 else "", markersize=3, label=s["name"])[0]
            if "low" in s:
                axes.fill_between(s["x"], s["low"], s["high"], color=line.get_color(), alpha=0.2)
    _scale(axes, item)
    axes.set_title(item["title"], fontsize="medium", wrap=True)
    if count > 1 or item["series"][0]["name"]:
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, frameon=False)


def _draw_map(axes: Any, item: Item) -> None:
    low, high = item["range"]
    # Rows from the top, as the page has them.
    image = axes.imshow(item["rows"], extent=item["extent"], vmin=low, vmax=high, aspect="auto", origin="upper")
    axes.figure.colorbar(image, ax=axes, label=item.get("unit", ""))
    _scale(axes, item)
    axes.set_title(item["title"], fontsize="medium", wrap=True)


def _draw(item: Item) -> Any:
    """A matplotlib figure, or None of an item that is none (a table)."""
    parts = item["items"] if item["kind"] == "multiples" else [item]
    parts = [p for p in parts if p["kind"] == "map" or "series" in p and p["series"] and p["kind"] != "ridges"]
    if not parts:
        return None
    figures = study.load("matplotlib.figure")
    columns = min(2, len(parts))
    rows = -(-len(parts) // columns)
    out = figures.Figure(figsize=(8 * columns, 5 * rows), layout="constrained")
    for i, part in enumerate(parts):
        axes = out.add_subplot(rows, columns, i + 1)
        (_draw_map if part["kind"] == "map" else _draw_series)(axes, part)
    return out


def _saved(figure: Any, kind: str) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def _figures(stem: str, sections: list[Section], program: str) -> dict[str, bytes]:
    """Every figure as SVG and PNG, by the name of its file; the first SVG is for readers of the page without JavaScript."""
    try:
        settings = study.load("matplotlib").rcParams
    except study.MissingError as error:
        print(f"{program}: no figures as SVG and PNG: {error}", file=sys.stderr)
        return {}
    settings.update({"svg.hashsalt": "ccstudy", "svg.fonttype": "none", "axes.spines.top": False,
                     "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3})
    out: dict[str, bytes] = {}
    for figure in filter(None, [_draw(item) for section in sections for item in section.items]):
        number = len(out) // 2 + 1
        out |= {f"{stem}-{number}.{kind}": _saved(figure, kind) for kind in ("svg", "png")}
    return out


# ---- the page


def _viewer(name: str) -> str:
    path = Path(__file__).parent / name
    return path.read_text("utf-8") if path.exists() else ""


_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; script-src 'sha256-%s'">
%s
"""


def _summary(table: Table) -> str:
    """For readers without JavaScript."""
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(c.text(v))}</td>" for c, v in zip(table.columns, row)) + "</tr>"
                   for row in table.rows)
    heads = "".join(f"<th>{html.escape(c.name)}</th>" for c in table.columns)
    return f'<div class="scroll"><table><tr>{heads}</tr>{rows}</table></div>'


def _page(stem: str, title: str, table: Table, sections: list[Section], figure: bytes | None) -> str:
    """tools/inspect/page/README.md has the format."""
    item = study.table_item("", table)
    data = {"format": 1, "title": title, "summary": {"columns": item["columns"], "rows": item["rows"]},
            "sections": [{"title": s.title, "text": s.text, "items": s.items} for s in sections]}
    text = json.dumps(_finite(data), separators=(",", ":")).replace("<", "\\u003c")
    plain = "" if figure is None else ('<figure class="plain"><img alt="the first figure" style="max-width:100%" src="'
                                       f'data:image/svg+xml;base64,{base64.b64encode(figure).decode()}"></figure>\n')
    script = f"\n{_viewer('viewer.js')}"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (f"{_HEAD % (digest, _mark(stem))}<title>{html.escape(title)}</title>\n<style>\n{_viewer('viewer.css')}</style></head><body>\n"
            f"<h1>{html.escape(title)}</h1>\n{_summary(table)}\n{plain}"
            f'<script type="application/json" id="ccstream-page">{text}</script>\n'
            f"<script>{script}</script></body></html>\n")


def write_files(folder: Path, stem: str, numbers: str, module: ModuleType, result: dict[str, Any],
                options: Options) -> Path:
    """All files of a study; returns the page's path. It comes first: it is what check_folder knows ours by."""
    sections = module.page(result, options)
    figures = _figures(stem, sections, f"ccstudy {stem}")
    path = folder / f"{stem}.html"
    page = _page(stem, module.TITLE, module.table(result), sections, figures.get(f"{stem}-1.svg"))
    for name, data in {path.name: page.encode(), f"{stem}.json": numbers.encode(), **figures}.items():
        write(folder / name, data)
    return path
