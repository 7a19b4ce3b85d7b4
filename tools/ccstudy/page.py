"""Pages for the viewer, and the output of a study: NAME.json, figures as NAME-*.svg and NAME-*.png, NAME.html, and the table on
stdout."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from . import study
from .study import Item, Options, Section, Table


class ExistsError(study.StudyError):
    code = 73


def _kept_by_us(folder: Path) -> str | None:
    """Whether a folder is a dataset or a run, by the rules of tools/cli/output.c."""
    try:
        if '"ccstream-dataset"' in (folder / "dataset.json").read_text("utf-8", "replace")[:1024]:
            return "dataset"
    except OSError:
        pass
    if (folder / "pack.journal").exists():
        return "dataset"
    return "run" if (folder / "config.json").exists() and (folder / "metrics.jsonl").exists() else None


def _check_above(out: str) -> None:
    """Refuses a path inside a dataset or a run."""
    whole = Path(out).resolve()
    for folder in (whole, *whole.parents):
        kind = _kept_by_us(folder)
        if kind is not None:
            raise ExistsError(f"{out}: is inside the {kind} {folder}, which holds no other output; choose another path")


def _mark(generator: str) -> str:
    return f'<meta name="generator" content="{generator}">'


def _is_of(path: Path, generator: str) -> bool:
    """Whether the file records that this command wrote it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _mark(generator).encode() in file.read(1024)


def check_file(out: str, generator: str, force: bool) -> None:
    """Called before the work: whether this page may be written."""
    if "://" in out:
        raise study.UsageError(f"{redact(out)}: output must be a local file; upload it afterwards")
    _check_above(out)
    if os.path.exists(out) and not os.path.isfile(out):
        raise ExistsError(f"{out} is not a file")
    if os.path.exists(out) and not force and not _is_of(Path(out), generator):
        raise ExistsError(f"{out} exists and was not written by '{generator}'; pass --force to replace it")


def check_folder(out: str, stem: str, force: bool) -> None:
    """Called before the work: whether files may be written to this folder, which is created with the first of them."""
    if "://" in out:
        raise study.UsageError(f"{out}: output must be a local folder; upload it afterwards")
    if os.path.exists(out) and not os.path.isdir(out):
        raise ExistsError(f"{out} is a file; --out requires a folder")
    _check_above(out)
    ours = _is_of(Path(out) / f"{stem}.html", f"ccstudy {stem}")
    for end in ("json", "html", "1.svg", "1.png"):
        path = Path(out) / (f"{stem}-{end}" if end[0] == "1" else f"{stem}.{end}")
        if path.exists() and not ours and not force:
            raise ExistsError(f"{path} exists and was not written by 'ccstudy {stem}'; pass --force to replace it")


def write(path: Path, data: bytes) -> None:
    """Writes a file atomically: a reader never sees a part of it."""
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


def _finite(value: Any, text: Callable[[str], str] = str) -> Any:
    """For JSON: plain numbers, None for non-finite ones; `text` converts strings."""
    if isinstance(value, dict):
        return {text(str(k)): _finite(v, text) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v, text) for v in value]
    if hasattr(value, "tolist"):  # of NumPy
        return _finite(value.tolist(), text)
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return None if value != value or abs(value) == float("inf") else int(value) if value == int(value) else value
    return value


def _public(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _public(v) for k, v in value.items() if not str(k).startswith("_")}
    return [_public(v) for v in value] if isinstance(value, (list, tuple)) else value


def json_text(value: Any) -> str:
    """A study's result as JSON, without fields that begin with "_"."""
    return json.dumps(_finite(_public(value)), separators=(",", ":")) + "\n"


# ---- texts of strangers

_END = " \t\r\n\"<>"  # of a location
_AFTER = ":;,.)]'"  # a location in a sentence
_CONTROLS: dict[int, str] = {c: " " for c in (*range(0x20), *range(0x7F, 0xA0)) if c != 10}
_CONTROLS |= {c: f"[U+{c:04X}]" for c in (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A),
                                          *range(0xFFF9, 0xFFFC))}
_CONTROLS |= {c: "\ufffd" for c in range(0xD800, 0xE000)}


def clean(text: str) -> str:
    """Removes control characters, and escapes characters that change the writing direction, so that a name cannot pass for
    another."""
    return text.translate(_CONTROLS)


def _until(text: str, ends: str) -> int:
    return next((i for i, c in enumerate(text) if c in ends), len(text))


