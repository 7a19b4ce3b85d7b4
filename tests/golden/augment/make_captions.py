#!/usr/bin/env python3
"""Makes captions.bin (caption NUL cleaned NUL ...) and captions.txt (file of the test data, count,
XXH64 of all cleaned captions, each with a newline) with the rules of augment/caption.h in Python.

    pip install xxhash; tests/golden/augment/make_captions.py TESTDATA
"""
import os
import re
import sys

import xxhash

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from data_captions import SOURCES, captions

CAPTIONS = [
    "", " ", "\n", "A dog, running!", "  A  man's (red) hat: #1; \"new\" *best* ~ ok?  \n\n",
    "black-and-white photo / poster", "- a -- b // c", "<PERSON> meets <person>s at the <per.son>",
    "<person><person>", "<person", "one\ttab stays", "two\t\ttabs\r\n\r\nand lines", "trailing \n \n",
    "x\u00a0y \u00a0 z\u3000\u3000w", "CAFÉ ÀÉÎÕÜ ÇÑ ŁÓDŹ ĲSSELMEER", "ÉCOLE É",
    "Một Người Đàn Ông Đang CƯỠI NGỰA, Trên Bãi Biển!", "Hai ĐỨA TRẺ Ở Ẩm ỰỴ ƯƠ Ư-Ơ",
    "Трое ДЕТЕЙ ИГРАЮТ В СНЕГУ", "ΑΒΓ ΔΕΖ ΩΨΧ", "İSTANBUL IŞIK", "Ⱥ Ⱦ ẞ K Å Ω Ɀ", "ԱԲԳ Ⴀ Ა Ꭰ 𐐀 𞤀 Ａ",
    "日本語の「写真」、です。", "emoji 😀 -😀- family 👨‍👩‍👧", "x" * 300,
    " ".join(f"w{i}" for i in range(29)), " ".join(f"w{i}" for i in range(30)),
    " ".join(f"w{i}" for i in range(31)), "  ".join(f"W{i}." for i in range(90)) + "\n",
    "ΟΔΟΣ ΣΟΦΟΣ. ΑΣ'Β ΑΣ' Σ 1Σ Σ1 .Σ. Α.Σ.Β Α.Σ.", "ΣΣ ΑΣΣ\u0301 \u02b0Σ ªΣ ΑΣª ΑΣ-Α ΑΣ\u00adΑ ΑΣ😀", "ΑΣ",
    "a . b , c", ". , ! ?", "\v\fa\x1c\x1db\x85\x85c", "1/2-3", "don't \"quote\" me's",
]


def clean(caption, max_words=30):
    caption = re.sub(r"[,.'!?\"()*#:;~]", "", caption.lower())
    caption = caption.replace("-", " ").replace("/", " ").replace("<person>", "person")
    caption = re.sub(r"\s{2,}", " ", caption).rstrip("\n").strip(" ")
    return " ".join(caption.split(" ")[:max_words])


here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "captions.bin"), "wb") as out:
    for caption in CAPTIONS:
        out.write(caption.encode() + b"\0" + clean(caption).encode() + b"\0")
with open(os.path.join(here, "captions.txt"), "w") as out:
    for name in SOURCES:
        count, state = 0, xxhash.xxh64()
        for caption in captions(sys.argv[1], name):
            state.update(clean(caption).encode() + b"\n")
            count += 1
        out.write(f"{name} {count} {state.hexdigest()}\n")
