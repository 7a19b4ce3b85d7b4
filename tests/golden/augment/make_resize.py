#!/usr/bin/env python3
"""Makes resize.txt and resize.bin: what Pillow gives for the cases below.

    pip install pillow; tests/golden/augment/make_resize.py

Each line of resize.txt: width height of the input, the box in it, width height of the result, filter
(1 bilinear, 2 bicubic, 3 Lanczos). resize.bin holds the results in the same order. Pixels outside the whole
pixels that the box touches do not count, as after a crop.
"""
import math
import os

import PIL
from PIL import Image

FILTERS = {1: Image.Resampling.BILINEAR, 2: Image.Resampling.BICUBIC, 3: Image.Resampling.LANCZOS}
CASES = [
    # in        box                          out       filter
    (64, 48, (0, 0, 64, 48), (32, 24)),
    (64, 48, (0, 0, 64, 48), (31, 17)),
    (64, 48, (5, 7, 40, 33), (40, 33)),
    (64, 48, (5, 7, 40, 33), (48, 48)),
    (200, 150, (10, 20, 170, 120), (48, 48)),
    (200, 150, (0, 0, 200, 150), (13, 9)),
    (333, 222, (17.5, 8.25, 300.5, 200.75), (48, 40)),
    (333, 222, (0.5, 0.5, 24.0, 30.5), (40, 40)),
    (60, 60, (59, 0, 1, 60), (8, 8)),
    (3, 5, (0, 0, 3, 5), (20, 20)),
    (1, 1, (0, 0, 1, 1), (6, 4)),
    (5, 2, (1, 0, 3, 2), (2, 7)),
    (500, 40, (0, 0, 500, 40), (7, 40)),
    (40, 500, (0, 0, 40, 500), (40, 7)),
]


def picture(width, height):
    data = bytes(((x * 7 + y * 13 + c * 50) ^ ((x * y) >> 3)) & 255
                 for y in range(height) for x in range(width) for c in range(3))
    return Image.frombytes("RGB", (width, height), data)


here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "resize.txt"), "w") as lines, \
        open(os.path.join(here, "resize.bin"), "wb") as pixels:
    lines.write(f"# Pillow {PIL.__version__}\n")
    for width, height, (x, y, w, h), size in CASES:
        left, top = math.floor(x), math.floor(y)
        part = picture(width, height).crop((left, top, math.ceil(x + w), math.ceil(y + h)))
        box = (x - left, y - top, x - left + w, y - top + h)
        for code, name in FILTERS.items():
            pixels.write(part.resize(size, name, box=box).tobytes())
            lines.write(f"{width} {height} {x} {y} {w} {h} {size[0]} {size[1]} {code}\n")