def _userinfo(text: str) -> int:
    """Number of characters before the host. If there is no @ (a truncated message), text after a colon that is not a port is
    treated as a password."""
    host = text[:_until(text, "/?#" + _END)]
    if "@" in host:
        return host.rindex("@") + 1
    colon = -1 if host.startswith("[") else host.find(":")
    after = host[colon + 1:].lstrip("0123456789")
    if colon < 0 or after == "" or after[0] in _AFTER:
        return 0
    whole = text[:_until(text, _END)]
    return whole.rindex("@") + 1 if "@" in whole else len(host)


def redact(text: str) -> str:
    """Removes user names, passwords and queries from locations, as formats/base/redact.h does."""
    out = ""
    while "://" in text:
        scheme, _, text = text.partition("://")
        out += scheme + "://"
        if not (scheme[-1:].isascii() and scheme[-1:].isalnum()):
            continue
        text = text[_userinfo(text):]
        end = _until(text, "?#" + _END)
        out, text = out + text[:end], text[end:]
        query = text[:_until(text, _END)].rstrip(_AFTER)
        if len(query) > 1:
            out, text = out + "?..."[:len(query)], text[len(query):]
    return out + text


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
    if _named(item):
        height = axes.get_position().height * axes.figure.get_figheight()
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.5 / height), ncols=2, frameon=False)


def _named(item: Item) -> int:
    """Number of lines with a name in the legend."""
    series = item.get("series", [])
    return len(series) if len(series) > 1 or series and series[0]["name"] else 0


def _draw_map(axes: Any, item: Item) -> None:
    low, high = item["range"]
    # Rows from the top, as the page has them.
    image = axes.imshow(item["rows"], extent=item["extent"], vmin=low, vmax=high, aspect="auto", origin="upper")
    axes.figure.colorbar(image, ax=axes, label=item.get("unit", ""))
    _scale(axes, item)


_WIDTH, _HEIGHT = 8, 5  # of a figure, or one of several, in inches


