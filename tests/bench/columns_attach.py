"""Columns of many samples: what attaching costs, and reading.

Usage: PYTHONPATH=build/release/python python3 tests/bench/columns_attach.py CCPACK SAMPLES FOLDER

Makes a dataset of tiny images, a table of seven captions a sample (1.2 KB of JSON) and 512 f16 a sample in FOLDER, attaches both, and
reads rows at random.
"""

import json
import os
import random
import resource
import subprocess
import sys
import time

import ccstream
import numpy

PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
                    "c9fe92ef0000000049454e44ae426082")
ccpack, samples = sys.argv[1], int(sys.argv[2])
os.chdir(sys.argv[3])
with ccstream.Writer("m", check=False, overwrite=True) as w:
    for i in range(samples):
        w.add(PNG, ["c"], id=i)
random.seed(1)
words = [a + b + c for a in ("re", "un", "con", "pro", "in", "de", "st", "tr") for b in ("a", "e", "i", "o", "u", "ai", "ea")
         for c in ("ct", "ng", "ll", "rt", "ss", "nd", "t", "r", "ve", "ble")]
pool = [" ".join(random.choice(words) for _ in range(18)) for _ in range(20000)]
with open("m.jsonl", "w") as f:
    for i in range(samples):
        row = {"id": i, "raw": pool[i % 20000][:60]}
        for k in range(6):
            row[f"c{k}"] = pool[(i * 7 + k * 131) % 20000] + " " + pool[(i * 13 + k * 31) % 20000] if k >= 3 else pool[(i * 3 + k) % 20000]
        f.write(json.dumps(row) + "\n")
numpy.save("m.npy", numpy.random.rand(samples, 512).astype("f2"))
for words in (["m.jsonl", "--as", "long:captions=raw,c0,c1,c2,c3,c4,c5"], ["m.npy", "--as", "teacher"]):
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    subprocess.run([ccpack, "attach", "m", *words, "-q", "--replace"], check=True)
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = r.ru_utime + r.ru_stime - before.ru_utime - before.ru_stime
    print(f"{words[0]}: {time.time() - start:.1f} s, {cpu / samples * 1e6:.1f} us CPU a row, at most {r.ru_maxrss >> 10} MiB, "
          f"{os.path.getsize(words[0]) >> 20} MiB read")
ds = ccstream.Dataset("m")
for name in ds.columns:
    column, ids = ds.column(name), numpy.random.randint(0, samples, 20000)
    column.get(0)
    start = time.process_time()
    for i in ids:
        column.get(int(i))
    print(f"{name}: {os.path.getsize(f'm/columns/{name}.ccc') / samples:.1f} bytes a row, {(time.process_time() - start) / 2e4 * 1e6:.1f} us a row")
