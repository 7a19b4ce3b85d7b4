#!/usr/bin/env python3
"""Makes sentencepiece.txt: for every file of the test data, captions and XXH64 of their i32 ids by
the sentencepiece package with the test data's own model: rows of 30, begin and end pieces included,
filled up with the unknown piece, because that model has no padding.

    pip install sentencepiece==0.2.3 xxhash; tests/golden/tokenizer/make_sentencepiece.py TESTDATA
"""
import os
import struct
import sys

import sentencepiece
import xxhash

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, ".."))
from data_captions import SOURCES, captions

root = sys.argv[1]
model = sentencepiece.SentencePieceProcessor(
    model_file=os.path.join(root, "formats/sentencepiece_test_model.model"))


def row(caption):
    ids = [model.bos_id()] + model.encode(caption)[:28] + [model.eos_id()]
    return struct.pack("<30i", *(ids + [model.unk_id()] * (30 - len(ids))))


with open(os.path.join(here, "sentencepiece.txt"), "w") as f:
    for name in SOURCES:
        rows = [row(c) for c in captions(root, name)]
        f.write(f"{name} {len(rows)} {xxhash.xxh64(b''.join(rows)).hexdigest()}\n")
