#!/bin/bash
# by hand: minutes. Every loss on the emulated GPU (tests/support/cuda_emulation), each recorded, as
# late as CUDA allows and with its state pinned, against op by op, at once and with its state on the
# device: the same bytes. Then micro-batches, padded captions, bf16, resumed runs, two views and four ranks; packed beside padded
# captions, the device beside the CPU, and four ranks beside one, to within rounding.
#
#   tests/e2e/emulated_gpu.sh [BUILD]     BUILD: build/dev; one line for each, "0 failed" at the end
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${1:-build/dev}") || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
program=("$build/bin/ccstream-train")

"$build/tests/bin/make_scenes" train 16 3 32 train.tar || exit 1
"$build/bin/ccpack" -q -o data train.tar || exit 1
"$build/bin/ccpack" tokenizer data --vocab-size 100 >/dev/null 2>&1 || exit 1

train() { # train WHEN NAME OPTION...: in f32 unless they say otherwise
    when=$1
    name=$2
    shift 2
    case "$*" in
    *--precision*) ;;
    *) set -- "$@" --precision f32 ;;
    esac
    rm -rf "$name"
    CCSTREAM_EMULATED=$when LD_LIBRARY_PATH=$build/tests/emulated \
        CCSTREAM_CUDA_MODULE=$build/tests/emulated/libccstream_cuda.so \
        "${program[@]}" --data data --augment crop --tau 0.05 \
        --image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 8 \
        --batch-size 4 --threads 1 --loader-threads 1 --out "$name" "$@" >"$name.txt" 2>&1
}
verdict() { # verdict RC WHAT
    if [ "$1" = 0 ]; then
        echo "same    $2"
    else
        echo "FAILED  $2"
        failed=$((failed + 1))
    fi
}
numbers() {
    grep '"loss"' "$1/metrics.jsonl" | sed 's/"pairs_per_s":[^,]*,"stall_fraction":[^,]*,//; s/,"slowest_rank":.*//; s/,"peak_rss_bytes":.*//'
}
# Recorded, late, pinned against eager, at once, on the device; 4 steps, so that both places are
# recorded and repeated.
against() { # against WHAT OPTION...
    what=$1
    shift
    train now a --device cuda --steps 4 --cuda-graph off --state-memory device "$@" &&
        train late b --device cuda --steps 4 --cuda-graph on --state-memory pinned "$@" &&
        cmp a/last b/last && [ "$(numbers a)" = "$(numbers b)" ] &&
        grep -q "steps as one of .* graphs" b.txt
    verdict $? "$what"
    grep -q "step 4/4" a.txt || tail -n 2 a.txt b.txt
}
near() { # near WHAT DIFFERENCE: every loss of a and b
    paste <(grep -o '"loss":[^,]*' a/metrics.jsonl | cut -d: -f2) \
        <(grep -o '"loss":[^,]*' b/metrics.jsonl | cut -d: -f2) |
        awk -v most="$2" '{ d = $1 - $2; n++; if (d < -most || d > most) bad = 1 } END { exit bad || n < 2 }'
    verdict $? "$1 (losses within $2)"
}

for loss in clip siglip cyclip dcl hcl rince sogclr isogclr nuclr nuclr-frozen nuclr-noxi fastclip-v0 fastclip-v3 scent; do
    against "$loss" --loss $loss
done
against "emc2" --loss emc2 --emc2-off-batch skip
for loss in simclr dcl hcl rince sogclr isogclr; do
    against "two views, $loss" --task two-views --loss $loss
done
against "two views, emc2" --task two-views --loss emc2 --emc2-off-batch skip
against "micro-batch 3" --loss sogclr --micro-batch 3
against "two views, micro-batch 3" --task two-views --loss sogclr --micro-batch 3
against "padded captions" --loss sogclr --padding longest
against "bf16" --loss sogclr --precision bf16
against "sgdm" --loss sogclr --optimizer sgdm
against "clipped gradients" --loss sogclr --clip-norm 0.5

for task in pairs two-views; do
    train now a --device cuda --steps 4 --cuda-graph off --task $task --loss sogclr
    train late b --device cuda --steps 1 --task $task --loss sogclr
    CCSTREAM_EMULATED=late LD_LIBRARY_PATH=$build/tests/emulated \
        CCSTREAM_CUDA_MODULE=$build/tests/emulated/libccstream_cuda.so \
        "$build/bin/ccstream-train" --resume b --steps 3 >b.txt 2>&1 &&
        CCSTREAM_EMULATED=late LD_LIBRARY_PATH=$build/tests/emulated \
            CCSTREAM_CUDA_MODULE=$build/tests/emulated/libccstream_cuda.so \
            "$build/bin/ccstream-train" --resume b --steps 4 >b.txt 2>&1 && cmp a/last b/last
    verdict $? "resumed twice, $task"
done

train now a --device cuda --steps 4 --loss sogclr --dropout 0
train now b --device cuda --steps 4 --loss sogclr --dropout 0 --padding longest
near "packed and padded captions" 1e-5
train now b --device cpu --steps 4 --loss sogclr --dropout 0
near "emulated GPU and cpu" 1e-4
train now a --device cuda --steps 4 --loss sogclr --state-memory host
train now b --device cuda --steps 4 --loss sogclr
near "state on the host and on the device" 1e-5

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 CCSTREAM_EMULATED_GPUS=4
program=(mpirun --oversubscribe --bind-to none -n 4 "$build/bin/ccstream-train")
against "four ranks" --loss sogclr --micro-batch 1
program=("$build/bin/ccstream-train")
train now b --device cuda --steps 4 --loss sogclr --micro-batch 1
near "four ranks and one" 1e-4

echo "$failed failed"
[ "$failed" = 0 ]
