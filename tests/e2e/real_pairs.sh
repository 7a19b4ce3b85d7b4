#!/bin/bash
# by hand: real photographs: packs the WebDataset tars of a folder, trains a small model, and asks for
# retrieval above chance on a COCO-form validation set.
#
# usage: BIN=build/release/bin tests/e2e/real_pairs.sh DATA [DIR] [training options]
#   DATA/pairs/*.tar, DATA/retrieval/images.tar and DATA/retrieval/captions.json
set -eu
data=$(readlink -f "$1")
dir=${2:-$(mktemp -d)}
shift 2 2>/dev/null || shift
bin=$(readlink -f "$BIN")
mkdir -p "$dir/images"
cd "$dir"
tar -xf "$data/retrieval/images.tar" -C images
"$bin/ccpack" -q --overwrite -o pairs "$data"/pairs/*.tar
"$bin/ccpack" -q --overwrite -o retrieval --images images/images "$data/retrieval/captions.json"
"$bin/ccpack" tokenizer pairs --vocab-size 4000
"$bin/ccdump" info pairs --json
"$bin/ccdump" info retrieval --json
rm -rf run
"$bin/ccstream-train" --data pairs --val retrieval --out run --augment crop --loss nuclr --image-tower resnet10t --text-tower tiny \
    --image-size 96 --batch 128 --epochs 6 --lr 0.0007 --tau 0.05 --zeta-freeze-epochs 2 --eval-epochs 2 "$@"
"$bin/ccstream-eval" retrieval -q run --data retrieval --json | tee eval.json
# Chance is 0.2 % both ways: 1 of 500 images, 5 of 2,500 captions.
mean=$(sed -n 's/.*"mean_r1":\([0-9.]*\).*/\1/p' eval.json)
awk -v mean="$mean" 'BEGIN { exit !(mean > 0.4) }' || {
    echo "mean R@1 is $mean %, no better than chance"
    exit 1
}