def _axes(figure: Any, item: Item, column: int, row: int) -> Any:
    """The area of a plot, below its title and above its legend. Its size is estimated, because measuring it (matplotlib's
    constrained layout) takes as long as all the drawing."""
    width, height = figure.get_size_inches()
    title = textwrap.wrap(item["title"], 85)
    above, below = 0.2 + 0.22 * len(title), 0.6 + 0.22 * -(-_named(item) // 2)
    axes = figure.add_axes((  # left, bottom, width, height
        (column * _WIDTH + 0.9) / width, 1 - ((row + 1) * _HEIGHT - below) / height,
        (_WIDTH - 1.1) / width, (_HEIGHT - above - below) / height))
    axes.set_title("\n".join(title), fontsize="medium")
    return axes


def _draw(item: Item) -> Any:
    """A matplotlib figure, or None for an item that is not a figure (a table)."""
    parts = item["items"] if item["kind"] == "multiples" else [item]
    parts = [p for p in parts if p["kind"] == "map" or "series" in p and p["series"] and p["kind"] != "ridges"]
    if not parts:
        return None
    figures = study.load("matplotlib.figure")
    columns = min(2, len(parts))
    rows = -(-len(parts) // columns)
    out = figures.Figure(figsize=(_WIDTH * columns, _HEIGHT * rows))
    for i, part in enumerate(parts):
        axes = _axes(out, part, i % columns, i // columns)
        (_draw_map if part["kind"] == "map" else _draw_series)(axes, part)
    return out


def _saved(figure: Any, kind: str) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def _figures(stem: str, sections: list[Section], program: str) -> dict[str, bytes]:
    """Every figure as SVG and PNG, by file name; the first SVG is for readers of the page without JavaScript."""
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
        out[f"{stem}-{number}.svg"] = _saved(figure, "svg")
        out[f"{stem}-{number}.png"] = _saved(figure, "png")
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


def _escaped(text: str) -> str:
    return html.escape(clean(redact(text)))


def _summary(table: Table, tiles: bool) -> str:
    """The summary for readers without JavaScript. tiles: for a table with one row, a name above each value."""
    cells = [[_escaped(c.text(v)) for c, v in zip(table.columns, row)] for row in table.rows]
    heads = [_escaped(c.name) for c in table.columns]
    right = ["" if c.format == "s" else ' class="right"' for c in table.columns]
    if tiles and len(cells) == 1:
        pairs = "".join(f"<div><dt>{head}</dt><dd>{cell}</dd></div>\n" for head, cell in zip(heads, cells[0]) if cell)
        return f'<dl class="tiles">{pairs}</dl>'
    rows = "".join("<tr>" + "".join(f"<td{c}>{cell}</td>" for c, cell in zip(right, row)) + "</tr>\n" for row in cells)
    return f'<div class="scroll"><table><tr>{"".join(f"<th{c}>{head}</th>" for c, head in zip(right, heads))}</tr>{rows}</table></div>'


def plain_figure(item: Item) -> str:
    """Lines without the viewer: the ends of both axes as text, and one polyline per series. Not for logarithmic axes."""
    points = [[(x, y) for x, y in zip(s["x"], s["y"]) if y is not None] for s in item["series"]]
    xs, ys = ([p[k] for line in points for p in line] for k in (0, 1))
    if not xs or "log" in (item["x"].get("scale"), item["y"].get("scale")):
        return ""
    width, height, left = 640, 260, 70
    across = (width - left - 10) / max(max(xs) - min(xs), 1e-300)
    up = (height - 50) / max(max(ys) - min(ys), 1e-300)
    lines = "".join(f'<polyline fill="none" stroke="var(--c{(s.get("colour", k + 1) - 1) % 8 + 1})" stroke-width="2" points="' +
                    " ".join(f"{left + across * (x - min(xs)):.1f},{height - 30 - up * (y - min(ys)):.1f}" for x, y in line) +
                    '"/>' for k, (s, line) in enumerate(zip(item["series"], points)))
    return (f'<figure class="plain"><figcaption>{_escaped(item["title"])}</figcaption>'
            f'<svg viewBox="0 0 {width} {height}" font-size="13" fill="currentColor">'
            f'<text y="24">{max(ys):.4g}</text><text y="{height - 30}">{min(ys):.4g}</text>'
            f'<text x="{left}" y="12">{_escaped(item["y"]["title"])}</text>'
            f'<text x="{left}" y="{height - 8}">{_escaped(item["x"]["title"])} {min(xs):.4g} to {max(xs):.4g}</text>'
            f"{lines}</svg></figure>\n")


def plain_bars(item: Item) -> str:
    """Horizontal bars without the viewer."""
    names, values = item["series"][0]["x"], item["series"][0]["y"]
    row, left, most = 20, 120, max(values, default=0)
    bars = "".join(f'<text y="{row * i + 14}">{_escaped(name)}</text><rect x="{left}" y="{row * i}" width="{width:.1f}" '
                   f'height="{row - 3}" fill="var(--c1)"/><text x="{left + width + 5:.1f}" y="{row * i + 14}">{value:.6g}</text>'
                   for i, (name, value) in enumerate(zip(names, values)) for width in [400 * value / most if most else 0])
    return (f'<figure class="plain"><figcaption>{_escaped(item["title"])}</figcaption><svg viewBox="0 0 640 {row * len(names)}" '
            f'font-size="13" fill="currentColor">{bars}</svg></figure>\n')


def page_html(generator: str, title: str, table: Table, sections: list[Section], plain: str, note: str = "",
              tiles: bool = False) -> bytes:
    """The page; tools/inspect/page/README.md describes the format. table: the summary; plain: a figure for readers without
    JavaScript."""
    item, title = study.table_item("", table), redact(title)
    data = {"format": 1, "title": title, "summary": {"columns": item["columns"], "rows": item["rows"]},
            "sections": [{"title": s.title, "text": s.text, "items": s.items, "folded": s.folded} for s in sections]}
    text = json.dumps(_finite(data, clean), separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    script = f"\n{_viewer('viewer.js')}"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    above = f'<p class="note">{_escaped(note)}</p>\n' if note else ""
    return (f"{_HEAD % (digest, _mark(generator))}<title>{_escaped(title)}</title>\n<style>\n{_viewer('viewer.css')}</style></head>"
            f"<body>\n<h1>{_escaped(title)}</h1>\n{above}{_summary(table, tiles)}\n{plain}"
            "<noscript><p>Everything else on this page needs JavaScript.</p></noscript>\n"
            f'<script type="application/json" id="ccstream-page">{text}</script>\n'
            f"<script>{script}</script></body></html>\n").encode()


def write_files(folder: Path, stem: str, numbers: str, module: ModuleType, result: dict[str, Any],
                options: Options) -> Path:
    """Writes all files of a study and returns the page's path. The page is written first: check_folder recognises the study's
    files by it."""
    sections = module.page(result, options)
    figures = _figures(stem, sections, f"ccstudy {stem}")
    path = folder / f"{stem}.html"
    first = figures.get(f"{stem}-1.svg")
    plain = "" if first is None else ('<figure class="plain"><img alt="the first figure" style="max-width:100%" src="'
                                      f'data:image/svg+xml;base64,{base64.b64encode(first).decode()}"></figure>\n')
    page = page_html(f"ccstudy {stem}", result.get("title", module.TITLE), module.table(result), sections, plain)
    for name, data in {path.name: page, f"{stem}.json": numbers.encode(), **figures}.items():
        write(folder / name, data)
    return path
