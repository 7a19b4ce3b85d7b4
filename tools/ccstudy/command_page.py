"""The pages of `ccdump show`, `stats`, `popularity` and `why`, and of `ccstream-eval retrieval`. With --html these programs
finally exec `ccstream-report -`, which reads one JSON object from stdin: "command", "out" (the page), the numbers as in --json,
and the samples to show as lines of `ccdump cat --thumbnail`."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from . import page as pages
from .cards import CAPTION_CHARACTERS, Cards, caption_of, excerpt, images
from .study import Column, Item, Section, Table, axis, figure

_SHOWN_CLASSES = 100
_SHOWN_VISITS = 8
_FOUND = 6  # of what a query finds


def _whole(text: str) -> int | float:
    """An integer of metadata, which may be too long for int()."""
    return int(text) if len(text) < 20 else float(text)


def _bytes(count: float) -> str:
    """A size formatted as in tools/cli."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while count >= 1023.95 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.0f} B" if units[0] == "B" else f"{count:.1f} {units[0]}"


def _text(text: str, small: bool = False) -> Item:
    return {"kind": "text", "text": text, "small": small}


def _tiles(facts: dict[str, str]) -> Table:
    return Table([Column(pages.redact(name), "s") for name in facts], [[pages.redact(text) for text in facts.values()]])


# ---- ccdump show


def _image_text(s: dict[str, Any]) -> str:
    unchecked = not s["checked"] and s["text_id"] is not None  # a row of a plain tar never was
    return (f"{s['width']} x {s['height']} {s['format']}, {_bytes(s['image_bytes'])}" +
            (", re-encoded by the packer" if s["reencoded"] else "") + (", not decoded by the packer" if unchecked else ""))


def _facts(s: dict[str, Any]) -> list[list[str]]:
    out = [["key", s["key"]]] + ([["image", _image_text(s)]] if s["image_bytes"] else [])
    out += [["label", f"{s['label']} {excerpt(s['class'] or '', 120)}".rstrip()]] if s["label"] is not None else []
    out += [["cannot be packed", s["problem"]]] if "problem" in s else []
    return out + [["file", s["shard"]], ["byte", str(s["offset"])], ["xxh64", s["hash"]]]


_TEXT_CHARACTERS = 4000


def _metadata(meta: Any) -> list[Item]:
    """Fields of a JSON object; any other text unchanged."""
    if meta is None:
        return []
    if not isinstance(meta, dict):
        meta = {"text": excerpt(meta if isinstance(meta, str) else json.dumps(meta, ensure_ascii=False), _TEXT_CHARACTERS)}
    return [{"kind": "facts", "title": "Metadata", "object": meta}]


def _show(data: dict[str, Any]) -> tuple[str, Table, list[Section]]:
    cards = Cards(900 << 10, _TEXT_CHARACTERS)
    sections = []
    for s, image in data["samples"]:
        card = cards.card(image, caption_of(image, 0), [excerpt(text, _TEXT_CHARACTERS) for text in s["captions"][1:]])
        items = [images([card | {"facts": _facts(s)}], "wide"), *_metadata(s["meta"])]
        if s.get("columns"):
            items.append({"kind": "facts", "title": "Columns", "object": s["columns"]})
        sections.append(Section(f"Sample {s['id']}", items=items))
    return data["input"], Table([], []), sections


# ---- ccdump stats

# What each measure is called, and the unit of its values.
_TITLES = {"width": ("Width", "pixels"), "height": ("Height", "pixels"), "short_side": ("Shorter side", "pixels"),
           "aspect": ("Aspect", "width / height"), "image_bytes": ("Bytes per image", "bytes"),
           "captions": ("Captions per sample", "captions"), "caption_characters": ("Characters per caption", "characters"),
           "caption_words": ("Words per caption", "words")}
_SHEETS = {"short_side": "By shorter side, in pixels", "aspect": "By width / height", "image_bytes": "By bytes per image",
           "caption_words": "By words per caption", "duplicates": "Most frequent duplicates"}


