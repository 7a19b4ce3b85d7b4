#!/usr/bin/env python3
"""How costs grow with the number of samples: writes docs/results/scale.md.

    tests/bench/scale.py build/release WORK >docs/results/scale.md

WORK is a folder with 20 GB to spare, in which tars and indexes of an earlier call are used again. Datasets up to 12,000,000 samples are packed;
the larger ones to open are indexes whose shards are holes (tests/bench/bench_dataset.c), and of 400 million samples the indexes are holes after
their headers. All times are of the processor, so other programs that run do not change them much.
"""
import array
import io
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import textwrap
import time

PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
                    "c9fe92ef0000000049454e44ae426082")
SIZES = (10_000, 100_000, 1_000_000, 12_000_000)
PACKED = (1_000, 10_000, 100_000, 1_000_000, 12_000_000)
MADE = 1_000_000  # a larger dataset is packed from links to the same tars
HUGE = 400_000_000


def name(count):
    return f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count // 1000} k"


def cpu():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def run(*words):
    """Seconds of the processor, and what the command prints."""
    before = cpu()
    out = subprocess.run([str(w) for w in words], check=True, stdout=subprocess.PIPE, text=True).stdout
    return cpu() - before, out


def best(count, words, folder=None):
    """The fastest of `count` calls; before each of them the folder goes."""
    calls = []
    for _ in range(count):
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        calls.append(memory(*words))
    return min(calls)


def memory(*words):
    """Seconds of the processor, and the most MiB."""
    code = "import resource,subprocess,sys; subprocess.run(sys.argv[1:],check=True,stdout=subprocess.DEVNULL); " \
           "r=resource.getrusage(resource.RUSAGE_CHILDREN); print(r.ru_utime+r.ru_stime, r.ru_maxrss)"
    seconds, kib = run(sys.executable, "-c", code, *words)[1].split()
    return float(seconds), float(kib) / 1024


def make_tars(folder, count):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for first in range(0, count, 10_000):
        with tarfile.open(f"{folder}/{first // 10_000:05}.tar", "w") as tar:
            for i in range(first, min(count, first + 10_000)):
                for ending, data in (("png", PNG), ("txt", f"an image of number {i}".encode())):
                    member = tarfile.TarInfo(f"{i:09}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def link_tars(folder, source, copies):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for copy in range(copies):
        for tar in os.listdir(source):
            os.link(f"{source}/{tar}", f"{folder}/{copy:03}-{tar}")


def write_npy(path, count):
    """One f4 a sample."""
    head = str({"descr": "<f4", "fortran_order": False, "shape": (count, 1)}).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + array.array("f", bytes(4 * count)).tobytes())


def paragraph(text):
    print(textwrap.fill(text, 145, break_long_words=False, break_on_hyphens=False))


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def slope(costs, sizes):
    """Cost of a sample at the largest size, over that at the one before: 1 is linear."""
    return f"{costs[-1] / sizes[-1] / (costs[-2] / sizes[-2]):.2f}" if costs[-2] > 0 else "-"


