#!/usr/bin/env python3
"""ccpack beside other writers, in turn on the same JPEG files and captions: their bytes as they are, or with a shorter side of at most SIDE.

    tests/bench/peers/run_packing.py BIN WORK IMAGES.tar CAPTIONS.tsv [--rows N] [--side SIDE] [--workers N] [--repeats N] [--only NAME...]

BIN contains ccpack (a release build). CAPTIONS.tsv has lines of caption TAB file. WORK is a folder for N samples made of them (the images
again and again under other names, as links to one file each), the environments that install.sh makes, and what is written; best on a tmpfs.
img2dataset reads URLs alone, so nginx serves it the files from the loopback interface; nginx's own time is not counted. Peers that pip cannot
install are named and omitted. By hand; about ten minutes.

Processor seconds are user and system time of the program and all its processes, so a busy machine changes them little; memory is the largest
sum of their proportional set sizes, sampled 20 times a second. "without start-up": the time of a single row (as it is, for FFCV resized)
subtracted.
"""
import argparse
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = ("webdataset", "streaming", "litdata", "ffcv", "img2dataset")
NGINX = """{user}
daemon off;
pid {run}/nginx.pid;
error_log {run}/error.txt;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000;
    client_body_temp_path {run}/temp; proxy_temp_path {run}/temp; fastcgi_temp_path {run}/temp;
    uwsgi_temp_path {run}/temp; scgi_temp_path {run}/temp;
    server {{ listen 127.0.0.1:{port} backlog=4096; root {work}; }}
}}
"""


def make_samples(folder, tar, table, rows):
    """`rows` samples KEY.jpg and KEY.txt; files of the same image are one."""
    os.makedirs(folder)
    images = folder + ".images"
    shutil.rmtree(images, ignore_errors=True)
    os.makedirs(images)
    with tarfile.open(tar) as t:
        for member in t:
            if member.isfile():
                with open(os.path.join(images, os.path.basename(member.name)), "wb") as out:
                    shutil.copyfileobj(t.extractfile(member), out)
    with open(table, encoding="utf-8") as f:
        pairs = [line.rstrip("\n").split("\t")[:2] for line in f]
    pairs = [(caption, name) for caption, name in pairs if os.path.exists(os.path.join(images, name))]
    assert pairs, "%s names no image of %s" % (table, tar)
    for row in range(rows):
        caption, name = pairs[row % len(pairs)]
        os.link(os.path.join(images, name), os.path.join(folder, "%06d.jpg" % row))
        with open(os.path.join(folder, "%06d.txt" % row), "w", encoding="utf-8") as f:
            f.write(caption)


def write_list(folder, file, port):
    with open(file, "w", encoding="utf-8") as out:
        out.write("caption\turl\n")
        for name in sorted(os.listdir(folder)):
            if name.endswith(".txt"):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    out.write("%s\thttp://127.0.0.1:%d/%s/%s.jpg\n" % (f.read(), port, os.path.basename(folder), name[:-4]))


