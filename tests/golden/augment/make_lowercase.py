#!/usr/bin/env python3
"""Prints the rows of augment/caption_lower.c: Python's lower case, as ranges of code points.

    tests/golden/augment/make_lowercase.py | clang-format

A row (first, last, step, delta) says that first, first + step, ... last become themselves + delta.
Left out: what becomes more than one code point (U+0130 alone; caption.c has it by hand).
"""
import sys
import unicodedata

pairs = [(c, ord(chr(c).lower())) for c in range(0x110000)
         if len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)]
rows = []
for c, l in pairs:
    if rows:
        first, last, step, delta = rows[-1]
        gap = c - last
        if l - c == delta and ((step == 0 and gap <= 2) or gap == step):
            rows[-1] = (first, c, gap, delta)
            continue
    rows.append((c, c, 0, l - c))
print(f"/* Unicode {unicodedata.unidata_version}, {len(pairs)} code points. */", file=sys.stdout)
for first, last, step, delta in rows:
    print(f"    {{0x{first:04X}, 0x{last:04X}, {step or 1}, {delta}}},")
