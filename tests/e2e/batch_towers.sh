#!/bin/bash
# by hand: recall over the batch with whole towers that all start from one trained model, on rendered scenes of two shapes or on
# any packed pairs. Every run sees every pair EPOCHS times.
#
# usage: BIN=build/release/bin TESTBIN=build/release/tests/bin tests/e2e/batch_towers.sh [DIR [training options]]
#   START      what the runs start from: a run or checkpoint; none: random weights; without it CLIP trains START_EPOCHS epochs on
#              as many other scenes, in batches of 128
#   MODEL      towers of that run. resnet, the default: resnet10t with group norm at 32 px, and tiny; vit: transformers of 2 and 1
#              layers of 64 with layer norm, which take a tenth of the time
#   TRAIN, VAL, TEST         packed pairs, with START; without them 10,240 scenes, and 2,048 of other captions each
#   BATCHES METHODS GAMMA SEEDS   what to train; GAMMA of sogclr and nuclr
#   TAUS       temperatures: of several each loss and batch has its own, tuned on VAL with seed 0
#   EPOCHS, RATE (learning rate at batch 128; it grows with the root of the batch); the options are passed to every run
#
# Started again with the same DIR, it keeps finished runs and resumes an interrupted one, so that it can be run in parts.
# DIR/batch.cells has a line per run, which `ccstudy batch --cells` draws. docs/results/batch-size.md has times and results.
set -eu
dir=${1:-$(mktemp -d)}
shift $(($# > 0))
bin=$(readlink -f "$BIN")
for name in TRAIN VAL TEST START; do
    [ -z "${!name:-}" ] || [ "${!name}" = none ] || declare "$name=$(readlink -f "${!name}")"
done
[ -n "${TRAIN:-}" ] || make_scenes=$(readlink -f "$TESTBIN/make_scenes")
if [ -n "${TRAIN:-}" ] && [ -z "${START:-}" ]; then
    echo "TRAIN needs START" >&2 && exit 64
fi
mkdir -p "$dir"
cd "$dir"
train=${TRAIN:-train}
val=${VAL:-val}
test=${TEST:-test}
start=${START:-start}
epochs=${EPOCHS:-20}
read -ra taus <<<"${TAUS:-0.05 0.1 0.2}"
case ${MODEL:-resnet} in
resnet) model=(--image-tower resnet10t --norm-layer group --image-size 32 --text-tower tiny --text-pool mean) ;;
vit) model=(--model vit.json --tokenizer train/tokenizer.model) ;;
*) echo "MODEL is resnet or vit" >&2 && exit 64 ;;
esac
cat >vit.json <<'END'
{"embed_dim": 64, "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8},
 "text_cfg": {"context_length": 24, "vocab_size": 300, "width": 64, "heads": 2, "layers": 1}}
END
[ -s batch.cells ] || echo "# whole towers, ${MODEL:-resnet}, START ${START:-CLIP}, TRAIN ${TRAIN:-10,240 scenes}, $epochs epochs $*" >batch.cells

if [ -z "${TRAIN:-}" ] && [ ! -e packed ]; then
    "$make_scenes" two-train 10240 1 32 train.tar
    "$make_scenes" two-train 10240 2 32 before.tar
    "$make_scenes" two-val 2048 1 32 test.tar
    "$make_scenes" two-val 2048 2 32 val.tar
    for set in train before test val; do
        "$bin/ccpack" -q --overwrite -o $set $set.tar
    done
    "$bin/ccpack" tokenizer train --model-type bpe --vocab-size 300 >/dev/null # a piece a word
    "$bin/ccpack" tokenizer before --tokenizer train/tokenizer.model >/dev/null
    rm ./*.tar
    touch packed
fi

# trained RUN [options of a new run]: begins or resumes it
trained() {
    local run=$1
    shift
    if [ -e "$run/config.json" ]; then
        "$bin/ccstream-train" -q --resume "$run"
    else
        "$bin/ccstream-train" -q --out "$run" --threads 1 --loader-threads 1 --keep-checkpoints 1 "$@"
    fi
}

# recalls RUN DATA: mean R@1, R@5 and R@10 of both directions
recalls() {
    "$bin/ccstream-eval" retrieval -q "$1" --data "$2" --threads 1 --json |
        sed 's/.*"mean_r1":\([0-9.]*\),"mean_r5":\([0-9.]*\),"mean_r10":\([0-9.]*\).*/\1 \2 \3/'
}

fresh=(--augment clip --dropout 0 "${model[@]}")
if [ "$start" = start ] && [ ! -e start.done ]; then
    # of the tau in the middle
    trained start --data before --loss clip --batch-size 128 --epochs "${START_EPOCHS:-5}" --lr "${RATE:-0.002}" --tau 0.1 "${fresh[@]}"
    echo "start: $(recalls start "$val"), test $(recalls start "$test")" | tee start.done
fi
from=(--init "$start")
[ "$start" != none ] || from=("${fresh[@]}")

# cell METHOD BATCH TAU SEED [training options]
cell() {
    local method=$1 batch=$2 tau=$3 seed=$4
    shift 4
    local rate run=$method-$batch-$tau-$seed loss gamma=${GAMMA:-0.3}
    rate=$(awk -v b="$batch" -v r="${RATE:-0.002}" 'BEGIN { printf "%.6g", r * sqrt(b / 128) }')
    grep -q "^$method $batch $tau $rate [0-9.]* $seed " batch.cells && return
    case $method in
    clip) loss="--loss clip" gamma=0 ;;
    sogclr) loss="--loss sogclr --gamma $gamma" ;;
    sogclr-forgets) loss="--loss sogclr --gamma 1" gamma=1 ;;
    nuclr-frozen) loss="--loss nuclr-frozen --gamma $gamma" ;;
    nuclr-fixed) loss="--loss nuclr --gamma $gamma --zeta-lr 5e-6 --zeta-freeze-epochs 2" ;;
    nuclr-auto) loss="--loss nuclr --gamma $gamma --zeta-lr auto --zeta-freeze-epochs 2" ;;
    *) echo "$method: not a method" >&2 && exit 64 ;;
    esac
    # shellcheck disable=SC2086 # several words
    trained "$run" --data "$train" "${from[@]}" $loss --seed "$seed" --batch-size "$batch" --epochs "$epochs" --lr "$rate" --tau "$tau" "$@"
    echo "$method $batch $tau $rate $gamma $seed $(recalls "$run" "$val") $(recalls "$run" "$test")" | tee -a batch.cells
    find "$run" -name '*.safetensors' -delete
}

# best METHOD BATCH: the temperature with the highest mean recall on the validation pairs
best() {
    awk -v m="$1" -v b="$2" '$1 == m && $2 == b && $6 == 0 && $7 + $8 + $9 > top { top = $7 + $8 + $9; tau = $3 }
        END { print tau }' batch.cells
}

read -ra batches <<<"${BATCHES:-8 32 128}"
read -ra methods <<<"${METHODS:-clip sogclr sogclr-forgets}"
if ((${#taus[@]} > 1)); then
    for batch in "${batches[@]}"; do
        for method in "${methods[@]}"; do
            for tau in "${taus[@]}"; do
                cell "$method" "$batch" "$tau" 0 "$@"
            done
        done
    done
fi
for seed in ${SEEDS:-1 2 3}; do
    for batch in "${batches[@]}"; do
        for method in "${methods[@]}"; do
            tau=${taus[0]}
            ((${#taus[@]} == 1)) || tau=$(best "$method" "$batch")
            cell "$method" "$batch" "$tau" "$seed" "$@"
        done
    done
done
