#!/bin/bash
# --task blocks: blocks of similar images train, an interrupted run ends with the same bytes, the mean
# classifier reads the embeddings, and what cannot work is refused.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 256 3 24 train.tar
scene_folders train.tar folders '$7'
"$BIN/ccpack" -q -o train folders
"$BIN/ccpack" -q -o pairs train.tar

options="--task blocks --image-tower tiny --image-size 16 --embed-dim 32 --hidden-dim 64 --threads 1 --loader-threads 1 --lr 0.02
    --block-size 3 --block-negatives 5"
train() { # train NAME OPTION...
    name=$1
    shift
    expect 0 $last "$BIN/ccstream-train" -q --data train $options --batch-size 32 --epochs 4 --checkpoint-every 9 --keep-checkpoints 9 "$@" --out "$name"
}
train whole --augment none
resumes whole 9
if grep -Eq 'nan|inf|null' <(grep -o '"loss":[^,]*' whole/metrics.jsonl); then
    fail "metrics are not numbers"
fi
# Killed at some moment after its first checkpoint, and resumed.
$last "$BIN/ccstream-train" -q --data train $options --batch-size 32 --epochs 4 --augment none --checkpoint-every 1 --out killed 2>err.txt &
pid=$!
until [ -e killed/last ]; do
    kill -0 $pid 2>/dev/null || fail "the run ends without a checkpoint: $(cat err.txt)"
    sleep 0.01
done
kill -KILL $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
expect 0 $last "$BIN/ccstream-train" -q --resume killed
cmp whole/last killed/last || fail "a run that was killed and resumed ends in other bytes"
steps_of() { grep '"loss":' "$1/metrics.jsonl" | sed 's/,"pairs_per_s":.*//'; }
cmp <(steps_of whole) <(steps_of killed) || fail "a run that was killed has other metrics"

# The classes have multiples of 4 samples: every sample takes part in each epoch once.
"$BIN/ccdump" state whole --json >state.json
has state.json '"visits":{"ids":256,"visited":256,"min":4,"mean":4,"max":4,'

# The loss falls, and differs by kind, size and pairs.
first() { grep -m 1 -o '"loss":[^,]*' "$1/metrics.jsonl"; }
train hinge --block-loss hinge --steps 1
train paired --block-pairs --steps 1
train single --block-size 1 --steps 1
[ "$(for run in whole hinge paired single; do first $run; done | sort -u | wc -l)" -eq 4 ] || fail "losses are the same"
train micro --micro-batch 8 --steps 2
train one --micro-batch 32 --augment none --steps 9
cmp one/last whole-parts/checkpoints/step-9.safetensors || fail "one micro-batch is not the batch"
[ "$(grep -o '"loss":[^,]*' micro/metrics.jsonl | head -n 2)" != "$(grep -o '"loss":[^,]*' one/metrics.jsonl | head -n 2)" ] ||
    fail "batch norm does not go by micro-batches"
expect 0 $last "$BIN/ccstream-train" --data train $options --batch-size 32 --dry-run --out none
losses() { grep -o '"loss":[^,]*' whole/metrics.jsonl | cut -d: -f2; }
losses | awk '{ l[NR] = $1 } END { for (i = 1; i <= 8; i++) { first += l[i]; last += l[NR - i + 1] } exit !(last < 0.9 * first) }' ||
    fail "the loss does not fall: $(losses)"

# Embeddings are inner products: without a norm. The mean classifier uses them.
"$BIN/ccstream-eval" mean whole --train train --data train --layer projection --json >mean.json
grep -q '"top1":' mean.json || fail "mean: $(cat mean.json)"
expect 0 $last "$BIN/ccstream-train" -q --data train --init whole --block-size 3 --batch-size 32 --threads 1 --epochs 1 --steps 1 --out from-init
grep -q '"task":"blocks"' from-init/config.json || fail "--init does not know the task"

# Exported, they are named as what they are.
expect 0 "$BIN/ccstream-export" -q whole --format safetensors -o exported
has exported/config.json '"raw_embeddings":true'
expect 69 "$BIN/ccstream-export" -q whole --format open_clip -o exported
has err.txt 'trained on images alone'

# What cannot work.
refused() { # refused WORDS OPTION...
    words=$1
    shift
    expect 64 $last "$BIN/ccstream-train" -q $options --batch-size 32 "$@" --out refused
    grep -q -- "$words" err.txt || fail "not '$words': $(cat err.txt)"
}
refused 'has no label' --data pairs
mkdir -p few/one few/two
cp $(ls folders/plain/* | head -n 2) few/one/
cp $(ls folders/striped/* | head -n 9) few/two/
"$BIN/ccpack" -q -o few-packed few
refused 'class 0 has 2 samples, fewer than a block of 4' --data few-packed --batch-size 8 --block-negatives 1
refused 'not an even number of images in blocks of 4' --data train --batch-size 30
refused 'too few for --block-negatives 8' --data train --block-negatives 8
refused 'does not work with --precision bf16' --data train --precision bf16
refused 'does not work with several datasets' --data train --data pairs
refused 'not for --task blocks' --data train --val pairs
refused 'does not work with --variant code' --data train --variant code
refused '--loss clip: --task blocks trains with the block loss' --data train --loss clip
expect 64 $last "$BIN/ccstream-train" -q --resume whole --data few-packed --remap-state train
has err.txt 'does not work with --remap-state'
if command -v mpirun >/dev/null && [ -e "$BIN/libccstream_mpi.so" ]; then
    . "$SRC/tests/support/mpirun.sh"
    expect 64 mpirun --oversubscribe --bind-to none -n 2 $last "$BIN/ccstream-train" -q $options --batch-size 32 --data train --out refused
    has err.txt 'does not work with several ranks'
fi
refused 'does not work with --init-state' --data train --init whole --init-state