def _number(measure: str, value: float) -> str:
    return f"{value:.2f}" if measure == "aspect" else f"{value:,}"


def _bin(measure: str, low: float, end: float) -> str:
    """"200 - 249": for integers the last value in the bin; a bin with one value is labelled by it."""
    first, last = _number(measure, low), _number(measure, end if measure == "aspect" else end - 1)
    return first if first == last else f"{first} - {last}"


def _bars(title: str, x: str, names: list[str], counts: list[int], total: int, note: str) -> Item:
    bars = {"name": "", "x": names, "y": counts, "texts": [f"{100 * n / total:.1f} %" for n in counts]}
    return figure("bars", title, axis(x), axis("count"), [bars], note) | {"horizontal": True}


def _measures(stats: dict[str, Any]) -> list[Item]:
    out = []
    for name, (title, unit) in _TITLES.items():
        m = stats[name]
        if m["count"]:
            names = [_bin(name, a, b) for a, b in zip(m["edges"], m["edges"][1:])]
            note = (f"min {_number(name, m['min'])}, mean {m['mean']:,.{2 if name == 'aspect' else 1}f}, "
                    f"median {_number(name, m['median'])}, max {_number(name, m['max'])}")
            out.append(_bars(title, unit, names, m["counts"], m["count"], note))
    labels = stats["labels"]
    if labels:
        names = [x["class"][:30] if x["class"] else str(x["label"]) for x in labels[:_SHOWN_CLASSES]]
        note = f"{len(labels)} with samples" + ("; the first of them, --json has them all" if len(labels) > _SHOWN_CLASSES else "")
        out.append(_bars("Classes", "class", names, [x["samples"] for x in labels[:_SHOWN_CLASSES]], stats["samples"], note))
    return out


def _stats_summary(data: dict[str, Any]) -> Table:
    stats = data["stats"]
    facts = {"samples with an image": f"{stats['samples']:,}", "captions": f"{stats['texts']:,}",
             "bytes of images": _bytes(round(stats["image_bytes"].get("mean", 0) * stats["image_bytes"]["count"])),
             "duplicates": f"{stats['duplicates']['samples']:,}"}
    facts |= {name: f"{count:,}" for name, count in stats["formats"].items()}
    facts |= {"fingerprint": data["fingerprint"]} if "fingerprint" in data else {}
    rare = {"problems": "rows that cannot be packed", "imageless": "rows without an image", "size_unknown": "images of unknown size",
            "reencoded": "re-encoded by the packer", "unchecked": "not decoded by the packer"}
    return _tiles(facts | {text: f"{stats[name]:,}" for name, text in rare.items() if stats[name]})


def _words(caption: str) -> int:
    """Number of words, counted as in ccdump."""
    return len([word for word in re.split("[ \t-\r]+", caption) if word])


def _sheet(data: dict[str, Any]) -> Item:
    cards, known, out = Cards(characters=160), {image["id"]: image for image in data["images"]}, []
    for place in data["sheet"]:
        image, row = known[place["id"]], place["row"]
        fit = [c for c in image["captions"] if row == "caption_words" and _words(c) == place["value"]]
        label = (f"{place['times']:,} times" if row == "duplicates"
                 else f"{_number(row, place['value'])}, {place['percent']} %")
        out.append(cards.card(image, fit[0] if fit else caption_of(image, 0), [f"{label}, id {place['id']}"], group=_SHEETS[row]))
    return images(out)


def _stats(data: dict[str, Any]) -> tuple[str, Table, list[Section]]:
    return data["input"], _stats_summary(data), [
        Section("Sizes and captions", items=_measures(data["stats"])),
        Section("Contact sheet", items=[_text("From the smallest to the largest: this percentage of all samples has at most the "
                                              "value below the image.", True), _sheet(data)])]


# ---- about a checkpoint


def _run_summary(data: dict[str, Any], dataset: str) -> Table:
    return _tiles({"checkpoint": data["checkpoint"], "dataset": dataset, "loss": f"{data['loss']}, tau {data['tau']:g}",
                   "epochs done": f"{data['epoch']} (step {data['step']})"})


