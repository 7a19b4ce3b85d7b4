#!/bin/bash
# by hand: recall over the batch with whole towers, on rendered scenes or any packed pairs: every loss and batch has tau
# tuned on validation pairs with seed 0 and is then trained with the seeds 1 to 5. Equal samples seen.
#
# usage: BIN=build/release/bin TESTBIN=build/release/tests/bin tests/e2e/batch_towers.sh [DIR [training options]]
#   TRAIN, VAL, TEST         packed pairs; without them 2,048 rendered scenes, and 256 with other captions in two renderings
#   BATCHES METHODS TAUS SEEDS   what to train; EPOCHS, RATE (learning rate at batch 128; it goes with the root of the
#                            batch); the options are passed to every run
#
# About a minute of processor time per run; the whole grid has 270. Started again with the same DIR, it keeps finished
# runs and resumes an interrupted one. DIR/batch.cells has a line per run, which `ccstudy batch --cells` draws.
set -eu
dir=${1:-$(mktemp -d)}
shift $(($# > 0))
bin=$(readlink -f "$BIN")
for name in TRAIN VAL TEST; do
    [ -z "${!name:-}" ] || declare "$name=$(readlink -f "${!name}")"
done
[ -n "${TRAIN:-}" ] || make_scenes=$(readlink -f "$TESTBIN/make_scenes")
mkdir -p "$dir"
cd "$dir"
if [ -z "${TRAIN:-}" ] && [ ! -e packed ]; then
    "$make_scenes" train 2048 1 32 train.tar
    "$make_scenes" val 256 2 32 val.tar
    "$make_scenes" val 256 1 32 test.tar
    for set in train val test; do
        "$bin/ccpack" -q --overwrite -o $set $set.tar
    done
    "$bin/ccpack" tokenizer train --vocab-size 200 >/dev/null
    touch packed
fi
train=${TRAIN:-train}
val=${VAL:-val}
test=${TEST:-test}
epochs=${EPOCHS:-8}
touch batch.cells

# recalls RUN DATA: mean R@1, R@5 and R@10 of both directions
recalls() {
    "$bin/ccstream-eval" retrieval -q "$1" --data "$2" --threads 1 --json |
        sed 's/.*"mean_r1":\([0-9.]*\),"mean_r5":\([0-9.]*\),"mean_r10":\([0-9.]*\).*/\1 \2 \3/'
}

# cell METHOD BATCH TAU SEED [training options]
cell() {
    local method=$1 batch=$2 tau=$3 seed=$4
    shift 4
    local rate run=$method-$batch-$tau-$seed loss gamma=0.8
    rate=$(awk -v b="$batch" -v r="${RATE:-0.002}" 'BEGIN { printf "%.6g", r * sqrt(b / 128) }')
    grep -q "^$method $batch $tau $rate [0-9.]* $seed " batch.cells && return
    case $method in
    clip | sogclr) loss="--loss $method" ;;
    sogclr-forgets) loss="--loss sogclr --gamma 1" && gamma=1 ;;
    nuclr-frozen) loss="--loss nuclr-frozen" ;;
    nuclr-fixed) loss="--loss nuclr --zeta-lr 5e-6 --zeta-freeze-epochs 2" ;;
    nuclr-auto) loss="--loss nuclr --zeta-lr auto --zeta-freeze-epochs 2" ;;
    *) echo "$method: not a method" >&2 && exit 64 ;;
    esac
    if [ -e "$run/config.json" ]; then
        "$bin/ccstream-train" -q --resume "$run"
    else
        # shellcheck disable=SC2086 # several words
        "$bin/ccstream-train" -q --data "$train" --out "$run" $loss --seed "$seed" --augment crop --image-tower resnet10t \
            --text-tower tiny --text-pool mean --image-size 24 --dropout 0 --threads 1 --batch-size "$batch" \
            --epochs "$epochs" --lr "$rate" --tau "$tau" "$@"
    fi
    if [ "$method" = clip ]; then gamma=0; fi
    echo "$method $batch $tau $rate $gamma $seed $(recalls "$run" "$val") $(recalls "$run" "$test")" | tee -a batch.cells
    find "$run" -name '*.safetensors' -delete
}

# best METHOD BATCH: the temperature with the highest mean recall on the validation pairs
best() {
    awk -v m="$1" -v b="$2" '$1 == m && $2 == b && $6 == 0 && $7 + $8 + $9 > top { top = $7 + $8 + $9; tau = $3 }
        END { print tau }' batch.cells
}

for batch in ${BATCHES:-8 16 32 64 128}; do
    for method in ${METHODS:-clip sogclr sogclr-forgets nuclr-frozen nuclr-fixed nuclr-auto}; do
        for tau in ${TAUS:-0.03 0.07 0.15 0.3}; do
            cell "$method" "$batch" "$tau" 0 "$@"
        done
        for seed in ${SEEDS:-1 2 3 4 5}; do
            cell "$method" "$batch" "$(best "$method" "$batch")" "$seed" "$@"
        done
    done
done
