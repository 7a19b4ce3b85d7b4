#!/usr/bin/env python3
"""Installs wheels in bare systems, one after the other, packs a small dataset there and reads its first batch.

    bindings/python/try_wheel.py FOLDER WHEEL SYSTEM...

FOLDER keeps the systems, which tools/debian-root makes (as root, with debootstrap). WHEEL: a wheel, or a folder of them, from which
pip takes the one that fits. SYSTEM: bookworm, trixie, jammy, noble, or one of another architecture, as bookworm/arm64.

A line for each: seconds and CPU seconds from the start of `pip install`, with NumPy from PyPI, to the first batch, and the load of
the machine. The system and Python's package venv are made before.
"""
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent.parent
IMAGES = [TREE / "tests/fuzz/corpus/image" / name for name in ("rgb420.jpg", "optimised_444.jpg", "progressive.jpg", "gray.jpg")]


def used():
    of = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of.ru_utime + of.ru_stime


def run(root, system, script):
    suite, _, arch = system.partition("/")
    env = {**os.environ, "SUITE": suite, **({"ARCH": arch} if arch else {})}
    return subprocess.run([TREE / "tools/debian-root", root, "sh", "-euc", script], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def try_in(root, system, wheel):
    python = "python3.11" if system.startswith("jammy") else "python3"  # its own is 3.10
    if python != "python3":
        sources = root / "etc/apt/sources.list"
        mirror = sources.read_text().split()[1] if sources.exists() else None
        if mirror is None:
            run(root, system, "true")  # makes it
            mirror = sources.read_text().split()[1]
        sources.write_text(f"deb {mirror} jammy main universe\ndeb {mirror} jammy-updates main universe\n")
    run(root, system, f"command -v {python} >/dev/null && {python} -m ensurepip --version >/dev/null 2>&1 || "
        f"(apt-get -q update && apt-get -q install -y --no-install-recommends {python}-venv) >/root/apt.log 2>&1 || (tail /root/apt.log >&2; exit 1)")
    folder = root / "try"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "wheels").mkdir(parents=True)
    for file in [wheel] if wheel.is_file() else sorted(wheel.glob("*.whl")):
        shutil.copy(file, folder / "wheels")
    for file in [*IMAGES, Path(__file__).parent / "first_batch.py"]:
        shutil.copy(file, folder)
    run(root, system, f"{python} -m venv /try/venv")
    begin, cpu = time.monotonic(), used()
    out = run(root, system, "cd /try && venv/bin/pip install --quiet --no-cache-dir numpy && "
              "venv/bin/pip install --quiet --no-index --find-links wheels ccstream && venv/bin/python first_batch.py *.jpg")
    seconds, cpu = time.monotonic() - begin, used() - cpu
    installed = run(root, system, "cd /try && venv/bin/python -c 'import platform as p, numpy; print(p.machine(), \"Python\", p.python_version(), "
                    "*p.libc_ver(), \"NumPy\", numpy.__version__)' && grep -h ^Tag: venv/lib/python3*/site-packages/ccstream-*.dist-info/WHEEL")
    print(f"{system}: {seconds:.0f} s, CPU {cpu:.0f} s, load {os.getloadavg()[0]:.1f}: {' '.join(installed.split())}: {out.strip()}", flush=True)


if len(sys.argv) < 4 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
for name in sys.argv[3:]:
    try_in(Path(sys.argv[1]).absolute() / name.replace("/", "-"), name, Path(sys.argv[2]).absolute())
