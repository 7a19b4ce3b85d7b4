#!/bin/bash
# --norm-layer group and none: runs resume to the same bytes, for pairs and two views; without statistics of a batch the
# size of a micro-batch has no effect; evaluation, export, --init and --init-image know the norm.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 16 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
"$BIN/ccpack" tokenizer -q data --tokenizer words.txt
options="--data data --augment crop --loss clip --tau 0.1 --image-tower tiny --text-tower tiny --image-size 8 --stem small
    --max-tokens 8 --batch-size 8 --epochs 1 --lr 0.001 --threads 1 --loader-threads 1"
train() { # train NAME OPTION...
    name=$1
    shift
    expect 0 $last "$BIN/ccstream-train" -q $options "$@" --out "$name"
}
losses() {
    grep '"loss":' "$1/metrics.jsonl" | sed 's/.*"loss":\([^,]*\),.*/\1/'
}

train batch
train group --norm-layer group --checkpoint-every 1
train none --norm-layer none --task two-views --loss simclr --checkpoint-every 1
resumes group 1
resumes none 1
train none-pairs --norm-layer none
if cmp -s batch/last group/last || cmp -s batch/last none-pairs/last; then fail "--norm-layer has no effect"; fi

train group-micro --norm-layer group --micro-batch 2
paste <(losses group) <(losses group-micro) |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) exit 1; n++ } END { exit n != 2 }' ||
    fail "micro-batches change losses: $(paste <(losses group) <(losses group-micro))"

expect 0 "$BIN/ccstream-eval" retrieval group --data data
expect 0 "$BIN/ccstream-export" group --format safetensors -o export
has export/config.json '"norm":"group"'
train resnet --image-tower resnet10t --norm-layer none --steps 1
expect 69 "$BIN/ccstream-export" resnet --format timm -o timm
has err.txt "trained with --norm-layer none"
train again --init group --steps 1
has again/config.json '"norm-layer":"group"'

# Other norms are other models.
expect 65 $last "$BIN/ccstream-train" $options --norm-layer none --init group --out other
has err.txt "has a different model (--norm-layer)"
expect 65 $last "$BIN/ccstream-train" $options --norm-layer none --init-image batch --out other
has err.txt "the tower has other norms"
expect 64 $last "$BIN/ccstream-train" $options --norm-layer group --sync-bn --out other
has err.txt "--sync-bn is for --norm-layer batch"
[ ! -e other/last ] || fail "a refused run saved a checkpoint"
