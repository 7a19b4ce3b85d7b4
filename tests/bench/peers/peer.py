"""What all peers share: the options, the transform's numbers, the measuring loop, the line of JSON.

A peer yields batches of uint8 images, (N, size, size, 3) or (N, 3, size, size), endlessly. What is
made ahead while the first batches are waited for is not counted.

    python3 peer.py evict FOLDER...    drops these files from the page cache
"""

import argparse
import json
import os
import sys
import tempfile
import time

SCALE = (0.5, 1.0)  # fraction of the area: ccstream's "crop"
RATIO = (3 / 4, 4 / 3)


def arguments(data_help):
    p = argparse.ArgumentParser()
    p.add_argument("data", nargs="+", help=data_help)
    p.add_argument("--workers", type=int, default=os.cpu_count())
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--size", type=int, default=256)
    p.add_argument("--seconds", type=float, default=15.0)
    p.add_argument("--cold", action="store_true",
                   help="drop the data and the files below $TMPDIR from the page cache first")
    p.add_argument("--decode", choices=["pillow", "torchvision"], default="pillow")
    return p.parse_args()


def processes():
    """(pid, CPU seconds) of this process and the workers that it started, and theirs."""
    parents, times = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(pid)], times[int(pid)] = int(fields[1]), int(fields[11]) + int(fields[12])
    own, more = {os.getpid()}, True
    while more:
        more = {pid for pid, parent in parents.items() if parent in own} - own
        own |= more
    return [(pid, times.get(pid, 0) / os.sysconf("SC_CLK_TCK")) for pid in own]


def cpu_seconds():
    return sum(seconds for _, seconds in processes())


def memory_mib():
    """Proportional set sizes, so that pages shared by workers count once."""
    kib = 0
    for pid, _ in processes():
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                kib += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            pass
    return kib / 1024


def evict(paths):
    os.sync()  # dirty pages stay
    for path in paths:
        files = [path] if os.path.isfile(path) else [os.path.join(f, name) for f, _, names in os.walk(path) for name in names]
        for file in filter(os.path.isfile, files):
            fd = os.open(file, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def measure(name, version, args, batches):
    """Takes batches for a while and prints one line."""
    if args.cold:
        evict([*args.data, tempfile.gettempdir()])
    side = None
    warm_until = None
    images = 0
    begin = None
    for batch in batches:
        if side is None:
            shape = tuple(batch.shape)
            assert shape[1:] in ((args.size, args.size, 3), (3, args.size, args.size)), shape
            assert str(batch.dtype).endswith("uint8"), batch.dtype
            side = args.size
            warm_until = time.monotonic() + min(3.0, args.seconds / 4)
        now = time.monotonic()
        if begin is None:
            if now >= warm_until:
                begin, cpu = now, cpu_seconds()
            continue
        images += len(batch)
        if now - begin >= args.seconds:
            break
    elapsed, cpu, memory = time.monotonic() - begin, cpu_seconds() - cpu, memory_mib()
    print(json.dumps({
        "peer": name,
        "version": version,
        "images": images,
        "seconds": round(elapsed, 3),
        "images_per_s": round(images / elapsed, 1),
        "cpu_ms_per_image": round(1000 * cpu / images, 3),
        "memory_mib": round(memory),
        "workers": args.workers,
        "batch": args.batch,
        "size": args.size,
    }), flush=True)


def forever(make_epoch):
    while True:
        yield from make_epoch()


if __name__ == "__main__" and sys.argv[1:2] == ["evict"]:
    evict(sys.argv[2:])
