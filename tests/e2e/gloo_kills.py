#!/usr/bin/env python3
"""Loses one of 2 to 4 ranks over Gloo at a random moment of a short run; every other rank must name it.

Usage: tests/e2e/gloo_kills.py [LOSSES [SEED]]        BIN and TESTBIN as for the scripts beside it; default: 100 losses

HOWS: of kill and stop, each as likely as it is often; default: four are killed for one that is stopped. The moment is in the start, in a step, which saves, or after the last, when the run evaluates and ends.
Every second launcher ends the other ranks as torchrun does, by SIGTERM as soon as it sees the loss. A rank is not lost if its file
says that it has ended.
"""

import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT, STEPS = 12, 5
OPTIONS = (
    "-q --data data --model model.json --tokenizer words.txt --batch-size 12 --micro-batch 1"
    f" --steps {STEPS} --checkpoint-every 1 --val data --threads 1 --loader-threads 1"
).split()


class Job:
    """The ranks of one launch."""

    def __init__(self, world, run, timeout):
        self.world, self.run = world, run
        self.began = time.monotonic()
        self.ranks = []
        for rank in range(world):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                       MASTER_PORT="29500")
            with open(f"{run}.{rank}.txt", "w", encoding="utf-8") as said:
                self.ranks.append(subprocess.Popen([os.path.join(BIN, "ccstream-train"), *OPTIONS, "--out", run, "--rank-timeout",
                                                    str(timeout)], env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said))

    def said(self, rank):
        with open(f"{self.run}.{rank}.txt", encoding="utf-8", errors="replace") as f:
            return f.read().strip()

    def steps(self):
        """How many are complete."""
        try:
            with open(f"{self.run}/metrics.jsonl", encoding="utf-8") as f:
                return sum('"loss"' in line for line in f)
        except OSError:
            return 0

    def runs(self):
        return any(p.poll() is None for p in self.ranks)

    def has_ended(self, rank):
        """Whether its file says so."""
        try:
            with open(f"{self.run}/ranks/{rank}.json", encoding="utf-8") as f:
                return json.load(f)["state"] == "ended"
        except (OSError, ValueError):
            return False

    def place(self, rank):
        try:
            with open(f"{self.run}/ranks/{rank}.json", encoding="utf-8") as f:
                beat = json.load(f)
            return f"{beat['phase']}, step {beat['step']}"
        except (OSError, ValueError):
            return "start"

    def wait(self, but, seconds, terminates):
        """Until the others have ended; those that have not are named."""
        end = time.monotonic() + seconds
        others = [p for r, p in enumerate(self.ranks) if r != but]
        while any(p.poll() is None for p in others) and time.monotonic() < end:
            time.sleep(0.02)
            if terminates and any(p.poll() not in (None, 0) for p in self.ranks):
                terminates = False
                for p in others:
                    p.terminate()
        return [r for r, p in enumerate(self.ranks) if r != but and p.poll() is None]

    def begin(self):
        """Until all programs have begun: SIGTERM ends any process that has not installed its handler."""
        catches = 1 << signal.SIGTERM - 1
        for p in self.ranks:
            while p.poll() is None:
                try:
                    with open(f"/proc/{p.pid}/status", encoding="utf-8") as f:
                        if int(re.search(r"SigCgt:\s*(\w+)", f.read())[1], 16) & catches:
                            break
                except (OSError, TypeError):
                    pass
                time.sleep(0.002)

    def kill(self):
        for p in self.ranks:
            p.kill()
            p.wait()


class Pace:
    """How long a start and a step take: of a busy machine, so of the last runs."""

    def __init__(self):
        self.start, self.step = {}, {}

    def sleep_in(self, job):
        """Until a moment of the start, of a step, or of the end."""
        steps = random.choice((0, 0, 1, 2, 3, STEPS - 1, STEPS, STEPS))
        while job.steps() < steps and job.runs():
            time.sleep(0.005)
        begins = time.monotonic()
        if steps == 0 and job.world not in self.start:
            while job.steps() == 0 and job.runs():
                time.sleep(0.005)
            self.start[job.world] = time.monotonic() - job.began
            begins = time.monotonic()
            while job.steps() == 1 and job.runs():
                time.sleep(0.005)
            self.step[job.world] = time.monotonic() - begins
        elif steps == 0:
            time.sleep(random.uniform(0, self.start[job.world]))
        else:
            time.sleep(random.uniform(0, self.step.get(job.world, 0.1)))


def lose(number, pace):
    """What became of one loss, in a word, and a line about it; None: the run ended before."""
    world, how = random.randint(2, 4), random.choice(HOWS)
    victim, terminates = random.randrange(world), random.randrange(2) == 1
    job = Job(world, f"run{number}", TIMEOUT)
    job.begin()
    pace.sleep_in(job)
    after = time.monotonic() - job.began
    if job.ranks[victim].poll() is not None:
        left = job.wait(victim, 60, False)
        codes = [p.poll() for p in job.ranks]
        job.kill()
        if left or any(codes):
            print(f"{number}: no rank was lost yet: {codes}, {[job.said(r) for r in range(world)]}", flush=True)
        return None
    job.ranks[victim].send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    where, began = job.place(victim), time.monotonic()
    left = job.wait(victim, 60, terminates)
    took = time.monotonic() - began
    ended = job.has_ended(victim)
    word, texts = "named", []
    for rank in range(world):
        if rank == victim:
            continue
        code, said = job.ranks[rank].poll(), job.said(rank)
        named = re.search(rf"rank {rank} ends: .*rank ([0-9]+, )*{victim}\b", said)
        if rank in left:
            word = "left running"
        elif ended and code == 0:
            word = "ended before" if word == "named" else word
        elif not named and word not in ("left running", "silent"):
            word = "other words" if said else "silent"
        texts.append(f"    rank {rank}: {code}: {said}")
    job.kill()
    line = f"{number}: {how} of rank {victim} of {world} after {after:.2f} s ({where}), SIGTERM {terminates}: {word} after {took:.1f} s"
    return word, "\n".join([line, *texts] if word not in ("named", "ended before") else [line])


def main():
    losses = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else os.getpid()
    random.seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        subprocess.run([os.path.join(TESTBIN, "make_scenes"), "train", "24", "3", "32", "train.tar"], check=True)
        subprocess.run([os.path.join(BIN, "ccpack"), "-q", "-o", "data", "train.tar"], check=True)
        shared = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../support/cli.sh")
        subprocess.run(["bash", "-c", '. "$1"; small_model model.json; scene_words words.txt', "-", shared], check=True,
                       env=dict(os.environ, SRC=os.path.join(os.path.dirname(shared), "../..")))
        pace, words, number = Pace(), collections.Counter(), 0
        while sum(words.values()) - words["ended before"] < losses:
            number += 1
            result = lose(number, pace)
            if result is not None:
                words[result[0]] += 1
                print(result[1], flush=True)
        os.chdir("/")
    print(f"{words['named']} of {losses} losses named by every other rank; {dict(words)}, seed {seed}")
    return 0 if words["named"] == losses else 1


HOWS = os.environ.get("HOWS", "kill kill kill kill stop").split()
BIN, TESTBIN = (os.path.realpath(os.environ[name]) for name in ("BIN", "TESTBIN"))
if __name__ == "__main__":
    sys.exit(main())
