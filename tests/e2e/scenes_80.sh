#!/bin/bash
# by hand: 80 % mean R@1 on held-out captions, with nuclr, clip, siglip and sogclr.
#
# usage: BIN=build/release/bin TESTBIN=build/release/tests/bin tests/e2e/scenes_80.sh [DIR [LOSS...]]
# About half an hour on two cores. Started again with the same DIR, it resumes. THREADS=N changes the threads,
# EPOCHS=N the length of the runs.
set -eu
dir=${1:-$(mktemp -d)}
shift $(($# > 0))
losses=${*:-nuclr clip siglip sogclr}
mkdir -p "$dir"
make_scenes=$(readlink -f "$TESTBIN/make_scenes")
bin=$(readlink -f "$BIN")
cd "$dir"
if [ ! -e packed ]; then
    "$make_scenes" train 10240 1 64 train.tar
    "$make_scenes" val 256 1 64 val.tar
    "$bin/ccpack" -q --overwrite -o train train.tar
    "$bin/ccpack" -q --overwrite -o val val.tar
    "$bin/ccpack" tokenizer train --vocab-size 200 >/dev/null
    touch packed
fi

code=0
for loss in $losses; do
    run=run-$loss
    own=
    [ "$loss" = nuclr ] && own="--zeta-freeze-epochs 2"
    if [ -e "$run/config.json" ]; then
        "$bin/ccstream-train" -q --resume "$run"
    else
        "$bin/ccstream-train" -q --data train --val val --out "$run" --augment crop --loss "$loss" \
            --image-tower resnet10t --text-tower tiny --image-size 32 --dropout 0 --threads "${THREADS:-0}" \
            --batch-size 128 --epochs "${EPOCHS:-14}" --lr 0.002 --tau 0.05 --eval-every 2 $own
    fi
    "$bin/ccstream-eval" retrieval -q "$run" --data val --json >"$run/eval.json"
    mean=$(sed -n 's/.*"mean_r1":\([0-9.]*\).*/\1/p' "$run/eval.json")
    echo "$loss: mean R@1 $mean % on 256 held-out captions"
    awk -v mean="$mean" 'BEGIN { exit !(mean >= 80) }' || code=1
done
exit $code
