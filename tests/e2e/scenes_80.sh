#!/bin/bash
# by hand: 80 % mean R@1 on held-out captions, with nuclr and with clip.
#
# usage: BIN=build/release/bin TESTBIN=build/release/tests/bin tests/e2e/scenes_80.sh [DIR]
# About a quarter of an hour on two cores.
set -eu
dir=${1:-$(mktemp -d)}
mkdir -p "$dir"
make_scenes=$(readlink -f "$TESTBIN/make_scenes")
bin=$(readlink -f "$BIN")
cd "$dir"
[ -e train.tar ] || "$make_scenes" train 10240 1 64 train.tar
[ -e val.tar ] || "$make_scenes" val 256 1 64 val.tar
"$bin/ccpack" -q --overwrite -o train train.tar
"$bin/ccpack" -q --overwrite -o val val.tar
"$bin/ccpack" tokenizer train --vocab-size 200 >/dev/null
code=0
for loss in nuclr clip; do
    rm -rf "run-$loss"
    "$bin/ccstream-train" --data train --val val --out "run-$loss" --augment crop --loss "$loss" \
        --image-tower resnet10t --text-tower tiny --image-size 32 --dropout 0 \
        --batch 128 --epochs 14 --lr 0.002 --tau 0.05 --zeta-freeze-epochs 2 --eval-epochs 2
    mean=$("$bin/ccstream-eval" retrieval -q "run-$loss" --data val --json | sed -n 's/.*"mean_r1":\([0-9.]*\).*/\1/p')
    echo "$loss: mean R@1 $mean % on 256 held-out captions"
    awk -v mean="$mean" 'BEGIN { exit !(mean >= 80) }' || code=1
done
exit $code