def _last_retrieval(data: dict[str, Any]) -> list[Item]:
    """The last evaluation in RUN/metrics.jsonl up to the checkpoint RUN/checkpoints/FILE."""
    last = None
    try:
        with open(Path(os.path.realpath(data["checkpoint"])).parent.parent / "metrics.jsonl", "rb") as file:
            for line in iter(lambda: file.readline(1 << 20), b""):
                try:
                    entry = json.loads(line) if b'"retrieval":' in line else None
                except (ValueError, RecursionError):
                    continue
                if isinstance(entry, dict) and isinstance(entry.get("step"), int) and entry["step"] <= data["step"]:
                    last = entry.get("retrieval")
    except OSError:
        pass
    return [] if last is None else [{"kind": "retrieval", "title": "The run's last evaluation", "values": last}]


# ---- ccdump popularity


def _popularity(data: dict[str, Any]) -> tuple[str, Table, list[Section]]:
    by, cards, text = data["by"], Cards(), data["side"] == "text"
    zeta, several = by == "zeta", len(data["datasets"]) > 1
    value = "popularity" if zeta else "u"
    one, others = ("caption", "images") if text else ("image", "captions")
    what = (f"The popularity exp(zeta / tau) of a {one} is learned: the more {others} it matches, the larger it is, and the less the "
            "loss repels it from others. (With --zeta-gradient paper it also grows with how well its own pair is fitted, most in "
            "small batches.) All start from the same value.") if zeta else (
            "u is the moving-average estimate of how much better other candidates match than the positive: the larger, the harder "
            "the sample.")
    among = (f"Among {data['count']} {one}s the smallest {value} is {data['least']:.4g}, the median {data['median']:.4g}, the "
             f"largest {data['most']:.4g}.")
    sections = [Section("", items=[*_last_retrieval(data), _text(what), _text(among)])]
    for title, pairs in zip(["Most popular", "Least popular"] if zeta else ["Largest u", "Smallest u"], data["lists"]):
        sections.append(Section(title, items=[images([
            cards.card(image, s["caption"], [f"{s['dataset'] + ' ' if several else ''}id {s['id']}, {value} {s[value]:.4g}, "
                                             f"{by} {s[by]:.5f}"]) for s, image in pairs])]))
    return f"{'Popularity' if zeta else 'Estimates u'} of {one}s", _run_summary(data, ", ".join(data["datasets"])), sections


# ---- ccdump why


def _visits(why: dict[str, Any]) -> list[Item]:
    out = [_text(f"Steps that are not known: {why['steps_unknown']}.")] if "steps_unknown" in why else []
    if "seen" in why:
        seen, then = ([str(visit["step"]) for visit in why[name]] for name in ("seen", "next"))
        out.append(_text(f"Seen {len(seen)} times" + (", last in steps " + ", ".join(seen[-_SHOWN_VISITS:]) if seen else "") +
                         ("; next in steps " + ", ".join(then) if then else "") + "."))
    return out


def _state(why: dict[str, Any]) -> Item:
    rows = [[name, "not visited", ""] if c is None else
            [name, f"{c['value']:.6g}", f"{100 * c['smaller'] / c['of']:.1f} % of {c['of']}"] for name, c in why["state"].items()]
    return {"kind": "table", "title": "What the loss keeps of it", "rows": rows,
            "columns": [{"name": name} for name in ("column", "value", "percentile")]}


def _why(data: dict[str, Any]) -> tuple[str, Table, list[Section]]:
    why, cards, known = data["why"], Cards(), {image["id"]: image for image in data["images"]}
    own = cards.card(known[why["id"]], caption_of(known[why["id"]], 0), [], "own")
    sections = [Section("", items=[images([own], "wide"), *_visits(why), _state(why)])]
    for key, title, value in (("nearest_by_zeta", "Nearest by zeta", "zeta"), ("nearest_images", "Nearest images", "cosine"),
                              ("nearest_texts", "Nearest captions", "cosine")):
        told = "With the zeta of their caption (text.zeta)." if value == "zeta" else "With cosine similarity to the image."
        items = [_text(why.get(f"{key}_unknown", told))]
        items.append(images([cards.card(known[x["id"]], x["caption"], [f"id {x['id']}, {x[value]:.5f}" + (
            ", its own" if x["id"] == why["id"] else "")], "own" if x["id"] == why["id"] else "") for x in why[key] or []]))
        sections.append(Section(title, items=items))
    return f"Sample {why['id']}", _tiles({"dataset": data["dataset"], "run": data["run"], "steps": str(why["steps_done"])}), sections


