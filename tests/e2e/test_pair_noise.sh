#!/bin/bash
# Training on noisy pairs: a resumed run ends with the same bytes, noise changes what is trained, and a run keeps its rate.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 32 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null

# 8 steps of 8 pairs.
small_model model.json
options="--data data --augment crop --model model.json --tokenizer data/tokenizer.model --batch-size 8 --epochs 2 --lr 0.001 --tau 0.1 --seed 2 --threads 1 --checkpoint-every 4 --keep-checkpoints 2
    --loss rince"

train() { # train NAME OPTION...
    name=$1
    shift
    expect 0 "$BIN/ccstream-train" -q $options "$@" --out "$name"
}
train noisy --pair-noise 0.6
resumes noisy 4
train clean
train zero --pair-noise 0
cmp clean/last zero/last || fail "--pair-noise 0 is not the default"
if cmp -s clean/last noisy/last; then
    fail "noise changes nothing"
fi

expect 64 "$BIN/ccstream-train" -q --resume noisy --pair-noise 0.2
has err.txt '--pair-noise cannot be changed by --resume: earlier steps used other pairs'
expect 64 "$BIN/ccstream-train" -q $options --pair-noise 1.5 --out refused
has err.txt 'pair-noise'
expect 64 "$BIN/ccstream-train" -q $options --task two-views --pair-noise 0.5 --out refused
has err.txt '--pair-noise is for images with captions'
