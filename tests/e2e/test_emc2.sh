#!/bin/bash
# emc2 encodes the samples outside the batch on which chains stand, also in micro-batches; what happens to those that
# were removed, and where it cannot.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 48 3 24 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
small_model model.json
pairs="--augment crop --model model.json --tokenizer words.txt --batch-size 8 --epochs 2 --lr 0.001 --seed 2 --threads 1 --loss emc2"
views="--task two-views --image-tower tiny --image-size 8 --stem small --embed-dim 16 --hidden-dim 16
    --batch-size 7 --epochs 2 --lr 0.001 --seed 2 --threads 1 --loss emc2"

losses() { # losses RUN: of the last steps, when chains stand outside the batch
    grep -o '"loss":[^,]*' "$1/metrics.jsonl" | tail -n 4
}
for task in pairs views; do # in several parts, of which the last is smaller
    options=$pairs
    [ $task = pairs ] || options=$views
    for carry in view encode skip; do
        # shellcheck disable=SC2086 # options
        expect 0 "$BIN/ccstream-train" -q --data data $options --micro-batch 3 --checkpoint-every 7 --keep-checkpoints 9 \
            --emc2-off-batch $carry --out $task-$carry
        grep -Eq 'nan|inf|null' $task-$carry/metrics.jsonl && fail "$task, $carry: metrics are not numbers"
    done
    resumes $task-view 7
    if [ $task = pairs ]; then # a run of a build that had no such option
        interrupted pairs-skip 7 pairs-old
        sed -i 's/,"emc2-carry":"skip"//' pairs-old/config.json
        grep -q emc2-carry pairs-old/config.json && fail "the option is still recorded"
        expect 0 "$BIN/ccstream-train" -q --resume pairs-old
        cmp pairs-skip/last pairs-old/last || fail "a run of an earlier build does not keep skipping"
    fi
    [ "$(for carry in view encode skip; do losses $task-$carry | tail -n 1; done | sort -u | wc -l)" = 3 ] ||
        fail "$task: --emc2-off-batch has no effect"
    rm -r $task-*
done

# Chains stand on some of these samples: those begin anew. Two ranks resume to the bytes of one.
# shellcheck disable=SC2086
expect 0 "$BIN/ccstream-train" -q --data data $pairs --micro-batch 4 --out removed --steps 8
cp -r removed two
seq 0 15 >ids.txt
expect 0 "$BIN/ccpack" remove data --ids ids.txt
expect 0 "$BIN/ccstream-train" --resume removed
grep -q 'cannot be read any more' err.txt || { cat err.txt; fail "no word about removed samples"; }
"$BIN/ccdump" state removed --json >state.json
has state.json '"image.chain_id"'
if command -v mpirun >/dev/null && [ -e "$BIN/libccstream_mpi.so" ]; then
    . "$SRC/tests/support/mpirun.sh"
    mv err.txt one.txt
    expect 0 mpirun --oversubscribe --bind-to none -n 2 "$BIN/ccstream-train" --resume two
    cmp removed/last two/last || fail "two ranks end in other bytes than one"
    [ "$(grep -c 'cannot be read any more' err.txt)" = "$(grep -c 'cannot be read any more' one.txt)" ] ||
        fail "removed samples are not reported once: $(cat err.txt)"
fi
