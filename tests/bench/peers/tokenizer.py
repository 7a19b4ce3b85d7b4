#!/usr/bin/env python3
"""Captions per second and core: ccstream's byte-level BPE beside Hugging Face's tokenizers and open_clip.

    pip install --no-deps open_clip_torch==3.3.0 && pip install ftfy regex tokenizers
    tests/bench/peers/tokenizer.py LIBCCSTREAM CAPTIONS.txt [--byte TOKENIZER.json]

CAPTIONS.txt has a caption a line. All run on one thread of one core, alternately, three times each; the
best counts. tokenizers does what CLIP's own tokenizer.json asks of it (NFC, white space, lower case, words,
merges), so it mends less than ccstream and open_clip do. It is fed by batches of 1,000, as its fastest form;
the time of ccstream has the conversion of Python's strings in it too. tokenizers keeps merged words in a
cache, so the file is read once before.
"""
import argparse
import os
import sys
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../parity"))
from clip_oracle import Ccstream, OpenClip, hugging_face_clip
from tokenizers import Tokenizer

parser = argparse.ArgumentParser()
parser.add_argument("shared_object")
parser.add_argument("captions")
parser.add_argument("--byte")
a = parser.parse_args()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with open(a.captions, encoding="utf-8") as f:
    captions = f.read().splitlines()
batches = [captions[i:i + 1000] for i in range(0, len(captions), 1000)]
open_clip = OpenClip()


def run_ccstream(model):
    ours = Ccstream(a.shared_object, model)
    return lambda: [ours.rows(b, 77) for b in batches]


def run_hugging_face(t):
    t.enable_truncation(77)
    t.enable_padding(length=77)
    return lambda: [t.encode_batch_fast(b) for b in batches]


def run_open_clip():
    for c in captions[:20000]:
        open_clip.encode(c)


rows = {"ccstream clip": (run_ccstream(open_clip.merges), len(captions)),
        "tokenizers clip": (run_hugging_face(hugging_face_clip(open_clip.merges)), len(captions)),
        "open_clip": (run_open_clip, min(20000, len(captions)))}
if a.byte:
    with open(a.byte, "rb") as f:
        rows["ccstream byte"] = run_ccstream(f.read()), len(captions)
    rows["tokenizers byte"] = run_hugging_face(Tokenizer.from_file(a.byte)), len(captions)
best = {}
for turn in range(4):
    for name, (run, count) in rows.items():
        start = time.process_time()
        run()
        rate = count / (time.process_time() - start)
        if turn > 0:
            best[name] = max(best.get(name, 0), rate)
for name, rate in best.items():
    peer = best.get("tokenizers " + name.split()[-1], 0)
    print(f"{name:16} {rate:12,.0f} captions/s" + (f"   {rate / peer:6.2f} times tokenizers" if peer else ""))
