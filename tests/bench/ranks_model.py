#!/usr/bin/env python3
"""Time of a training step on up to 1,024 GPUs, simulated: the cost model of docs/ranks.md.

    tests/bench/ranks_model.py                     the tables of docs/results/ranks.md
    tests/bench/ranks_model.py --pause-ms 20       each rank pauses for 20 ms in every thousandth step

Measured, one H200, from tests/bench/results/gpu-2026-11-28: the towers' forward and backward pass of 512 pairs (ResNet-50 and
DistilBERT, bf16), what a token costs, how much steps of equal work differ, the copy rate. Assumed, for there was one GPU: links, f32 products and
arithmetic in f64 (constants below). A step of W ranks:

    forward    each rank's own pairs, whose captions differ; then all wait for the last one
    gather     X and T of all, ids, state: by doubling, partners of the same host first
    loss       the whole loss on every rank; with --rows its own rows and columns alone, as a CPU does by tiles
    backward   releases ranges of the gradients, which are summed in turn by the tree (halving, then doubling) while it runs
    end        all wait for the last range

"waiting" is the share of the step in which a rank has nothing to do because another is not there yet; "exposed" is gradients that are sent after
the backward pass. Steps are drawn with a fixed seed.
"""
import argparse
import json
import math
import os
import random

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results", "gpu-2026-11-28", "results.jsonl")
HOST = 8  # GPUs of a host
INSIDE, BETWEEN = (350e9, 5e-6), (40e9, 15e-6)  # assumed: bytes/s that a GPU sends, seconds of a message
PRODUCTS_PER_S = 50e12  # assumed: f32, without tensor cores
F64_PER_S = 20e12  # assumed
F64_PER_SIMILARITY = 240  # exponentials of both sides
COPY_BYTES_PER_S = 4072e9  # measured
RANGE = 4 << 20  # numbers of a range of gradients
FORWARD_ONLY = ("upload", "loss", "matmul", "adamw", "sum_squares")


def measured():
    """Seconds of a pair forward and backward, of a token, of the rest of a step, and the deviation of a step as a share of it."""
    with open(RESULTS, encoding="utf-8") as f:
        lines = {r["name"]: r for r in map(json.loads, f) if "name" in r}
    packed, padded = lines["step packed"], lines["step padded"]
    token = (padded["step_ms"] - packed["step_ms"]) / (padded["caption_tokens"] - packed["caption_tokens"]) * 1e-3
    ops = {o["name"]: o["ms"] for o in packed["ops"]}
    back = sum(ms for name, ms in ops.items() if name.endswith("_bwd"))
    forth = sum(ms for name, ms in ops.items() if not name.endswith("_bwd") and name not in FORWARD_ONLY)
    rest = sum(ops.get(name, 0.0) for name in ("adamw", "sum_squares")) * 1e-3
    pair = (packed["step_ms"] * 1e-3 - rest) / packed["batch"]
    # of five windows of 20 steps the fastest is 1.16 deviations from the median
    windows = [1.0 - r["pairs_per_s"] / r["fastest_pairs_per_s"] for r in lines.values()
               if r.get("device") == "cuda" and r["fastest_pairs_per_s"] > r["pairs_per_s"]]
    deviation = sum(windows) / len(windows) / 1.16 * math.sqrt(packed["steps"])
    return pair * forth / (forth + back), pair * back / (forth + back), token, rest, deviation


def links(ranks):
    """(bytes/s, seconds of a message) of each level of a tree over the ranks: rank ^ 1, ^ 2, ^ 4 are of the same host."""
    return [INSIDE if 1 << k < HOST else BETWEEN for k in range(max(ranks - 1, 0).bit_length())]


def gather_s(own_bytes, ranks):
    return sum(own_bytes * 2**k / rate + message for k, (rate, message) in enumerate(links(ranks)))


def sum_s(size_bytes, ranks):
    return sum(2 * (size_bytes / 2 ** (k + 1) / rate + message) for k, (rate, message) in enumerate(links(ranks)))


