#!/usr/bin/env python3
"""Makes png/*.png, one for each colour type, depth and interlacing, and png/*.rgb, what they mean.

No library decides what is right here: samples are chosen, packed and interlaced by this script.
"""
import os
import struct
import zlib

WIDTH, HEIGHT = 13, 9
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PALETTE = [((i * 37) & 255, (i * 91) & 255, (i * 151) & 255) for i in range(256)]
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "png")


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def sample(x, y, c, depth):
    top = (1 << depth) - 1
    return ((x * 40503 + y * 30011 + c * 7919 + x * y * 257) >> 1) & top


def packed(pixels, depth):
    bits = "".join(f"{v:0{depth}b}" for p in pixels for v in p)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def to8(v, depth):
    top = (1 << depth) - 1
    return (v * 255 + top // 2) // top


def meaning(pixel, kind, depth, key):
    if kind == 3:
        r, g, b = PALETTE[pixel[0]]
        a = (pixel[0] * 17) & 255 if key else 255
    elif kind in (0, 4):
        r = g = b = to8(pixel[0], depth)
        a = to8(pixel[1], depth) if kind == 4 else 0 if key and pixel[0] == key[0] else 255
    else:
        r, g, b = (to8(v, depth) for v in pixel[:3])
        a = to8(pixel[3], depth) if kind == 6 else 0 if key and pixel == key else 255
    return bytes((v * a + 255 * (255 - a) + 127) // 255 for v in (r, g, b))


def write(kind, depth, interlaced, transparent):
    rows = [[tuple(sample(x, y, c, depth) for c in range(CHANNELS[kind])) for x in range(WIDTH)]
            for y in range(HEIGHT)]
    key = rows[4][6] if transparent else None
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    data = b""
    for x0, y0, dx, dy in passes:
        for y in range(y0, HEIGHT, dy):
            line = rows[y][x0::dx]
            if line:
                data += b"\0" + packed(line, depth)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, kind, 0,
                                                           0, interlaced))
    if kind == 3:
        count = 1 << depth
        out += chunk(b"PLTE", b"".join(bytes(p) for p in PALETTE[:count]))
        if transparent:
            out += chunk(b"tRNS", bytes((i * 17) & 255 for i in range(count)))
    elif transparent:
        out += chunk(b"tRNS", struct.pack(f">{len(key)}H", *key))
    out += chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")
    name = f"type{kind}_{depth}bit" + ("_adam7" if interlaced else "") + ("_trns" if transparent else "")
    with open(os.path.join(HERE, name + ".png"), "wb") as f:
        f.write(out)
    with open(os.path.join(HERE, name + ".rgb"), "wb") as f:
        f.write(b"".join(meaning(p, kind, depth, key) for row in rows for p in row))


for kind, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
    for depth in depths:
        for interlaced in (0, 1):
            for transparent in ((False, True) if kind in (0, 2, 3) else (False,)):
                write(kind, depth, interlaced, transparent)
