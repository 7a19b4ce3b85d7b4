#!/usr/bin/env python3
"""Makes phash.txt: perceptual hashes of the pictures below, in float64 without any rounding.

    pip install numpy pillow scipy imagehash; tests/golden/phash/make_phash.py [FOLDER]

A line of phash.txt: kind, width, height, hash. With FOLDER (of pictures), real.txt too: name and hash of
each as ImageHash gives it, for `ccpack --phash`. ImageHash must agree with phash() up to its rounding to
8-bit pixels; that is checked here.
"""
import os
import sys

import imagehash
import numpy as np
from PIL import Image

KINDS = 3
SIZES = [(256, 256), (341, 256), (640, 480), (61, 47), (32, 32), (33, 200), (1000, 60), (20, 300), (40, 9)]


def picture(kind, width, height):
    """As test_phash.c makes it: 0 discs, 1 slanted waves, 2 pattern of the resize tests."""
    x, y, c = np.meshgrid(np.arange(width), np.arange(height), np.arange(3), indexing="xy")
    if kind == 0:
        u, v = x * 1000 // width, y * 1000 // height
        near = (u - 300) ** 2 + (v - 400) ** 2 < 62500
        far = (u - 800) ** 2 + (v - 700) ** 2 < 22500
        value = 40 + 10 * c + 150 * near + (90 - 40 * c) * far
    elif kind == 1:
        wave = np.abs((x * 2000 // width + y * 1300 // height) % 1400 - 700)
        value = wave * (200 - 30 * c) // 700 + x * y * 55 // (width * height)
    else:
        value = (x * 7 + y * 13 + c * 50) ^ ((x * y) >> 3)
    return (value & 255).astype(np.uint8)


def lanczos(n):
    """The 32 x n matrix that reduces n pixels to 32."""
    scale = n / 32
    stretch = max(scale, 1.0)
    centre = (np.arange(32) + 0.5)[:, None] * scale
    t = (np.arange(n)[None, :] + 0.5 - centre) / stretch
    w = np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0.0)
    return w / w.sum(axis=1, keepdims=True)


def phash(rgb):
    gray = rgb.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    small = lanczos(gray.shape[0]) @ gray @ lanczos(gray.shape[1]).T
    n, k = np.meshgrid(np.arange(32), np.arange(8))
    basis = np.cos(np.pi * (2 * n + 1) * k / 64)
    low = basis @ small @ basis.T
    bits = low > np.median(low)
    return int("".join("01"[int(b)] for b in bits.flatten()), 2)


here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "phash.txt"), "w", encoding="utf-8") as out:
    for kind in range(KINDS):
        for width, height in SIZES:
            rgb = picture(kind, width, height)
            value = phash(rgb)
            theirs = int(str(imagehash.phash(Image.fromarray(rgb))), 16)
            apart = (value ^ theirs).bit_count()
            assert apart <= 4, (kind, width, height, apart)
            if apart:
                print(f"{kind} {width}x{height}: ImageHash differs in {apart} bits")
            out.write(f"{kind} {width} {height} {value:016x}\n")
if len(sys.argv) > 1:
    with open(os.path.join(here, "real.txt"), "w", encoding="utf-8") as out:
        out.write(f"# ImageHash {imagehash.__version__}\n")
        for name in sorted(os.listdir(sys.argv[1])):
            if name.endswith(".jpg"):
                out.write(f"{name[:-4]} {imagehash.phash(Image.open(os.path.join(sys.argv[1], name)))}\n")
