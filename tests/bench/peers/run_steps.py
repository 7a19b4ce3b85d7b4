#!/usr/bin/env python3
"""`ccbench step` and PyTorch on the CPU in turn, the same models, batches and threads:

    python3 run_steps.py build/release/bin/ccbench [--rounds 2] [--steps 4] [--threads N] [--only TEXT]

needs torch, timm and transformers in this Python; five minutes on two idle cores. Of each case the
best of the rounds counts on both sides. The third column is the image tower's convolutions alone, as
ccbench measures them in the same run, and the share of it that the step reaches.
"""
import argparse
import json
import os
import subprocess
import sys

IMAGES = [("resnet50 224", "--tower image --image-tower resnet50 --image-size 224 --batch 16"),
          ("resnet18 112", "--tower image --image-tower resnet18 --image-size 112 --batch 64"),
          ("distil 32 tokens", "--tower text --text-tower distil --tokens 32 --batch 32"),
          ("small 32 tokens, full", "--tower text --text-tower small --tokens 32 --batch 64 --full")]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def best(old, new):
    return new if old is None or new["pairs_per_s"] > old["pairs_per_s"] else old


def main():
    p = argparse.ArgumentParser()
    p.add_argument("ccbench")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--only", default="")
    a = p.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    common = ["--steps", str(a.steps), "--threads", str(a.threads)]
    print(f"{'case':<30} {'ccstream':>9} {'PyTorch':>9} {'ratio':>6} {'convs':>9} {'share':>6}   per second")
    for precision in ("f32", "bf16"):
        for name, words in IMAGES:
            case = f"{name} {precision}"
            if a.only not in case:
                continue
            ours = theirs = None
            options = words.split() + ["--precision", precision] + common
            for _ in range(a.rounds):
                ours = best(ours, run([a.ccbench, "step", "--json"] + options))
                theirs = best(theirs, run([sys.executable, os.path.join(here, "torch_step.py")] + options))
            x, y = ours["pairs_per_s"], theirs["pairs_per_s"]
            line = f"{case:<30} {x:>9.2f} {y:>9.2f} {x / y:>6.2f}"
            if "conv_only_pairs_per_s" in ours:
                line += f" {ours['conv_only_pairs_per_s']:>9.2f} {ours['conv_only_ratio']:>6.2f}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
