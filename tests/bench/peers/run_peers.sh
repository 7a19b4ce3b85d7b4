#!/bin/bash
# ccstream's loader and others, in turn on the same images: random resized crop (antialiased bicubic) and
# horizontal flip to SIZE x SIZE, uint8, WORKERS threads or processes each.
#
#   tests/bench/peers/run_peers.sh BIN WORK TAR...
#
# BIN contains ccpack and ccbench (a release build), BIN/../python the Python package. WORK is a folder
# for the dataset, the unpacked JPEG files, the Python environments and the results; existing ones are
# used again. Peers that pip cannot install are named and omitted. By hand, on an otherwise idle machine;
# on a busy one CPU time alone can be compared.
#   WORKERS=2 BATCH=128 SIZE=256 SECONDS_EACH=15 REPEATS=3
#   COPIES=1     how often each tar is taken, under other names (for another number another WORK)
#   COLD=1       the files are not in the page cache at the beginning of a run, which has to end before
#                all are read once: with COPIES=8 of pairs/*.tar, SECONDS_EACH=3
#   PEERS="python torch webdataset open_clip torchdata litdata dali dali_dynamic ffcv spdl grain datasets webshart energon"
set -eu
[ $# -ge 3 ] || { sed -n '2,15p' "$0"; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
bin=$1
work=$2
shift 2
: "${WORKERS:=$(nproc)}" "${BATCH:=128}" "${SIZE:=256}" "${SECONDS_EACH:=15}" "${REPEATS:=3}"
: "${COPIES:=1}" "${COLD:=}"
: "${PEERS:=python torch webdataset open_clip torchdata litdata dali dali_dynamic ffcv spdl grain datasets webshart energon}"
mkdir -p "$work/tmp"
work=$(cd "$work" && pwd)
export TMPDIR=$work/tmp # of the peers' own files

# --- the same images for all
if [ ! -d "$work/jpg" ]; then
    rm -rf "$work/jpg.tmp" "$work/tars"
    mkdir "$work/jpg.tmp" "$work/tars"
    for copy in $(seq "$COPIES"); do
        for tar in "$@"; do
            mkdir "$work/jpg.tmp/new"
            tar -xf "$tar" -C "$work/jpg.tmp/new" --transform "s,.*/,,;s,^,$copy-,"
            (cd "$work/jpg.tmp/new" && tar --sort=name -cf "$work/tars/$copy-$(basename "$tar")" -- *)
            mv "$work/jpg.tmp/new"/*.jpg "$work/jpg.tmp/"
            rm -r "$work/jpg.tmp/new"
        done
    done
    mv "$work/jpg.tmp" "$work/jpg"
fi
set -- "$work"/tars/*.tar
[ -e "$work/data/dataset.json" ] || "$bin/ccpack" -q --allow-duplicates --overwrite --out "$work/data" "$@"
samples=$(find "$work/jpg" -name '*.jpg' | wc -l)
echo "$samples images, $WORKERS workers, batches of $BATCH, $SIZE px, $REPEATS times" >&2

# --- the peers
: >"$work/results.jsonl"
run() { # run ENVIRONMENT SCRIPT DATA... [OPTION...]
    "$here/install.sh" "$work" "$1" || return 0
    "$work/venv/$1/bin/python" "$here/$2" --workers "$WORKERS" --batch "$BATCH" --size "$SIZE" \
        --seconds "$SECONDS_EACH" ${COLD:+--cold} "${@:3}" >>"$work/results.jsonl" ||
        echo "$2: failed" >&2
}
loader() { # loader ARGS...
    "$bin/ccbench" loader "$work/data" --threads "$WORKERS" --batch "$BATCH" --size "$SIZE" --augment crop --json "$@"
}
ccstream() { # as many epochs as take SECONDS_EACH, by the rate of one; cold: one
    epochs=1
    if [ -n "$COLD" ]; then
        python3 "$here/peer.py" evict "$work/data"
    else
        rate=$(loader | python3 -c 'import json, sys; print(json.load(sys.stdin)["pairs_per_s"])')
        epochs=$(python3 -c "import math; print(max(1, math.ceil($rate * $SECONDS_EACH / $samples)))")
    fi
    loader --epochs "$epochs" --no-limit | python3 -c '
import json, sys
r = json.load(sys.stdin)
print(json.dumps({"peer": "ccstream", "version": r["engine"], "images": r["pairs"],
                  "images_per_s": round(r["pairs_per_s"], 1), "workers": r["threads"],
                  "cpu_ms_per_image": round(1000 * r["cpu_s"] / r["pairs"], 3),
                  "memory_mib": round(r["peak_rss_bytes"] / 2**20)}))' >>"$work/results.jsonl"
}
for _ in $(seq "$REPEATS"); do
    ccstream
    for name in $PEERS; do
        case $name in
        python) PYTHONPATH=$bin/../python run torch peer_ccstream.py "$work/data" ;;
        torch)
            run torch peer_torch.py "$work/jpg" --decode pillow
            run torch peer_torch.py "$work/jpg" --decode torchvision
            ;;
        webdataset | open_clip | datasets | webshart | energon) run "$name" "peer_$name.py" "$@" ;;
        dali_dynamic) run dali peer_dali_dynamic.py "$work/jpg" ;;
        *) run "$name" "peer_$name.py" "$work/jpg" ;;
        esac
    done
done

# --- medians
python3 - "$work/results.jsonl" <<'PYTHON'
import json
import statistics
import sys

rows = {}
for line in filter(lambda line: line.startswith("{"), open(sys.argv[1])):  # webshart reports progress there, too
    r = json.loads(line)
    rows.setdefault(r["peer"], []).append(r)
ours = statistics.median(r["images_per_s"] for r in rows["ccstream"])
print("%-18s %12s %14s %10s %10s %8s  %s" % ("loader", "images/s", "per worker", "ccstream x", "CPU ms", "MiB", "version"))
for name, rs in sorted(rows.items(), key=lambda kv: -statistics.median(r["images_per_s"] for r in kv[1])):
    rate = statistics.median(r["images_per_s"] for r in rs)
    workers = rs[0]["workers"]
    cpu, memory = ("%.2f" % statistics.median(r["cpu_ms_per_image"] for r in rs), "%d" % max(r["memory_mib"] for r in rs)) \
        if "cpu_ms_per_image" in rs[0] else ("", "")
    print("%-18s %12.1f %14.1f %10.2f %10s %8s  %s" % (name, rate, rate / workers, ours / rate, cpu, memory, rs[0]["version"]))
PYTHON
