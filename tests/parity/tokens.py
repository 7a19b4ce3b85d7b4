#!/usr/bin/env python3
"""Compares the ids of CLIP's tokenizer with open_clip's own, text by text.

    pip install --no-deps open_clip_torch==3.3.0 && pip install ftfy regex tokenizers
    tests/parity/tokens.py LIBCCSTREAM DATA [--captions N] [--random N]

DATA is the folder of the test data: its captions, again and again in variants (case, quotes, names of HTML,
numbers, prompts, two in one, decomposed letters), and strings of random characters of Unicode 14. Texts that
ftfy takes for a wrong encoding may differ, and are counted; any other difference fails. So do rows of 77,
Hugging Face's byte-level BPE of tests/golden/tokenizer, and CLIP's ids from tokenizer.json.
"""
import argparse
import os
import random
import sys
import unicodedata

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "../golden")]
from clip_oracle import Ccstream, OpenClip, hugging_face_clip
from data_captions import SOURCES, captions
from tokenizers import Tokenizer

parser = argparse.ArgumentParser()
parser.add_argument("shared_object")
parser.add_argument("data")
parser.add_argument("--captions", type=int, default=1000000)
parser.add_argument("--random", type=int, default=200000)
a = parser.parse_args()
draw = random.Random(1)
open_clip = OpenClip()
ours = Ccstream(a.shared_object, open_clip.merges)
fix_text = open_clip.module.ftfy.fix_text
PROMPTS = ["a photo of a {}.", "itap of {}!", "{}'s photo", "“{}”", "#{} @home", "{} (2020)", "art: {} &amp; more", "{} 😀🇩🇪", "<b>{}</b>"]
PIECES = ["&amp;", "&lt;", "&#39;", "&copy", "&notit;", "&#128;", "<start_of_text>", "<end_of_text>", "'s", "'LL", "&EACUTE;",
          "\x1b[31m", "\n", "\r\n", "<", "&#x1F600;", "Σ", "&nbsp;", "ΟΔΟΣ", "ﬁ", "ŉ", "e\u0301\u0323", "\u0345", "가",
          "\u1112\u1161\u11ab", "  ", "\u2019s", "don't", "&", "#", ";", "12", "½"]
ASSIGNED = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def variant(text, turn):
    if turn == 0:
        return text
    kind = draw.randrange(10)
    if kind == 0:
        return text.upper()
    if kind == 1:
        return text.title().replace("'", "\u2019")
    if kind == 2:
        return unicodedata.normalize("NFD", text)
    if kind == 3:
        return text.replace("&", "&amp;").replace('"', "&quot;").replace("a", "a ", 1)
    if kind == 4:
        return text + " " + str(draw.randrange(100000)) + draw.choice(["%", "px", "th", ".5"])
    words = text.split(" ")
    draw.shuffle(words)
    return draw.choice(PROMPTS).format(" ".join(words))


def real_captions(count):
    texts = [t for source in SOURCES for t in captions(a.data, source)]
    for n in range(count):
        yield variant(texts[n % len(texts)], n // len(texts))


def random_text():
    out = []
    for _ in range(draw.randrange(1, 30)):
        q = draw.random()
        out.append(chr(draw.randrange(128)) if q < 0.3 else draw.choice(PIECES) if q < 0.5
                   else chr(draw.choice(ASSIGNED)) if q < 0.75 else chr(draw.randrange(0x80, 0x3000)) if q < 0.9
                   else chr(draw.randrange(0x300, 0x345)))
    return "".join(c for c in "".join(out) if unicodedata.category(c) not in ("Cn", "Cs"))


def compare(what, texts, encode, expected, limit=4096):
    """Both give ids without begin and end. Returns the number of differences that nothing excuses."""
    seen = wrong_encoding = other = 0
    batch = []

    def flush():
        nonlocal seen, wrong_encoding, other
        for text, got in zip(batch, encode(batch)):
            seen += 1
            want = expected(text)
            if got != want[:limit - 2]:
                if fix_text(text) != fix_text(text, fix_encoding=False):
                    wrong_encoding += 1
                else:
                    other += 1
                    print(f"{what}: {ascii(text)}\n  {got[:20]}\n  {want[:20]}", file=sys.stderr)
        batch.clear()

    for text in texts:
        batch.append(text)
        if len(batch) == 1000:
            flush()
    flush()
    print(f"{what}: {seen:,} texts, {wrong_encoding:,} that ftfy takes for a wrong encoding differ, {other:,} others",
          flush=True)
    return other


failed = compare("captions", real_captions(a.captions), lambda b: ours.encode_all(b, 256), open_clip.encode, 256)
failed += compare("random strings", (random_text() for _ in range(a.random)), ours.encode_all, open_clip.encode)
failed += compare("rows of 77", (" ".join(random_text() for _ in range(8)) for _ in range(min(2000, a.random))),
                  lambda b: ours.encode_all(b, 77), open_clip.encode, 77)
path = os.path.join(here, "../golden/tokenizer/byte_bpe.json")
with open(path, "rb") as f:
    byte_level = Ccstream(a.shared_object, f.read())
theirs = Tokenizer.from_file(path)
failed += compare("byte level", (random_text() for _ in range(a.random)), byte_level.encode_all,
                  lambda text: theirs.encode(text).ids)
from_json = Ccstream(a.shared_object, hugging_face_clip(open_clip.merges).to_str().encode())
failed += compare("tokenizer.json", real_captions(min(20000, a.captions)), lambda b: from_json.encode_all(b, 256),
                  open_clip.encode, 256)
sys.exit(failed != 0)
