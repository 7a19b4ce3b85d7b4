#!/bin/bash
# by hand: what the step size of zeta does to recall and to popularities: trains nuclr with --zeta-lr auto, with the 5e-6
# of CC3M, and with zeta frozen, on the pairs that tools/quickstart has packed.
#
# usage: BIN=build/release/bin tests/e2e/zeta_rates.sh build/quickstart [DIR [training options]]
#   SEEDS="0 1 2"  the options are passed to every run
#
# About six minutes of processor time. Started again with the same DIR, it resumes. The table is also in DIR/table.txt.
set -eu
data=$(readlink -f "$1")
dir=${2:-$(mktemp -d)}
shift $(($# < 2 ? $# : 2))
bin=$(readlink -f "$BIN")
mkdir -p "$dir"
cd "$dir"
for seed in ${SEEDS:-0 1 2}; do
    for arm in auto fixed frozen; do
        run=$arm-$seed
        rate="--loss nuclr --zeta-lr auto"
        [ $arm = fixed ] && rate="--loss nuclr --zeta-lr 5e-6"
        [ $arm = frozen ] && rate="--loss nuclr-frozen"
        if [ -e "$run/config.json" ]; then
            "$bin/ccstream-train" -q --resume "$run"
        else
            # shellcheck disable=SC2086 # several words
            "$bin/ccstream-train" -q --data "$data/train" --out "$run" $rate --seed "$seed" --augment crop --image-tower \
                resnet10t --text-tower tiny --image-size 32 --batch-size 64 --epochs 20 --lr 0.001 --tau 0.05 \
                --zeta-freeze-epochs 5 --threads 1 "$@"
        fi
        for set in train val; do
            "$bin/ccstream-eval" retrieval -q "$run" --data "$data/$set" --json >"$run/$set.json"
        done
        : >"$run/popularity.jsonl"
        [ $arm = frozen ] || "$bin/ccdump" popularity "$run" "$data/train" --top 1000 --json >"$run/popularity.jsonl"
    done
done

python3 - <<'PY' | tee table.txt
import glob, json, statistics

print("| zeta | val R@1 | val R@10 | train R@1 | train R@10 | popularity, smallest, median, largest |\n" + "|---" * 6 + "|")
for arm in ("auto", "fixed", "frozen"):
    runs = sorted(glob.glob(arm + "-[0-9]*"))
    cells = []
    for name, key in (("val", "mean_r1"), ("val", "mean_r10"), ("train", "mean_r1"), ("train", "mean_r10")):
        values = [json.load(open(f"{run}/{name}.json"))[key] for run in runs]
        spread = statistics.stdev(values) if len(values) > 1 else 0
        cells.append(f"{statistics.mean(values):.1f} ± {spread:.1f}")
    ends = []
    for run in runs:
        values = sorted({row["id"]: row["popularity"] for row in map(json.loads, open(run + "/popularity.jsonl"))}.values())
        if values:
            ends.append((values[0], statistics.median(values), values[-1]))
    cells.append(", ".join(f"{statistics.mean(column):.4f}" for column in zip(*ends)) or "all equal")
    print(f"| {arm} | " + " | ".join(cells) + " |")
PY
