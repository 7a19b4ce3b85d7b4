#!/usr/bin/env python3
"""Prints formats/tokenizer/tokenizer_chars.c: what BERT's uncased normaliser makes of every code point.

    pip install tokenizers==0.22.2; tests/golden/tokenizer/make_chars.py >formats/tokenizer/tokenizer_chars.c

The library itself is asked about each code point, because its Unicode tables are older than
Python's, and its answers are what published models were trained with. Its combining classes are
found by comparison with marks of which Python's unicodedata knows the class.
"""
import unicodedata

from tokenizers import normalizers, pre_tokenizers

bert = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None,
                                  lowercase=True)
clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False,
                                   lowercase=False)
nfd = normalizers.NFD()
split = pre_tokenizers.BertPreTokenizer()

HANGUL = range(0xAC00, 0xD7A4)  # decomposed by arithmetic
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c not in HANGUL]
# A mark of every combining class, to find the class that the library gives a mark: the library
# sorts each of them before U+0345, whose class is the highest.
RULERS = {240: "\u0345"}
for c in CODE_POINTS:
    k = unicodedata.combining(chr(c))
    if k and k not in RULERS and nfd.normalize_str("a\u0345" + chr(c)) == "a" + chr(c) + "\u0345":
        RULERS[k] = chr(c)


def between(normaliser, text):
    out = normaliser.normalize_str("a" + text + "b")
    assert out[0] == "a" and out[-1] == "b"
    return out[1:-1]


def combining(c):
    """The library's class: that of the ruler which c keeps its place before and behind; 0 for what
    no mark moves across."""
    c = ord(nfd.normalize_str(chr(c))[0])
    if chr(c) == RULERS[240]:
        return 240
    if nfd.normalize_str("a\u0345" + chr(c))[1] == "\u0345" and (
            nfd.normalize_str("a" + chr(c) + "\u0334")[1] == chr(c)):
        return 0
    for k, mark in RULERS.items():
        if (nfd.normalize_str("a" + chr(c) + mark)[1] == chr(c)
                and nfd.normalize_str("a" + mark + chr(c))[1] == mark):
            return k
    raise ValueError(f"U+{c:04X} has a combining class that nothing else has")


def words(text):
    return len(split.pre_tokenize_str("a" + text + "b"))


def classify(c):
    """(kind, target): target is a code point, a combining class or a tuple of code points."""
    out = between(bert, chr(c))
    if out == " ":
        return "SPACE", 0
    if out == "":
        dropped_early = between(clean, chr(c)) == ""
        return "DROP" if dropped_early or combining(c) else "BREAK", 0
    if out[0] == " ":
        assert out[-1] == " " and len(out) == 3
        return "ALONE", ord(out[1])
    if len(out) > 1:
        assert words(out) == 1
        return "SEQUENCE", tuple(map(ord, out))
    if words(out) == 3:
        assert combining(c) == 0
        return "ALONE", ord(out)
    assert words(out) == 1
    if out == chr(c) and combining(c):
        return "MARK", combining(c)
    assert combining(ord(out)) == 0
    return "LETTER", ord(out)


def rows_of(classes):
    """(first, last, step, kind, constant?, value): every step-th code point from first to last; the
    others between are letters that stay. Value is a target, or is added to the code point."""
    rows = []
    for c, (kind, target) in classes:
        delta = target - c if kind in ("LETTER", "ALONE") else None
        if rows:
            r = rows[-1]
            gap = c - r["last"]
            if kind == r["kind"] and (r["step"] in (0, gap)) and gap <= (2 if kind == "LETTER" else 1):
                same_value, same_delta = r["value"] == target, delta is not None and r["delta"] == delta
                if (r["form"] in (None, "value") and same_value) or (
                        r["form"] in (None, "delta") and same_delta):
                    r["form"] = "value" if same_value else "delta"
                    r["last"], r["step"] = c, gap
                    continue
        rows.append(dict(first=c, last=c, step=0, kind=kind, form=None, value=target, delta=delta))
    return rows


def tabulate(rows, targets, table):
    """Rows of one kind that lie close together and follow no rule become one row with a list of
    targets: {first: target} of all rows is `targets`."""
    out, group = [], []

    def flush():
        if group:
            first, last = group[0]["first"], group[-1]["last"]
            if last - first + 1 < 5 * len(group) - 5:
                out.append(dict(first=first, last=last, step=1, kind=group[0]["kind"], form="table",
                                value=len(table)))
                table.extend(targets.get(c, c) for c in range(first, last + 1))
            else:
                out.extend(group)
            group.clear()

    for r in rows:
        if r["kind"] not in ("LETTER", "ALONE") or r["last"] - r["first"] > 12:
            flush()
            out.append(r)
            continue
        if group and (r["kind"] != group[0]["kind"] or r["first"] - group[-1]["last"] >
                      (6 if r["kind"] == "LETTER" else 1)):
            flush()
        group.append(r)
    flush()
    return out