def loss_s(a, batch, ranks):
    """Products, passes over S and G, exponentials; of a rank's rows and columns alone six products instead of three."""
    share = 2.0 / ranks if a.rows and ranks > 2 else 1.0
    return share * (6 * batch**2 * a.embedding / PRODUCTS_PER_S + 8 * 4 * batch**2 / COPY_BYTES_PER_S +
                    F64_PER_SIMILARITY * batch**2 / F64_PER_S)


def one_step(a, rng, batch, ranks, constants):
    """Seconds of a step: whole, waiting (mean of ranks), gather, loss, exposed."""
    forward, backward, token, rest, deviation = constants
    own = batch / ranks

    def works(pair):  # of each rank
        tokens = math.sqrt(own) * 6.3 * token / 2  # captions of 11 to 32 tokens: a deviation of 6.3 each
        pause = a.pause_ms * 1e-3
        return [max(0.0, own * pair * rng.gauss(1.0, deviation) + rng.gauss(0.0, tokens)) +
                (pause if pause > 0 and rng.random() < a.pause_every else 0.0) for _ in range(ranks)]

    ahead = works(forward)
    gathered = gather_s(own * (2 * 4 * a.embedding + 8 + 2 * 4 * a.state_words), ranks)
    loss = loss_s(a, batch, ranks)
    back = works(backward)
    slowest = max(back)
    done = 0.0
    ranges = math.ceil(a.parameters / RANGE)
    for k in range(ranges):  # a range is ready when the slowest rank has it
        size = 4 * min(RANGE, a.parameters - k * RANGE)
        done = max(done, slowest * (k + 1) / ranges) + sum_s(size, ranks)
    exposed = max(0.0, done - slowest) if ranks > 1 else 0.0
    waiting = max(ahead) - sum(ahead) / ranks + slowest - sum(back) / ranks
    return max(ahead) + gathered + loss + slowest + exposed + rest, waiting, gathered, loss, exposed


def table(a, title, worlds, batch_of):
    constants = measured()
    alone = None
    print(f"{title}\n")
    print("| GPUs | batch | towers ms | gather ms | loss ms | exposed ms | waiting | step ms | pairs/s | of linear |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for ranks in worlds:
        batch = batch_of(ranks)
        rng = random.Random(7)
        steps = [one_step(a, rng, batch, ranks, constants) for _ in range(a.steps)]
        whole, waiting, gathered, loss, exposed = (sum(x) / len(steps) for x in zip(*steps))
        towers = batch / ranks * (constants[0] + constants[1])
        alone = alone or batch / whole / ranks
        print(f"| {ranks:,} | {batch:,} | {1e3 * towers:.1f} | {1e3 * gathered:.2f} | {1e3 * loss:.1f} | {1e3 * exposed:.1f} | "
              f"{100 * waiting / whole:.1f} % | {1e3 * whole:.1f} | {batch / whole:,.0f} | {100 * batch / whole / ranks / alone:.0f} % |")
    print()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parameters", type=float, default=90.6e6, help="default: resnet50 + distil, 30,522 tokens")
    p.add_argument("--embedding", type=int, default=256)
    p.add_argument("--state-words", type=int, default=8, help="4-byte words a sample; nuclr has 8")
    p.add_argument("--steps", type=int, default=200, help="to simulate of each row")
    p.add_argument("--pause-ms", type=float, default=0.0, help="a pause of a rank ...")
    p.add_argument("--pause-every", type=float, default=0.001, help="... in this share of its forward and backward passes")
    a = p.parse_args()
    a.rows = False
    worlds = (1, 8, 64, 256, 1024)
    table(a, "512 pairs a GPU, whole matrix on each, up to the 32,768 pairs that it holds:", (1, 8, 64), lambda w: 512 * w)
    table(a, "A batch of 32,768, divided:", worlds, lambda w: 32768)
    a.rows = True
    table(a, "The same, were each GPU to compute its own rows and columns:", worlds, lambda w: 32768)
    table(a, "And 512 pairs a GPU so:", worlds, lambda w: 512 * w)


main()
