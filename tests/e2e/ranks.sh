#!/bin/bash
# by hand: every loss on 1, 2, 3 and 4 ranks (nuclr and emc2 also on 8). For each: the gradient of step 1 (the momentum
# of one step of SGD) beside that of one rank, relative to its norm; the largest difference of a loss in ten steps,
# relative to max(|loss|, 0.1), at the beginning of a schedule of 200; and whether the checkpoint has the bytes of one
# rank, which it must have of 2, 4 and 8 ranks.
# Then two views; and 200 steps of nuclr, interrupted with 4 ranks and resumed with 2.
#
#     tests/e2e/ranks.sh [BUILD]     BUILD: build/release; a line for each, "0 failed" at the end
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${1:-build/release}") || exit 1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
failed=0
most=1e-4 # a loss in ten steps

"$build/tests/bin/make_scenes" train 480 3 32 train.tar || exit 1
"$build/bin/ccpack" -q -o data train.tar || exit 1
"$build/bin/ccpack" tokenizer data --vocab-size 100 >/dev/null || exit 1

cat >compare.py <<'PYTHON'
"""compare.py gradient A B: |gB - gA| / |gA| of two checkpoints after one step of SGD; losses A B: of metrics.jsonl."""
import array
import json
import math
import struct
import sys


def gradients(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    for name in sorted(k for k in header if k.startswith("sgdm.m.")):
        begin, end = header[name]["data_offsets"]
        yield array.array("f", data[8 + size + begin:8 + size + end])


def losses(path):
    return [line["loss"] for line in map(json.loads, open(path)) if "loss" in line]


kind, one, other = sys.argv[1:]
if kind == "gradient":
    far = norm = 0.0
    for a, b in zip(gradients(one), gradients(other), strict=True):
        far += sum((y - x) ** 2 for x, y in zip(a, b, strict=True))
        norm += sum(x * x for x in a)
    print("%.1e" % math.sqrt(far / norm))
else:
    print("%.1e" % max(abs(b - a) / max(abs(a), 0.1) for a, b in zip(losses(one), losses(other), strict=True)))
PYTHON

ranks() { # ranks W OUT OPTION...
    world=$1
    out=$2
    shift 2
    timeout 1800 mpirun --oversubscribe --bind-to none -n "$world" "$build/bin/ccstream-train" -q --out "$out" --data data \
        --image-tower tiny --text-tower tiny --image-size 16 --stem small --max-tokens 8 --batch-size 48 --seed 7 \
        --epochs 20 --threads 1 --loader-threads 1 "$@" </dev/null 2>err.txt || {
        cat err.txt
        return 1
    }
}
at_most() { # at_most VALUE LIMIT
    awk -v value="$1" -v limit="$2" 'BEGIN { exit !(value <= limit) }'
}
verdict() { # verdict RC WHAT
    [ "$1" = 0 ] && echo "ok      $2" && return
    echo "FAILED  $2"
    failed=$((failed + 1))
}
against_one() { # against_one NAME MICRO_BATCH "WORLD..." OPTION...
    name=$1
    micro=$2
    worlds=$3
    shift 3
    rm -rf g1 t1
    ranks 1 g1 --micro-batch "$micro" --steps 1 --optimizer sgdm --weight-decay 0 "$@" &&
        ranks 1 t1 --micro-batch "$micro" --steps 10 "$@"
    verdict $? "$name, 1 rank"
    for world in $worlds; do
        rm -rf g t
        gradient=none
        loss=none
        bytes=other
        ranks "$world" g --micro-batch "$micro" --steps 1 --optimizer sgdm --weight-decay 0 "$@" &&
            gradient=$(python3 compare.py gradient g1/last g/last) &&
            ranks "$world" t --micro-batch "$micro" --steps 10 "$@" &&
            loss=$(python3 compare.py losses t1/metrics.jsonl t/metrics.jsonl) &&
            cmp -s t1/last t/last && bytes=equal
        [ "$gradient" != none ] && [ "$loss" != none ] && at_most "$gradient" 1e-5 && at_most "$loss" "$most" &&
            { [ "$world" = 3 ] || [ $bytes = equal ]; }
        verdict $? "$name, $world ranks: gradient $gradient, losses $loss, bytes $bytes"
    done
}

for loss in clip siglip cyclip dcl hcl rince sogclr isogclr nuclr nuclr-frozen nuclr-noxi fastclip-v0 fastclip-v1 \
    fastclip-v2 fastclip-v3 scent; do
    against_one $loss 4 "2 3 4" --loss $loss
done
against_one emc2 4 "2 3 4" --loss emc2
against_one "emc2 --emc2-off-batch skip" 4 "2 3 4" --loss emc2 --emc2-off-batch skip
against_one "nuclr --xi all" 4 "2 3 4" --loss nuclr --xi all --zeta-freeze-epochs 0
against_one "nuclr --micro-batch 6" 6 "8" --loss nuclr --zeta-freeze-epochs 0
against_one "emc2 --micro-batch 6" 6 "8" --loss emc2
for loss in simclr dcl hcl rince sogclr isogclr; do
    against_one "two views, $loss" 4 "2 3 4" --task two-views --loss $loss
done
against_one "two views, emc2" 2 "2 3 4" --task two-views --loss emc2
against_one "two views, emc2 --emc2-off-batch skip" 4 "2 3 4" --task two-views --loss emc2 --emc2-off-batch skip
most=1e-3 # a mean of differences about 0, so that last bits are more of it
against_one negcache 4 "2 3 4" --loss negcache
against_one "two views, negcache" 4 "2 3 4" --task two-views --loss negcache
most=1e-4

long="--micro-batch 6 --loss nuclr --zeta-freeze-epochs 0"
rm -rf whole parts
# shellcheck disable=SC2086 # options
ranks 1 whole $long && ranks 4 parts $long --steps 90 &&
    timeout 1800 mpirun --oversubscribe --bind-to none -n 2 "$build/bin/ccstream-train" -q --resume parts </dev/null &&
    cmp whole/last parts/last && [ "$(readlink whole/last)" = checkpoints/step-200.safetensors ]
verdict $? "200 steps, 90 of them with 4 ranks and the others with 2: the bytes of one rank"

echo "$failed failed"
[ $failed = 0 ]
