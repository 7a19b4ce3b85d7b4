#!/bin/bash
# by hand: trains a tower on two views of 1,600 images of CIFAR-10 without labels, then evaluates a linear
# classifier and nearest neighbours with the labels on 400 others, and the same for an untrained tower.
# Fails if a trained tower is not 3 points better than the untrained one in both.
#
# usage: BIN=build/release/bin tests/e2e/two_views.sh DATA [DIR [LOSS...]]
#   DATA/zeroshot/cifar10.tar: class folders with 200 images each
#   EPOCHS=N THREADS=N SEED=N  change the runs
# About eight minutes on one core. Started again with the same DIR, it resumes. The table is also in
# DIR/table.txt.
set -eu
data=$(readlink -f "$1")
dir=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
losses=${*:-simclr sogclr}
bin=$(readlink -f "$BIN")
threads=${THREADS:-0}
mkdir -p "$dir"
cd "$dir"
if [ ! -e packed ]; then
    mkdir -p train-folders test-folders
    tar -xf "$data/zeroshot/cifar10.tar"
    # The last fifth of every class, by name, is held out.
    for class in cifar10/*/; do
        name=$(basename "$class")
        mkdir -p "train-folders/$name" "test-folders/$name"
        count=$(find "$class" -type f | wc -l)
        held=$((count / 5))
        find "$class" -type f | sort | head -n $((count - held)) | xargs mv -t "train-folders/$name"
        find "$class" -type f | xargs mv -t "test-folders/$name"
    done
    "$bin/ccpack" -q --overwrite -o train train-folders
    "$bin/ccpack" -q --overwrite -o test test-folders
    touch packed
fi

# run NAME OPTIONS...: trains once, resumes if it was interrupted, evaluates once.
run() {
    local name=$1
    shift
    if [ -e "$name/config.json" ]; then
        "$bin/ccstream-train" -q --resume "$name"
    else
        "$bin/ccstream-train" -q --data train --task two-views --out "$name" --image-tower resnet10t --image-size 32 \
            --image-norm cifar10 --batch-size 128 --epochs "${EPOCHS:-40}" --lr 0.001 --tau 0.2 \
            --seed "${SEED:-0}" --threads "$threads" "$@"
    fi
    for what in linear knn; do
        [ -e "$name/$what.json" ] || {
            "$bin/ccstream-eval" $what "$name" --train train --data test --threads "$threads" --json -q >"$name/$what.tmp"
            mv "$name/$what.tmp" "$name/$what.json"
        }
    done
}

top1() { # top1 FILE: of the last answer in it
    grep -o '"top1":[0-9.]*' "$1" | tail -n 1 | cut -d : -f 2
}

# Steps of size zero: the untrained tower, except for the running statistics of batch norm.
run untrained --loss simclr --epochs 3 --lr 0 --min-lr 0
linear=$(top1 untrained/linear.json)
knn=$(top1 untrained/knn.json)
{
    echo "| tower | linear probe top-1 | 200-NN top-1 |"
    echo "|---|---|---|"
    echo "| untrained | $linear | $knn |"
} >table.txt
code=0
for loss in $losses; do
    run "$loss" --loss "$loss"
    a=$(top1 "$loss/linear.json")
    b=$(top1 "$loss/knn.json")
    echo "| $loss | $a | $b |" >>table.txt
    awk -v a="$a" -v b="$b" -v c="$linear" -v d="$knn" 'BEGIN { exit !(a >= c + 3 && b >= d + 3) }' || code=1
done
cat table.txt
[ $code -eq 0 ] || echo "trained is not 3 points above untrained"
exit $code
