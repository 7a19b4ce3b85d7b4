#!/bin/bash
# negcache draws negatives from cached features of all samples: on pairs and on two views, resumed, without samples that
# were removed, and where it cannot.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 40 3 24 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
small_model model.json
common="--lr 0.001 --seed 2 --threads 1 --loss negcache"
pairs="$common --augment crop --model model.json --tokenizer words.txt --batch-size 8"
views="$common --task two-views --image-tower tiny --image-size 8 --stem small --embed-dim 16 --hidden-dim 16 --batch-size 7"

for task in pairs views; do # 7 of 40 samples in every step, in parts of which the last is smaller
    options=$pairs
    [ $task = pairs ] || options=$views
    # shellcheck disable=SC2086 # options
    expect 0 "$BIN/ccstream-train" -q --data data $options --epochs 2 --cache-refresh 0.16 --micro-batch 3 \
        --checkpoint-every 3 --keep-checkpoints 9 --out $task
    grep -Eq 'nan|inf|null' $task/metrics.jsonl && fail "$task: metrics are not numbers"
    resumes $task 6
done
grep -aq '"cache.text"' views/last && fail "two views keep features of texts"

# Other data than those of the checkpoint: all features are made anew, of the samples that are left.
seq 0 15 >ids.txt
interrupted pairs 3 removed
expect 0 "$BIN/ccpack" remove data --ids ids.txt
expect 0 "$BIN/ccstream-train" -q --resume removed
grep -Eq 'nan|inf|null' removed/metrics.jsonl && fail "removed samples: metrics are not numbers"

# Two ranks resume to the bytes of one: features, draws and the samples that were drawn.
if command -v mpirun >/dev/null && [ -e "$BIN/libccstream_mpi.so" ]; then
    . "$SRC/tests/support/mpirun.sh"
    # shellcheck disable=SC2086
    expect 0 "$BIN/ccstream-train" -q --data data $pairs --micro-batch 2 --epochs 2 --cache-refresh 0.16 --steps 3 --out one
    cp -r one two
    expect 0 "$BIN/ccstream-train" -q --resume one
    expect 0 mpirun --oversubscribe --bind-to none -n 2 "$BIN/ccstream-train" -q --resume two
    cmp one/last two/last || fail "two ranks end in other bytes than one"
fi
