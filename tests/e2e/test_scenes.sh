#!/bin/bash
# From rendered scenes to recall: packs 2,560 renders, trains for two epochs, and requires 10 % mean R@1 among
# 256 held-out captions. Chance is 0.4 %; scenes_80.sh trains for longer.
set -eu

"$TESTBIN/make_scenes" train 2560 1 64 train.tar
"$TESTBIN/make_scenes" val 256 1 64 val.tar
"$BIN/ccpack" -q -o train train.tar
"$BIN/ccpack" -q -o val val.tar
"$BIN/ccpack" tokenizer train --vocab-size 200 >/dev/null

"$BIN/ccstream-train" -q --json --data train --val val --out run --augment crop --loss nuclr \
    --image-tower resnet10t --text-tower tiny --image-size 24 --dropout 0 \
    --batch-size 64 --epochs 2 --lr 0.002 --tau 0.05 --zeta-freeze-epochs 1 --eval-every 0 \
    --threads 1 >summary.json
cat summary.json
"$BIN/ccstream-eval" retrieval -q run --data val --json | tee eval.json

mean=$(sed -n 's/.*"mean_r1":\([0-9.]*\).*/\1/p' eval.json)
awk -v mean="$mean" 'BEGIN { exit !(mean >= 10) }' || {
    echo "mean R@1 is $mean %, expected at least 10"
    exit 1
}
