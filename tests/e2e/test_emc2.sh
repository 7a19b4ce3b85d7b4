#!/bin/bash
# emc2 encodes the samples outside the batch on which chains stand. That runs resume exactly is in test_losses.sh and
# test_simclr.sh, the gradients in unit.
. "$SRC/tests/support/expect.sh"

"$TESTBIN/make_scenes" train 48 3 24 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
pairs="--augment crop --image-tower resnet10t --text-tower tiny --image-size 8 --stem small --max-tokens 12
    --batch 8 --epochs 3 --lr 0.001 --seed 2 --threads 1 --loss emc2"
views="--task simclr --image-tower resnet10t --image-size 8 --stem small --embed-dim 16 --hidden-dim 16
    --batch 7 --epochs 3 --lr 0.001 --seed 2 --threads 1 --loss emc2"

losses() { # losses RUN: before the first chain stands outside the batch, and after
    grep -o '"loss":[^,]*' "$1/metrics.jsonl" | sed -n "$2"
}
for task in pairs views; do
    options=$pairs
    [ $task = pairs ] || options=$views
    # shellcheck disable=SC2086 # options
    for carry in encode skip; do
        expect 0 "$BIN/ccstream-train" -q --data data $options --emc2-carry $carry --out $task-$carry
        grep -Eq 'nan|inf|null' $task-$carry/metrics.jsonl && fail "$task, $carry: metrics are not numbers"
    done
    [ "$(losses $task-encode 10,18p)" != "$(losses $task-skip 10,18p)" ] || fail "$task: --emc2-carry has no effect"
    # Several parts, of which the last is smaller; resumed exactly too.
    # shellcheck disable=SC2086
    expect 0 "$BIN/ccstream-train" -q --data data $options --micro-batch 3 --checkpoint-every 11 --keep 9 --out $task-micro
    resumes $task-micro 11
    rm -r $task-micro $task-skip
done

# Chains stand on some of these samples: those begin anew.
# shellcheck disable=SC2086
expect 0 "$BIN/ccstream-train" -q --data data $pairs --out removed --steps 12
seq 0 15 >ids.txt
expect 0 "$BIN/ccpack" remove data --ids ids.txt
expect 0 "$BIN/ccstream-train" --resume removed
grep -q 'cannot be read any more' err.txt || { cat err.txt; fail "no word about removed samples"; }
"$BIN/ccdump" state removed --json >state.json
has state.json '"image.chain_id"'

# What cannot encode says what to do.
if command -v mpirun >/dev/null && [ -e "$BIN/libccstream_mpi.so" ]; then
    . "$SRC/tests/support/mpirun.sh"
    # shellcheck disable=SC2086
    expect 64 mpirun --oversubscribe --bind-to none -n 2 "$BIN/ccstream-train" -q --data data $pairs --out two
    has err.txt 'several ranks cannot do yet: add --emc2-carry skip'
fi
