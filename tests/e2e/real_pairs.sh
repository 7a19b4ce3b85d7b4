#!/bin/bash
# by hand: real photographs: packs the WebDataset tars of a folder, trains a small model with every
# loss and seed, evaluates on a validation set in COCO form, and requires a mean R@10 of three times chance.
#
# usage: BIN=build/release/bin tests/e2e/real_pairs.sh DATA [DIR [training options]]
#   DATA/pairs/*.tar, DATA/retrieval/images.tar and DATA/retrieval/captions.json
#   LOSSES="clip sogclr nuclr" SEEDS="0 1 2"  what to train; the options are passed to every run
#   TOWERS="--model ViT-S-16 --image-size 64"  other towers than resnet10t and tiny at 96 px
#   EPOCHS RATE  [20, 0.0007]
#   PACK="--resize short:128 --quality 85"  options of ccpack for the training images
#
# About an hour and a half on two cores. Started again with the same DIR, it keeps finished runs and resumes
# an interrupted one. The table is also in DIR/table.txt.
set -eu
data=$(readlink -f "$1")
dir=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
bin=$(readlink -f "$BIN")
mkdir -p "$dir/images"
cd "$dir"
if [ ! -e packed ]; then
    tar -xf "$data/retrieval/images.tar" -C images
    "$bin/ccpack" -q --overwrite -o pairs ${PACK:-} "$data"/pairs/*.tar
    "$bin/ccpack" -q --overwrite -o retrieval --images images/images "$data/retrieval/captions.json"
    "$bin/ccpack" tokenizer pairs --vocab-size 4000
    touch packed
fi

for seed in ${SEEDS:-0 1 2}; do
    for loss in ${LOSSES:-clip sogclr nuclr}; do
        run=$loss-$seed
        zeta=""
        [ "$loss" != nuclr ] || zeta="--zeta-freeze-epochs 5"
        [ -e "$run/eval.json" ] && continue
        if [ -e "$run/config.json" ]; then
            "$bin/ccstream-train" -q --resume "$run"
        else
            "$bin/ccstream-train" -q --data pairs --out "$run" --augment crop --loss "$loss" --seed "$seed" \
                ${TOWERS:---image-tower resnet10t --text-tower tiny --image-size 96} --batch-size 128 \
                --epochs "${EPOCHS:-20}" --lr "${RATE:-0.0007}" \
                --tau 0.05 $zeta "$@"
        fi
        "$bin/ccstream-eval" retrieval -q "$run" --data retrieval --json >"$run/eval.tmp"
        mv "$run/eval.tmp" "$run/eval.json"
        echo "$run: $(cat "$run/eval.json")"
    done
done

# Chance of R@10 is 2 % from text to image (10 of 500 images) and about the same from image to text
# (10 of 2,500 captions, five of them right).
python3 - *-[0-9]*/eval.json <<'PY' | tee table.txt
import json, statistics, sys

runs = {}
for path in sys.argv[1:]:
    runs.setdefault(path.split("/")[0].rsplit("-", 1)[0], []).append(json.load(open(path)))
keys = ["i2t_r1", "i2t_r10", "t2i_r1", "t2i_r10", "mean_r1", "mean_r5", "mean_r10"]
print("| loss | seeds | " + " | ".join(keys) + " |\n" + "|---" * (len(keys) + 2) + "|")
below = []
for loss, rows in sorted(runs.items()):
    cells = []
    for key in keys:
        values = [row[key] for row in rows]
        spread = statistics.stdev(values) if len(values) > 1 else 0
        cells.append(f"{statistics.mean(values):.2f} ± {spread:.2f}")
    print(f"| {loss} | {len(rows)} | " + " | ".join(cells) + " |")
    if statistics.mean(row["mean_r10"] for row in rows) < 6:
        below.append(loss)
if below:
    print("mean R@10 below three times chance (6 %):", *below)
PY
! grep -q below table.txt