def packed(bin_, work):
    print("## Packing, resuming, attaching\n")
    paragraph("Images of one pixel with a caption, in tars of 10,000: the cost per sample apart from its image. CPU time in microseconds per "
              "sample, fastest of three (12 M, whose tars are those of 1 M again: one); peak memory with the pages of mapped "
              "files (of `attach` at 12 M a quarter is its own). `attach` includes the start of Python and NumPy.")
    print()
    row("", *map(name, PACKED), "slope")
    row(*["---"] * (len(PACKED) + 2))
    results = {k: [] for k in ("`ccpack`", "`ccpack --resume` of a finished dataset", "`ccpack attach`, one f4 a sample",
                               "`ccpack`, memory", "`ccpack attach`, memory")}
    for count in PACKED:
        if not os.path.exists(f"{work}/t{count}"):
            make_tars(f"{work}/t.tmp", count) if count <= MADE else link_tars(f"{work}/t.tmp", f"{work}/t{MADE}", count // MADE)
            os.rename(f"{work}/t.tmp", f"{work}/t{count}")
        tars = sorted(f"{work}/t{count}/{n}" for n in os.listdir(f"{work}/t{count}"))
        pack = (f"{bin_}/ccpack", "-q", "--allow-duplicates", "-o", f"{work}/p{count}", *tars)
        times = 3 if count <= MADE else 1
        seconds, mib = best(times, pack, f"{work}/p{count}")
        results["`ccpack`"].append(seconds)
        results["`ccpack`, memory"].append(mib)
        results["`ccpack --resume` of a finished dataset"].append(best(times, (*pack, "--resume"))[0])
        write_npy(f"{work}/a{count}.npy", count)
        seconds, mib = best(times, (f"{bin_}/ccpack", "attach", f"{work}/p{count}", f"{work}/a{count}.npy", "--as", "x", "-q", "--replace"))
        results["`ccpack attach`, one f4 a sample"].append(seconds)
        results["`ccpack attach`, memory"].append(mib)
    for what, costs in results.items():
        if what.endswith("memory"):
            row(what, *(f"{c:.0f} MiB" for c in costs), "")
        else:
            row(what, *(f"{1e6 * c / n:.2f}" for c, n in zip(costs, PACKED)), slope(costs, PACKED))


def opened(bench, work):
    print("\n## Opening, lookups, order\n")
    paragraph("Shards of 10,000 samples; for 400 M also of 1,000,000. *own*: memory of the process without the mapped indexes, which all "
              "processes share in the page cache. *plan*: computing the first sample of each of 1,024 ranks at every step of a shuffled "
              "epoch, with 32 samples per rank (10 k: one rank). *find*: computing the position of a sample in an epoch, as `ccdump order` "
              "and a resumed run do.")
    print()
    row("samples", "shards of", "open ms", "own MiB", "sample us", "caption us", "fingerprint ns", "plan s", "find us")
    row(*["---"] * 9)
    opens = []
    for count, each, kind in [(n, 10_000, None) for n in SIZES] + [(HUGE, 1_000_000, "headers"), (HUGE, 10_000, "headers")]:
        words = [bench, f"{work}/d{count}-{each}", count, each] + ([kind] if kind else [])
        if not os.path.exists(f"{words[1]}/dataset.json"):
            run(*words)
        out = run(*words[:2], 0, 0, *words[4:])[1]
        found = {m[0]: m[1] for m in re.findall(r"^(\w+) +([0-9.]+) ", out, re.M)}
        own = re.search(r"([0-9.]+) MiB of its own", out)[1]
        opens.append((count, each, float(found["open"])))
        fingerprint = f"{1e9 * float(found['fingerprint']) / count:.0f}" if "fingerprint" in found else "-"
        row(name(count), f"{each:,}", found["open"], own, found.get("sample", "-"), found.get("caption", "-"), fingerprint,
            found["plan"], found["find"])
    linear = [ms / (count / each) for count, each, ms in opens if count >= 1_000_000 and each == 10_000]
    print()
    paragraph(f"Opening costs {1e3 * linear[0]:.0f} us per shard at 1 M samples and {1e3 * linear[-1]:.0f} us at 400 M: it grows with "
              "shards, not with samples.")


def state(bench):
    print("\n## Per-sample state\n")
    paragraph("All columns of all losses, and the time to copy a batch of 512 random ids to the working set and back (`bench_state IDS 512 "
              "2000`). The time grows as fewer entries are in a CPU cache, up to one miss per entry:")
    print()
    row("ids", "result")
    row("---", "---")
    for count in SIZES:
        row(name(count), "; ".join(line.strip() for line in run(bench, count, 512, 2000)[1].splitlines() if line.strip()))


def main():
    build, work = sys.argv[1:3]
    os.makedirs(work, exist_ok=True)
    model = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())[1]
    print("# Scaling with the number of samples\n")
    paragraph(f"Written by `tests/bench/scale.py` on {os.cpu_count()} CPUs ({model}), {time.strftime('%B %Y')}, release preset; times are CPU "
              f"times. *slope*: cost per sample at the largest size, divided by that at the size before; 1 if the cost is proportional to the "
              f"number of samples.")
    print()
    packed(f"{build}/bin", work)
    opened(f"{build}/tests/bin/bench_dataset", work)
    state(f"{build}/tests/bin/bench_state")


main()
