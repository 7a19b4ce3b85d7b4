"""Columns of many samples: what attaching costs, what the columns take on disk, and reading.

Usage: PYTHONPATH=build/release/python python3 tests/bench/columns_attach.py CCPACK SAMPLES FOLDER [VECTORS]

Makes in FOLDER, one after the other, a dataset of tiny images, a table of seven captions a sample (1.2 KB of JSON) and 512 f16 for each
of the first VECTORS samples (default: all); attaches both, reads rows at random, and deletes each table after it. 12 million samples
need 22 GB, with as many vectors 32.
"""

import ctypes
import json
import os
import random
import resource
import struct
import subprocess
import sys
import threading
import time

import ccstream
import numpy

PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
                    "c9fe92ef0000000049454e44ae426082")
BLOCK = 1 << 16
ccpack, samples = os.path.abspath(sys.argv[1]), int(sys.argv[2])
vectors = int(sys.argv[4]) if len(sys.argv) > 4 else samples
os.chdir(sys.argv[3])


def memory(pid, most):
    """Keeps the most of each kind of a process's memory."""
    while pid.poll() is None:
        try:
            with open(f"/proc/{pid.pid}/status") as f:
                for line in f:
                    if line.startswith(("RssAnon", "RssFile")):
                        name, size = line.split()[:2]
                        most[name[:-1]] = max(most.get(name[:-1], 0), int(size) >> 10)
        except OSError:
            pass
        time.sleep(0.05)


def attach(table, *words):
    before, start, most = resource.getrusage(resource.RUSAGE_CHILDREN), time.time(), {}
    p = subprocess.Popen([ccpack, "attach", "m", table, *words, "-q", "--replace"])
    watch = threading.Thread(target=memory, args=(p, most))
    watch.start()
    assert p.wait() == 0
    watch.join()
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, rows = r.ru_utime + r.ru_stime - before.ru_utime - before.ru_stime, vectors if table.endswith(".npy") else samples
    print(f"{table}: {rows} rows, {os.path.getsize(table) >> 20} MiB, in {time.time() - start:.1f} s (load {os.getloadavg()[0]:.0f}), "
          f"{cpu:.1f} s CPU = {cpu / rows * 1e6:.1f} us a row; at most {most.get('RssAnon', 0)} MiB anonymous, "
          f"{most.get('RssFile', 0)} mapped", flush=True)
    os.remove(table)


def read(name):
    """A row at random, from the page cache."""
    ds = ccstream.Dataset("m")
    column = ds.column(name)
    for i in ids[:2000]:
        column.get(int(i) % column.rows)
    start = time.process_time()
    for i in ids[:2000]:
        column.get(int(i) % column.rows)
    print(f"{name}: {os.path.getsize(f'm/columns/{name}.ccc') / column.rows:.1f} bytes a row, "
          f"{(time.process_time() - start) / 2e3 * 1e6:.1f} us CPU to read a row", flush=True)


def overhead(name):
    """Bytes a row beyond zstd -3 of the texts, each ended by one byte, in the column's own blocks (every 64th of them)."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_compress.restype = ctypes.c_size_t
    path = f"m/columns/{name}.ccc"
    column = ccstream.Dataset("m").column(name)
    size, rows = os.path.getsize(path), column.rows
    with open(path, "rb") as f:
        f.seek(size - 32)
        info_bytes = struct.unpack("<Q", f.read(8))[0]
        f.seek(size - 32 - info_bytes)
        info = json.loads(f.read(info_bytes))
        frames = info["frames"]
        f.seek(size - 32 - info_bytes - 16 * frames)
        table = numpy.frombuffer(f.read(16 * frames), "<u8").reshape(frames, 2)
    bare = stored = counted = 0
    out = ctypes.create_string_buffer(1 << 18)
    for k in range(0, frames - 1, 64):
        first, last = int(table[k, 1]), int(table[k + 1, 1])
        text = b"".join(c.text.encode() + b"\n" for i in column.ids[first:last] for c in column.captions(int(i)))
        bare += zstd.ZSTD_compress(out, len(out), text, len(text), 3)
        stored += int(table[k + 1, 0] - table[k, 0])
        counted += last - first
    tables = (info["id_bytes"] * rows + 16 * frames) / rows
    print(f"{name}: zstd -3 of the texts in the same blocks, of {rows / frames:.0f} rows: {bare / counted:.1f} bytes a row; beyond that "
          f"{stored / counted - bare / counted:.1f} in the frames and {tables:.1f} in the tables", flush=True)


random.seed(1)
start = time.time()
if not os.path.isdir("m"):  # a FOLDER with a dataset of as many samples is used again
    with ccstream.Writer("m", check=False) as w:
        for i in range(samples):
            w.add(PNG, ["c"], id=i)
ids = numpy.random.default_rng(1).integers(0, samples, 2000)
words = [a + b + c for a in ("re", "un", "con", "pro", "in", "de", "st", "tr") for b in ("a", "e", "i", "o", "u", "ai", "ea")
         for c in ("ct", "ng", "ll", "rt", "ss", "nd", "t", "r", "ve", "ble")]
pool = [" ".join(random.choice(words) for _ in range(18)) for _ in range(20000)]
line = '{"id": %d, "raw": "%.60s", ' + ", ".join(f'"c{k}": "%s"' if k < 3 else f'"c{k}": "%s %s"' for k in range(6)) + "}\n"
with open("m.jsonl", "w") as f:
    for i in range(samples):
        of = [pool[(i * 3 + k) % 20000] for k in range(3)] + [pool[(i * step + k * by) % 20000] for k in range(3, 6) for step, by in ((7, 131), (13, 31))]
        f.write(line % (i, pool[i % 20000], *of))
print(f"made in {time.time() - start:.0f} s", flush=True)
attach("m.jsonl", "--as", "long:captions=raw,c0,c1,c2,c3,c4,c5")
read("long")
overhead("long")
block = numpy.random.default_rng(1).random((BLOCK, 512)).astype("f2")
table = numpy.lib.format.open_memmap("m.npy", "w+", "f2", (vectors, 512))
for at in range(0, vectors, BLOCK):
    table[at : at + BLOCK] = block[: min(BLOCK, vectors - at)]
table.flush()
del table
attach("m.npy", "--as", "teacher")
read("teacher")
start = time.time()
with open("m/columns/teacher.ccc", "rb") as f, open("copy", "wb") as to:
    while data := f.read(1 << 22):
        to.write(data)
    to.flush()
    os.fsync(to.fileno())
print(f"copying the column by itself, to compare: {time.time() - start:.1f} s")
os.remove("copy")
