#!/bin/bash
# Whole training steps on the emulated GPU (tests/support/cuda_emulation): captured and op by op, with
# everything done at once and as late as CUDA allows, the state on the device and in pinned memory,
# interrupted and resumed: the same bytes. And what ccbench reports of such a step. More combinations:
# emulated_gpu.sh.
. "$SRC/tests/support/cli.sh"

[ -n "${EMULATED:-}" ] || {
    echo "skipped: the emulated GPU is not built (no fibers under sanitizers)"
    exit 77
}
export LD_LIBRARY_PATH=$EMULATED CCSTREAM_CUDA_MODULE=$EMULATED/libccstream_cuda.so

"$TESTBIN/make_scenes" train 16 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
train() { # train WHEN NAME OPTION...
    when=$1
    name=$2
    shift 2
    CCSTREAM_EMULATED=$when expect 0 "$BIN/ccstream-train" --data data --augment crop --tau 0.1 \
        --image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 8 \
        --batch-size 4 --steps 4 --threads 1 --loader-threads 1 --device cuda --out "$name" "$@"
}
same() {
    cmp "$1/last" "$2/last" || fail "$2 is not $1"
    numbers "$1" >one.txt
    numbers "$2" >two.txt
    cmp one.txt two.txt || fail "the metrics of $2 are not those of $1"
}
# Metrics of every step but times and memory, with the launches.
numbers() {
    grep '"loss"' "$1/metrics.jsonl" | sed 's/"pairs_per_s":[^,]*,"stall_fraction":[^,]*,//; s/,"peak_rss_bytes":.*//'
}

train now eager --loss sogclr --cuda-graph off
has err.txt "precision bf16, as on every GPU; --precision f32 for exact f32"
train late captured --loss sogclr --cuda-graph on --state-memory pinned --checkpoint-every 2 --keep-checkpoints 2
has err.txt "2 steps as one of 2 graphs of "
same eager captured
[ "$(grep -c '"launches":' eager/metrics.jsonl)" = 4 ] || fail "launches are not recorded"

# Interrupted within the epoch, and resumed op by op.
interrupted captured 2 parts
sed -i 's/"cuda-graph":"on"/"cuda-graph":"off"/' parts/config.json
CCSTREAM_EMULATED=late expect 0 "$BIN/ccstream-train" --resume parts --steps 4
same eager parts

# By tiles, some of a row or a column: the same losses up to rounding, with the state on the host.
train now whole --loss sogclr --precision f32
train late tiles --loss sogclr --precision f32 --loss-tile 3
has err.txt "loss and state stay on the host: "
for run in whole tiles; do
    grep -o '"loss":[-0-9.e]*' $run/metrics.jsonl | cut -d: -f2 >$run.txt
done
paste whole.txt tiles.txt | awk '{ d = $1 - $2; n++ } d * d > 1e-10 * (1 + $1 * $1) { exit 1 } END { exit n != 4 }' ||
    fail "losses by tiles: $(paste whole.txt tiles.txt)"
cmp -s whole/last tiles/last && fail "--loss-tile has no effect"
CCSTREAM_EMULATED=now expect 64 "$BIN/ccstream-train" --data data --image-tower tiny --text-tower tiny --image-size 8 --stem small \
    --batch-size 4 --device cuda --loss-tile 2 --state-memory device --out refused
has err.txt "--state-memory device is not possible"

# What a step takes of the device is what was planned and the device's own; a captured step has the
# launches of one op by op but for the copies of values, ids and report, the loss among its operators.
CCSTREAM_EMULATED=late expect 0 "$BIN/ccbench" step --device cuda --loss sogclr --state-memory device \
    --image-tower tiny --text-tower tiny --image-size 8 --stem small --tokens 8 --batch-size 4 \
    --vocab 100 --machine off --steps 1 --json
number() {
    sed -n "s/.*\"$1\":\([0-9.]*\),.*/\1/p" out.txt
}
[ "$(number used_bytes)" = $(($(number planned_bytes) + $(number workspace_bytes))) ] ||
    fail "used is not planned and workspace: $(cat out.txt)"
[ "$(number eager_launches)" = $(($(number launches) + 3)) ] || fail "launches: $(cat out.txt)"
has out.txt '"name":"loss"'
has out.txt '"idle_fraction":0'