def tree(root):
    """The processes of the session that `root` leads."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == root:
                yield pid
        except OSError:
            pass


def pss(pid):
    try:
        with open("/proc/%s/smaps_rollup" % pid) as f:
            return next((int(line.split()[1]) for line in f if line.startswith("Pss:")), 0)
    except OSError:  # it has ended
        return 0


def measure(words, log):
    """(seconds, processor seconds, MiB) of a command and its processes; its output goes to `log`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    with open(log, "w") as out:
        child = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                 env=dict(os.environ, NO_ALBUMENTATIONS_UPDATE="1", DATA_OPTIMIZER_CACHE_FOLDER=log + ".cache"))
    peak, done = [0], threading.Event()

    def watch():
        while not done.wait(0.05):
            peak[0] = max(peak[0], sum(map(pss, tree(child.pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = child.wait()
    seconds = time.monotonic() - begin
    done.set()
    watcher.join()
    if code != 0:
        with open(log) as f:
            sys.stderr.write(f.read())
        raise SystemExit("run_packing: exit code %d of %s" % (code, " ".join(words)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak[0] / 1024


def size_of(folder):
    return sum(os.path.getsize(os.path.join(f, name)) for f, _, names in os.walk(folder) for name in names)


def command(name, a, folder, out, side):
    """Words of the program NAME, which writes `folder` to `out`."""
    jobs = str(a.workers)
    if name.startswith("ccpack"):
        words = [os.path.join(a.bin, "ccpack"), "-q", "-o", out, "-j", jobs]
        words += ["--no-check"] if name == "ccpack --no-check" else []
        return words + (["--resize", "short:%d" % side, "--quality", "95"] if side else []) + [folder]
    venv = os.path.join(a.work, "venv", name, "bin")
    if name == "img2dataset":
        shape = ["--image_size", str(side), "--resize_mode", "keep_ratio", "--resize_only_if_bigger", "True", "--encode_quality", "95"] \
            if side else ["--resize_mode", "no", "--disable_all_reencoding", "True"]
        return [os.path.join(venv, "img2dataset"), "--url_list", folder + ".tsv", "--input_format", "tsv", "--url_col", "url",
                "--caption_col", "caption", "--output_format", "webdataset", "--output_folder", out, "--processes_count", jobs,
                "--thread_count", "32", "--retries", "0", *shape, "--extract_exif", "False", "--compute_hash", "None",
                "--number_sample_per_shard", "1000", "--enable_wandb", "False"]
    return [os.path.join(venv, "python"), os.path.join(HERE, "pack_%s.py" % name), folder, out, "--workers", jobs, "--size", str(side)]


def version(a, name):
    if name.startswith("ccpack"):
        return subprocess.run([os.path.join(a.bin, "ccpack"), "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    package = {"streaming": "mosaicml-streaming"}.get(name, name)
    return subprocess.run([os.path.join(a.work, "venv", name, "bin", "python"), "-c",
                           "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))", package],
                          check=True, capture_output=True, text=True).stdout.strip()


def serve(a, run):
    """nginx over WORK; its process and port."""
    if not shutil.which("nginx"):
        raise SystemExit("run_packing: nginx is not installed: apt-get install nginx-light")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with open(os.path.join(run, "nginx.conf"), "w") as f:
        f.write(NGINX.format(user="user root;" if os.getuid() == 0 else "", run=run, port=port, work=a.work))
    return subprocess.Popen(["nginx", "-c", os.path.join(run, "nginx.conf")], stderr=subprocess.DEVNULL), port


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bin")
    p.add_argument("work")
    p.add_argument("images")
    p.add_argument("captions")
    p.add_argument("--rows", type=int, default=2000)
    p.add_argument("--side", type=int, default=256)
    p.add_argument("--workers", type=int, default=os.cpu_count())
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--only", nargs="+", choices=PEERS, default=PEERS, help="peers to run")
    a = p.parse_args()
    a.bin, a.work = os.path.abspath(a.bin), os.path.abspath(a.work)
    programs = ["ccpack", "ccpack --no-check"]
    for name in a.only:
        if subprocess.run([os.path.join(HERE, "install.sh"), a.work, name]).returncode == 0:
            programs.append(name)
    folder, single = (os.path.join(a.work, "%d-samples" % rows) for rows in (a.rows, 1))
    for path, rows in ((folder, a.rows), (single, 1)):
        if not os.path.isdir(path):
            shutil.rmtree(path + ".tmp", ignore_errors=True)
            make_samples(path + ".tmp", a.images, a.captions, rows)
            os.rename(path + ".tmp", path)
    run = os.path.join(a.work, "run")
    shutil.rmtree(run, ignore_errors=True)
    os.makedirs(run)
    server = None
    try:
        if "img2dataset" in programs:
            server, port = serve(a, run)
            write_list(folder, folder + ".tsv", port)
            write_list(single, single + ".tsv", port)
        compare(a, programs, folder, single, run)
    finally:
        if server:
            server.terminate()
            server.wait()
        shutil.rmtree(run, ignore_errors=True)


def compare(a, programs, folder, single, run):
    seen = {}
    for _ in range(a.repeats):
        for side in (0, a.side):
            for name in programs:
                if (name == "ccpack --no-check" and side) or (name == "ffcv" and not side):
                    continue  # a resize decodes; FFCV has no bytes as they are
                for path in (single, folder) if side == 0 or name == "ffcv" else (folder,):
                    out = os.path.join(run, "out")
                    shutil.rmtree(out, ignore_errors=True)
                    result = (*measure(command(name, a, path, out, side), os.path.join(run, "log.txt")), size_of(out) / 1e6)
                    seen.setdefault((side, name) if path == folder else name, []).append(result)
                    print(json.dumps({"program": name, "side": side, "rows": 1 if path == single else a.rows,
                                      **dict(zip(("seconds", "cpu_seconds", "pss_mib", "mb"), (round(x, 3) for x in result)))}),
                          file=sys.stderr, flush=True)
    print("| program | resize | seconds | CPU seconds | without start-up | ratio to `ccpack`'s | MiB | MB written |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for side in (0, a.side):
        ours = None
        for name in programs:
            if (side, name) not in seen:
                continue
            seconds, cpu, mib, mb = (statistics.median(x) for x in zip(*seen[side, name]))
            alone = cpu - statistics.median(x[1] for x in seen[name])
            ours = ours or alone
            title = "`%s`" % name if name.startswith("ccpack") else name
            print(f"| {title} {version(a, name)} | {f'short:{side}' if side else 'none'} | {seconds:.2f} | {cpu:.2f} | {alone:.2f} | "
                  f"{alone / ours:.1f} | {mib:.0f} | {mb:.1f} |")


if __name__ == "__main__":
    main()