# ---- ccstream-eval retrieval


def found_line(known: dict[int, dict[str, Any]], query: Any, found: Any, caption: bool) -> dict[str, str]:
    """One retrieved result, marked as correct or not, with its score: the text of a caption, the id of an image."""
    text = (" " + caption_of(known[found["id"]], found.get("caption", 0))[:CAPTION_CHARACTERS] if caption
            else f", id {found['id']}")
    return {"mark": "right" if query["id"] == found["id"] else "wrong", "text": f"{found['score']:.3f}{text}"}


def _queries(cards: Cards, known: dict[int, dict[str, Any]], queries: list[Any], by_caption: bool) -> Item:
    out = []
    for q in queries:
        own = known[q["id"]]
        if by_caption:
            text = caption_of(own, q["caption"])
            group = f"\u201c{text[:100]}\u201d, its image is number {q['rank']}"
            out += [cards.card(known[x["id"]], caption_of(known[x["id"]], 0), [line], line["mark"], group)
                    for x in q["found"] for line in [found_line(known, q, x, False)]]
        else:
            out.append(cards.card(own, caption_of(own, 0), [f"id {own['id']}, its caption is number {q['rank']}",
                                                            *(found_line(known, q, x, True) for x in q["found"])]))
    return images(out, "cards" if by_caption else "rows")


def _retrieval(data: dict[str, Any]) -> tuple[str, Table, list[Section]]:
    cards, known = Cards(), {image["id"]: image for image in data["images"]}
    sections = [Section("Recall", items=[
        {"kind": "retrieval", "title": "On this dataset", "values": data["retrieval"]},
        _text("R@k: fraction of queries whose correct match ranks in the top k. The number beside a mark is the score, the cosine of "
              "the two embeddings: 1 is the same direction, 0 unrelated, -1 opposite. \u2713 is the pair of the dataset; every other "
              "image or caption counts as incorrect, \u2717, even where it reads the same.")])]
    for side, title, own in (("t2i", "Captions and the images they find", "image"), ("i2t", "Images and the captions they find", "caption")):
        queries = data[side]
        items = []
        for word, where, part in (("Found", "among", [q for q in queries if q["rank"] <= _FOUND]),
                                  ("Missed", "not among", [q for q in queries if q["rank"] > _FOUND])):
            items += [_text(f"{word}: {len(part)} of {len(queries)} examples. The right {own} is {where} the first {_FOUND}."),
                      _queries(cards, known, part, side == "t2i")]
        sections.append(Section(title, items=items))
    return "What captions and images find", _run_summary(data, data["dataset"]), sections


# ---- any of them

_PAGES = {"ccdump show": _show, "ccdump stats": _stats, "ccdump popularity": _popularity, "ccdump why": _why,
          "ccstream-eval retrieval": _retrieval}


def _plain(sections: list[Section]) -> str:
    """For readers without JavaScript: the first figure, else the first image."""
    items = [item for s in sections for item in s.items]
    for item in items:
        if item["kind"] == "bars":
            return pages.plain_bars(item)
    for image in (image for item in items if item["kind"] == "images" for image in item["items"] if "src" in image):
        return f'<figure class="plain"><img alt="" src="{image["src"]}"></figure>\n'
    return ""


def write() -> None:
    data = json.loads(sys.stdin.buffer.read(), parse_int=_whole)
    title, summary, sections = _PAGES[data["command"]](data)
    page = pages.page_html(data["command"], title, summary, sections, _plain(sections), tiles=True)
    pages.write(Path(data["out"]), page)
