"""What columns cost the loader: ccbench loader with and without --load, in turn.

Usage: python3 tests/bench/columns_load.py CCBENCH DATASET COLUMN[,...] [ROUNDS [OPTION...]]

OPTIONs are those of ccbench loader, such as --size 224. CPU time of all threads per pair counts, which other programs disturb less than
pairs/s; of each round the ratio of both, as neighbours in time. The least time of all rounds is that of the quietest moment.
"""

import json
import statistics
import subprocess
import sys

ccbench, dataset, columns = sys.argv[1:4]
rounds, options = int(sys.argv[4]) if len(sys.argv) > 4 else 7, sys.argv[5:]


def run(*words):
    done = subprocess.run([ccbench, "loader", dataset, "--no-limit", "--json", *options, *words], check=True, capture_output=True)
    result = json.loads(done.stdout)
    return result["cpu_s"] / result["pairs"] * 1e6, result["pairs_per_s"]


run()
cpu, rate = [], []
for i in range(rounds):
    pair = [None, None]
    for k in (i % 2, 1 - i % 2):  # who is first alternates
        pair[k] = run(*(["--load", columns] if k else []))
    cpu.append([p[0] for p in pair])
    rate.append(pair[1][1] / pair[0][1])
    print(f"{cpu[-1][0]:.1f} us CPU a pair, with {columns} {cpu[-1][1]:.1f}: {cpu[-1][1] / cpu[-1][0]:.4f}; pairs/s {rate[-1]:.3f}", flush=True)
print(f"median of {rounds}: CPU time {statistics.median(b / a for a, b in cpu):.4f}, pairs/s {statistics.median(rate):.3f}; "
      f"least: {min(a for a, _ in cpu):.1f} and {min(b for _, b in cpu):.1f} us CPU a pair, {min(b for _, b in cpu) / min(a for a, _ in cpu):.4f}")
