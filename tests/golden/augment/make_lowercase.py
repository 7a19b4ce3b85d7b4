#!/usr/bin/env python3
"""Prints the tables of formats/base/lowercase.c: Python's lower case, as ranges of code points.

    tests/golden/augment/make_lowercase.py

A row (first, last, step, delta) means that first, first + step, ... last become themselves + delta.
Omitted: what becomes more than one code point (U+0130 alone; lowercase.c has it by hand).
The other two, what makes a capital sigma after it a final one and what the question skips, are
numbers of code points that are not, are, are not ... of the kind.
"""
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


def show(head, items):
    print(head)
    line = "   "
    for item in items:
        if len(line) + len(item) > 99:
            print(line)
            line = "   "
        line += " " + item
    print(line)
    print("};")


print("/* clang-format off */")
show(f"""/* Unicode {unicodedata.unidata_version}, {len(pairs)} code points. */
static const struct lower_range lower_ranges[] = {{""",
     [f"{{0x{first:X}, 0x{last:X}, {step or 1}, {delta}}}," for first, last, step, delta in rows])


def show_runs(name, holds):
    runs, held = [0], False
    for c in range(0x110000):
        if holds(chr(c)) != held:
            held = not held
            runs.append(0)
        runs[-1] += 1
    show(f"static const uint32_t {name}[] = {{", [f"{n}," for n in (runs if held else runs[:-1])])


def is_ignorable(c):
    return ("A" + c + "\u03a3").lower()[-1] == "\u03c2" and ("1" + c + "\u03a3").lower()[-1] == "\u03c3"


show_runs("cased", lambda c: ("1" + c + "\u03a3").lower()[-1] == "\u03c2")
show_runs("case_ignorable", is_ignorable)
print("/* clang-format on */")
