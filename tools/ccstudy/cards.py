"""Cards of samples on a page: a small image, its caption, and lines below. A sample is a line of `ccdump cat --thumbnail`."""

from __future__ import annotations

from typing import Any

from .study import Item

CAPTION_CHARACTERS = 240


def excerpt(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "\u2026"


def images(items: list[Item], layout: str = "cards", title: str = "") -> Item:
    return {"kind": "images", "layout": layout, "items": items} | ({"title": title} if title else {})


class Cards:
    """Builds cards. room: bytes of the page that are left for their images."""

    def __init__(self, room: int = 512 << 20, characters: int = CAPTION_CHARACTERS):
        self.room, self.characters = room, characters

    def card(self, sample: dict[str, Any], caption: str, lines: list[Any], mark: str = "", group: str = "") -> Item:
        out: Item = {"caption": excerpt(caption, self.characters), "lines": lines}
        image = sample.get("thumbnail")
        if image is None:
            out["missing"] = sample.get("missing", "no image")
        elif self.room < len(image):
            out["missing"] = "image omitted"
        else:
            self.room -= len(image)
            out["src"] = image
        return out | ({"mark": mark} if mark else {}) | ({"group": group} if group else {})


def caption_of(sample: dict[str, Any], k: int) -> str:
    """Caption k, or the first one if there are fewer."""
    captions = sample["captions"]
    return captions[k if k < len(captions) else 0] if captions else ""