# The plan has what a GPU takes itself, at least what an H200 took in each step that was measured on it; a CPU takes nothing.
expect 0 "$BIN/ccstream-train" --data data --image-tower tiny --text-tower tiny --image-size 8 --batch-size 4 --device cuda --dry-run
has out.txt "for CUDA, its libraries and captured steps"
own=$(sed -n 's/^device  *\([0-9.]*\) MiB.*/\1/p' out.txt)
workspace=$(sed -n 's/^cuDNN  *up to \([0-9.]*\) GiB.*/\1/p' out.txt)
sed -n 's/.*"planned_bytes":\([1-9][0-9]*\),"used_bytes":\([0-9]*\),"workspace_bytes":\([0-9]*\),.*/\1 \2 \3/p' \
    "$SRC"/tests/bench/results/gpu-*/results*.jsonl >measured.txt
[ "$(wc -l <measured.txt)" -ge 15 ] || fail "steps of a GPU: $(cat measured.txt)"
awk -v own="$own" -v workspace="$workspace" '{ blas = 32; mib = 2 ^ 20
    if (($2 - $1 - $3) / mib + blas > own || $3 / mib - blas > 1024 * workspace || own > 700) { print; bad = 1 } } END { exit bad }' measured.txt ||
    fail "device $own MiB, workspace $workspace GiB"
expect 0 "$BIN/ccstream-train" --data data --image-tower tiny --text-tower tiny --image-size 8 --batch-size 4 --device cpu --dry-run
hasnt out.txt "CUDA"

# Where nothing can be captured, steps run op by op, with a line for each shape that reports it.
CCSTREAM_EMULATED_FAULT=capture expect 0 "$BIN/ccbench" step --device cuda \
    --image-tower tiny --text-tower tiny --image-size 8 --stem small --tokens 2 --batch-size 2 \
    --vocab 10 --machine off --steps 1 --json
has err.txt "steps run op by op: "
[ "$(grep -c "op by op" err.txt)" -le 2 ] || fail "logged more than once a shape: $(cat err.txt)"
has out.txt '"cuda_graph":"off"'

train now views --task two-views --loss simclr --cuda-graph off --micro-batch 3
train late captured-views --task two-views --loss simclr --micro-batch 3
has err.txt "2 steps as one of 2 graphs of "
same views captured-views

# What the device has no kernel for is refused before any work.
CCSTREAM_EMULATED=now expect 69 "$BIN/ccstream-train" --data data --batch-size 4 --device cuda --optimizer lars --out lars
has err.txt "--optimizer lars: device cuda has no kernel for it"
CCSTREAM_EMULATED=now expect 69 "$BIN/ccstream-train" --data data --batch-size 4 --device cuda --optimizer adam --out adam
has err.txt "--optimizer adam: device cuda has no kernel for it"
CCSTREAM_EMULATED=now expect 69 "$BIN/ccstream-train" --data data --batch-size 4 --device cuda --norm-layer none --out lars
has err.txt "--norm-layer none: device cuda has no kernel for it"
[ ! -e lars ] || fail "a refused run left a directory"

# A vision and a text transformer, in micro-batches, with what can be trained of it and how: the device's losses are the processor's.
model='{"embed_dim":16,"vision_cfg":{"image_size":16,"layers":2,"width":32,"head_width":16,"patch_size":8},"text_cfg":{"width":128,"heads":2,"layers":2}}'
for device in cuda cpu; do
    CCSTREAM_EMULATED=late expect 0 "$BIN/ccstream-train" --data data --augment none --loss clip --tau 0.1 --precision f32 --model "$model" --tokenizer data/tokenizer.model --max-tokens 12 \
        --batch-size 4 --micro-batch 2 --steps 4 --lr 1e-3 --warmup-steps 1 --threads 1 --loader-threads 1 --device $device --out "model-$device" \
        --ema 0.5 --lock-text 3 --layer-decay 0.7 --image-lr 2e-3 --grad-checkpoint --temperature global --beta2 0.9
    sed -n 's/.*"loss":\([0-9.]*\),.*/\1/p' "model-$device/metrics.jsonl" >"model-$device.txt"
done
lines model-cuda.txt 4
paste model-cuda.txt model-cpu.txt | awk '{ d = $1 - $2 } d > 1e-4 || d < -1e-4 { exit 1 }' ||
    fail "a transformer's losses: $(paste model-cuda.txt model-cpu.txt)"

# Not enough memory: the micro-batch that fits. The emulated GPU has 1 GiB.
rm -r data
"$TESTBIN/make_scenes" train 48 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
expect 71 "$BIN/ccstream-train" --data data --loss clip --image-tower resnet10t --text-tower tiny --image-size 192 --max-tokens 8 \
    --batch-size 48 --device cuda --precision f32 --steps 1 --threads 1 --loader-threads 1 --out none
has err.txt "GiB of memory"
has err.txt "--micro-batch 24 fits in"
