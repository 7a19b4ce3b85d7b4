#!/usr/bin/env python3
"""Measures DataLoader into torch tensors (or NumPy arrays without torch) beside ccbench loader.

    python3 bench.py DATASET [--batch 128] [--size 256] [--threads 2] [--runs 3] [--ccbench ccbench]
    MALLOC_ARENA_MAX=1 python3 bench.py DATASET --leaks

One JSON object: images per second of each run, alternating, the median of both and their ratio, and the
time from before the open to the first batch. With --leaks memory over 10,000 batches, and memory and
Python objects over 1,000 opens and closes; several arenas of malloc would fill up one after the other.
Numbers mean something on an idle machine only.
"""
import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

import numpy

import ccstream

try:
    from torch import from_dlpack
except ImportError:
    from numpy import from_dlpack


def rss_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def loader(a, **options):
    return ccstream.DataLoader(a.dataset, a.batch, a.size, augment="crop", num_threads=a.threads, **options)


def python_rate(a):
    """Images per second, and seconds from before the open to the first batch."""
    images, first, begin = 0, None, time.perf_counter()
    with loader(a) as dl:
        for batch in dl:
            images += len({name: from_dlpack(array) for name, array in batch.items()}["image"])
            first = first or time.perf_counter() - begin
        return images / (time.perf_counter() - begin), first


def ccbench_rate(a):
    out = subprocess.run([a.ccbench, "loader", a.dataset, "--json", "--batch-size", str(a.batch), "--size", str(a.size),
                          "--threads", str(a.threads)], check=True, capture_output=True).stdout
    return json.loads(out)["pairs_per_s"]


def rates(a):
    python_rate(a)  # the page cache
    runs = [(*python_rate(a), ccbench_rate(a)) for _ in range(a.runs)]
    python, first, c = (statistics.median(column) for column in zip(*runs))
    return {"python_images_per_s": python, "ccbench_images_per_s": c, "ratio": python / c, "first_batch_seconds": first,
            "runs": runs}


def leaks(a):
    a.batch, a.size = min(a.batch, 16), min(a.size, 32)
    over_batches, over_opens = [], []
    with loader(a) as dl:
        while dl.stats()["batches"] < 10000:
            for batch in dl:
                from_dlpack(batch["image"])
                if dl.stats()["batches"] % 1000 == 0:
                    over_batches.append(rss_kib())
    for n in range(1000):
        with loader(a) as dl:
            numpy.asarray(next(iter(dl))["id"])
        if n % 100 == 99:
            gc.collect()
            over_opens.append((rss_kib(), sys.getallocatedblocks()))
    return {"rss_kib_every_1000_batches": over_batches, "rss_kib_and_objects_every_100_opens": over_opens,
            "open_files": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task"))}


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dataset")
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--size", type=int, default=256)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--ccbench", default="ccbench")
parser.add_argument("--leaks", action="store_true")
arguments = parser.parse_args()
print(json.dumps(leaks(arguments) if arguments.leaks else rates(arguments)))
