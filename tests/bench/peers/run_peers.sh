#!/bin/bash
# ccstream's loader beside others, one after the other on the same images: random resized crop
# (antialiased bicubic) and mirror to SIZE x SIZE, uint8, WORKERS threads or processes each.
#
#   tests/bench/peers/run_peers.sh BIN WORK TAR...
#
# BIN contains ccpack and ccbench (a release build), BIN/../python the Python package. WORK is a folder
# for the dataset, the unpacked JPEG files, the Python environment and the results; existing ones are
# used again. Peers that pip cannot install are named and omitted. By hand, on an otherwise idle machine.
#   WORKERS=2 BATCH=128 SIZE=256 SECONDS_EACH=15 REPEATS=3 PEERS="python torch webdataset torchdata litdata dali ffcv"
set -eu
[ $# -ge 3 ] || { sed -n '2,10p' "$0"; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
bin=$1
work=$2
shift 2
: "${WORKERS:=$(nproc)}" "${BATCH:=128}" "${SIZE:=256}" "${SECONDS_EACH:=15}" "${REPEATS:=3}"
: "${PEERS:=python torch webdataset torchdata litdata dali ffcv}"
mkdir -p "$work"
python=$work/venv/bin/python

install() { # install NAME: versions and hashes of requirements/NAME.txt
    name=$1
    [ -e "$work/venv/has-$name" ] && return 0
    if "$work/venv/bin/pip" install -q --no-build-isolation --require-hashes -r "$here/requirements/$name.txt" >"$work/pip-$name.log" 2>&1; then
        touch "$work/venv/has-$name"
    else
        echo "$name: pip cannot install it, see $work/pip-$name.log" >&2
        return 1
    fi
}

# --- the same images for all
[ -e "$work/data/dataset.json" ] || "$bin/ccpack" -q --out "$work/data" "$@"
if [ ! -d "$work/jpg" ]; then
    mkdir "$work/jpg.tmp"
    for tar in "$@"; do
        tar -xf "$tar" -C "$work/jpg.tmp" --wildcards '*.jpg'
    done
    mv "$work/jpg.tmp" "$work/jpg"
fi
samples=$(ls "$work/jpg" | wc -l)
echo "$samples images, $WORKERS workers, batches of $BATCH, $SIZE px, $REPEATS times" >&2

# --- the peers
[ -x "$python" ] || python3 -m venv "$work/venv"
: >"$work/results.jsonl"
has() { case " $PEERS " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
run() { # run SCRIPT DATA... [OPTION...]
    "$python" "$here/$1" --workers "$WORKERS" --batch "$BATCH" --size "$SIZE" \
        --seconds "$SECONDS_EACH" "${@:2}" >>"$work/results.jsonl" ||
        echo "$1: failed" >&2
}
ccstream() { # as many epochs as take SECONDS_EACH, by the rate of one
    rate=$("$bin/ccbench" loader "$work/data" --threads "$WORKERS" --batch "$BATCH" --size "$SIZE" \
        --augment crop --json | "$python" -c 'import json, sys; print(json.load(sys.stdin)["pairs_per_s"])')
    epochs=$("$python" -c "import math; print(max(1, math.ceil($rate * $SECONDS_EACH / $samples)))")
    "$bin/ccbench" loader "$work/data" --threads "$WORKERS" --batch "$BATCH" --size "$SIZE" \
        --augment crop --epochs "$epochs" --json | "$python" -c '
import json, sys
r = json.load(sys.stdin)
print(json.dumps({"peer": "ccstream", "version": r["engine"], "images": r["pairs"],
                  "images_per_s": round(r["pairs_per_s"], 1), "workers": r["threads"],
                  "limit_images_per_s": round(r["limit_pairs_per_s"], 1)}))' >>"$work/results.jsonl"
}
for i in $(seq "$REPEATS"); do
    ccstream
    if has python && install torch; then
        PYTHONPATH=$bin/../python run peer_ccstream.py "$work/data"
    fi
    if has torch && install torch; then
        run peer_torch.py "$work/jpg" --decode pillow
        run peer_torch.py "$work/jpg" --decode torchvision
    fi
    if has webdataset && install webdataset; then
        run peer_webdataset.py "$@"
    fi
    for name in torchdata litdata; do
        if has $name && install $name; then
            run peer_$name.py "$work/jpg"
        fi
    done
    if has dali && install dali; then
        run peer_dali.py "$work/jpg"
    fi
    if has ffcv && install ffcv; then
        run peer_ffcv.py "$work/jpg"
    fi
done

# --- medians
"$python" - "$work/results.jsonl" <<'PYTHON'
import json
import statistics
import sys

rows = {}
for line in open(sys.argv[1]):
    r = json.loads(line)
    rows.setdefault(r["peer"], []).append(r)
ours = statistics.median(r["images_per_s"] for r in rows["ccstream"])
print("%-18s %12s %14s %10s  %s" % ("loader", "images/s", "per worker", "ccstream x", "version"))
for name, rs in sorted(rows.items(), key=lambda kv: -statistics.median(r["images_per_s"] for r in kv[1])):
    rate = statistics.median(r["images_per_s"] for r in rs)
    workers = rs[0]["workers"]
    print("%-18s %12.1f %14.1f %10.2f  %s" % (name, rate, rate / workers, ours / rate, rs[0]["version"]))
PYTHON