sequences, classes = [], []
for c in CODE_POINTS:
    kind, target = classify(c)
    if kind == "SEQUENCE":
        sequences.append(target + (0,) * (3 - len(target)))
        target = len(sequences) - 1
    if (kind, target) != ("LETTER", c):
        classes.append((c, (kind, target)))
table = []
rows = tabulate(rows_of(classes), {c: t for c, (_, t) in classes}, table)
print("""/*
 * What BERT's uncased normaliser makes of a code point: made by
 * tests/golden/tokenizer/make_chars.py, not by hand.
 */
/* clang-format off */
#include "formats/tokenizer/tokenizer_words_internal.h"

#define DROP(first, last) {first, last, 1, CHAR_DROP, VALUE, 0}
#define BREAK(first, last) {first, last, 1, CHAR_BREAK, VALUE, 0}
#define ALONE(first, last) {first, last, 1, CHAR_ALONE, DELTA, 0} /* unchanged */
#define LETTER(first, last, step, delta) {first, last, step, CHAR_LETTER, DELTA, delta}
#define LIST(first, last, at) {first, last, 1, CHAR_LETTER, TABLE, at}
#define ROW(first, last, step, kind, form, value) {first, last, step, CHAR_##kind, form, value}
#define TO(first, last, value) {first, last, 1, CHAR_LETTER, VALUE, value}
#define MARK(first, last, value) {first, last, 1, CHAR_MARK, VALUE, value}
#define PARTS(first, value) {first, first, 1, CHAR_SEQUENCE, VALUE, value}

/* Code points first, first + step, ... last; those between and outside are letters that stay. */
const struct tokenizer_char_row tokenizer_char_rows[] = {""")


def show(items):
    line = ""
    for item in items:
        if len(line) + len(item) > 97:
            print("   " + line)
            line = ""
        line += " " + item
    print("   " + line)


FORM = {"table": "TABLE", "value": "VALUE", "delta": "DELTA", None: "VALUE"}
items = []
for r in rows:
    delta = r["form"] == "delta" or (r["form"] is None and r["kind"] == "ALONE")
    form = "DELTA" if delta else FORM[r["form"]]
    value, step = r["delta"] if delta else r["value"], r["step"] or 1
    span = f"0x{r['first']:X}, 0x{r['last']:X}"
    kind = r["kind"]
    if (kind, form, value, step) in [("DROP", "VALUE", 0, 1), ("BREAK", "VALUE", 0, 1),
                                     ("ALONE", "DELTA", 0, 1)]:
        items.append(f"{kind}({span}),")
    elif (kind, form) == ("LETTER", "DELTA"):
        items.append(f"LETTER({span}, {step}, {value}),")
    elif form == "VALUE" and step == 1 and kind in ("LETTER", "MARK"):
        items.append(f"{'TO' if kind == 'LETTER' else 'MARK'}({span}, {value}),")
    elif (kind, form, step, r["last"]) == ("SEQUENCE", "VALUE", 1, r["first"]):
        items.append(f"PARTS(0x{r['first']:X}, {value}),")
    else:
        items.append(f"LIST({span}, {value})," if (kind, form) == ("LETTER", "TABLE")
                     else f"ROW({span}, {step}, {kind}, {form}, {value}),")
show(items)


def literal(c):
    """In a string of C: ideographs that no editor normalises and ASCII as they are, the rest as
    escapes."""
    if 0x3400 <= c < 0xA000 or 0x20 <= c < 0x7F and chr(c) not in '"\\?':
        return chr(c)
    return "\\" + chr(c) if c < 0x7F else f"\\u{c:04X}" if c < 0x10000 else f"\\U{c:08X}"


print(f"""}};
const size_t tokenizer_char_row_count = {len(rows)};

/* What the code points of a row with a list become, one after the other. */
const uint32_t tokenizer_char_targets[] =""")
line = ""
for text in map(literal, table):
    if sum(2 if ord(ch) > 0x3000 else 1 for ch in line + text) > 93:
        print(f'    U"{line}"')
        line = ""
    line += text
print(f"""    U"{line}";

/* Letters and marks that one code point becomes, filled up with zeros. */
const uint32_t tokenizer_char_sequences[][3] = {{""")
show("{" + ", ".join(f"0x{c:X}" if c else "0" for c in s) + "}," for s in sequences)
print("};")
