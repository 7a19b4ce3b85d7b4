#!/usr/bin/env python3
"""Time of a training step on W ranks, predicted: the cost model of train/comm/README.md.

    tests/bench/ranks_model.py                      the table of docs/results/ranks.md
    tests/bench/ranks_model.py --pairs-per-s 5000   with another speed of one GPU

Nothing here is measured; a measured speed of one GPU goes in by --pairs-per-s.
"""
import argparse
import math

MACHINES = (  # name, ranks, bytes/s of a sum as each rank sees it, seconds of a message
    ("1 GPU", 1, math.inf, 0.0),
    ("8 GPUs", 8, 350e9, 20e-6),
    ("64 GPUs", 64, 40e9, 60e-6),
)
OPERATIONS_PER_S = 50e12  # f32 products without tensor cores
MEMORY_BYTES_PER_S = 0.8 * 3.35e12
F64_OPERATIONS_PER_S = 20e12
F64_OPERATIONS_PER_SIMILARITY = 240  # exponentials of both sides
MESSAGES = 22  # notices, embeddings, state, and 16 ranges of gradients


def step(a, batch, ranks, bytes_per_s, message_s):
    others = (ranks - 1) / ranks
    towers = batch / ranks / a.pairs_per_s
    loss = (6 * batch**2 * a.embedding / OPERATIONS_PER_S
            + 8 * 4 * batch**2 / MEMORY_BYTES_PER_S
            + F64_OPERATIONS_PER_SIMILARITY * batch**2 / F64_OPERATIONS_PER_S)
    gradients = 2 * others * 4 * a.parameters / bytes_per_s
    rows = others * batch * (2 * 4 * a.embedding + 8 + 2 * 4 * a.state_words) / bytes_per_s
    exposed = max(0.0, gradients - towers * 2 / 3)  # the rest is sent during the backward pass
    return towers, loss, gradients, rows, towers + loss + rows + exposed + (ranks > 1) * MESSAGES * message_s


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parameters", type=float, default=67.2e6, help="default: resnet50 + distil, 16,000 tokens")
    p.add_argument("--embedding", type=int, default=256)
    p.add_argument("--state-words", type=int, default=8, help="4-byte words a sample; nuclr has 8")
    p.add_argument("--pairs-per-s", type=float, default=3000, help="towers of one GPU, forward and backward")
    a = p.parse_args()
    print("| ranks | batch | towers ms | loss ms | gradients ms | rows and state ms | step ms | pairs/s | of linear |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, ranks, bytes_per_s, message_s in MACHINES:
        for batch in (512, 4096, 16384, 32768):
            *parts, whole = step(a, batch, ranks, bytes_per_s, message_s)
            alone = step(a, batch, 1, math.inf, 0.0)[-1]
            cells = " | ".join(f"{1e3 * x:.1f}" for x in (*parts, whole))
            print(f"| {name} | {batch:,} | {cells} | {batch / whole:,.0f} | {100 * alone / whole / ranks:.0f} % |")


main()
