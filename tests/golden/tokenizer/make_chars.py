#!/usr/bin/env python3
"""Writes formats/tokenizer/bert/chars.bin and sequences.bin: what BERT's uncased normaliser makes of every code
point, as tokenizer_words_internal.h describes them.

    pip install tokenizers==0.22.2; tests/golden/tokenizer/make_chars.py

The library itself is asked about each code point, because its Unicode tables are older than
Python's, and its answers are what published models were trained with. Its combining classes are
found by comparison with marks of which Python's unicodedata knows the class.
"""
import pathlib
import struct
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


KINDS = ("LETTER", "MARK", "ALONE", "SPACE", "DROP", "BREAK", "SEQUENCE")  # enum char_kind


def runs(whats):
    """Pairs (first code point, what it becomes), up to the first of the next: all of the run the same, or, with the
    highest bit of `first`, each one more than the one before it."""
    out, c = [], 0
    while c < len(whats):
        end = c + 1
        step = whats[end] - whats[c] if end < len(whats) else 0
        while step in (0, 1) and end < len(whats) and whats[end] - whats[end - 1] == step:
            end += 1
        out.append((c | (step == 1) << 31, whats[c]))
        c = end
    return out


sequences, whats = [], list(range(0x110000))  # a letter that stays
for c in CODE_POINTS:
    kind, target = classify(c)
    if kind == "SEQUENCE":
        sequences.append(target + (0,) * (3 - len(target)))
        target = len(sequences) - 1
    whats[c] = KINDS.index(kind) << 24 | target
folder = pathlib.Path(__file__).parents[3] / "formats/tokenizer/bert"
(folder / "chars.bin").write_bytes(b"".join(struct.pack("<2I", *run) for run in runs(whats)))
(folder / "sequences.bin").write_bytes(b"".join(struct.pack("<3I", *s) for s in sequences))
