#!/bin/bash
# by hand: curation by what a run has learned. A fifth of the captions of real photographs are exchanged among
# themselves; a model is trained on all; then the samples with the lowest scores and the largest estimators are
# chosen, and those counted whose captions are wrong. A random choice has 20 % of them.
#
# usage: BIN=build/release/bin tests/e2e/curation.sh DATA [DIR]
#   DATA/pairs/*.tar
#
# About two minutes on two cores. Started again with the same DIR, it resumes.
set -eu
data=$(readlink -f "$1")
dir=${2:-$(mktemp -d)}
bin=$(readlink -f "$BIN")
mkdir -p "$dir"
cd "$dir"
if [ ! -e packed ]; then
    python3 - "$data"/pairs/*.tar <<'PY'
import os, random, sys, tarfile

os.makedirs("images", exist_ok=True)
rows = []
for path in sorted(sys.argv[1:]):
    with tarfile.open(path) as tar:
        for member in tar:
            stem, kind = os.path.splitext(member.name)
            if kind == ".jpg":
                with open(f"images/{stem}.jpg", "wb") as f:
                    f.write(tar.extractfile(member).read())
            elif kind == ".txt":
                rows.append([stem, tar.extractfile(member).read().decode().strip()])
rows.sort()
wrong = sorted(random.Random(0).sample(range(len(rows)), len(rows) // 5))
captions = [rows[i][1] for i in wrong]
half = len(captions) // 2
for i, caption in zip(wrong, captions[half:] + captions[:half]):
    rows[i][1] = caption
with open("pairs.tsv", "w") as f:
    f.writelines(f"{caption}\t{stem}.jpg\n" for stem, caption in rows)
with open("wrong.txt", "w") as f:
    f.writelines(f"{i}\n" for i in wrong)
PY
    "$bin/ccpack" -q --overwrite --images images -o pairs pairs.tsv
    "$bin/ccpack" tokenizer pairs --vocab-size 4000
    touch packed
fi

if [ -e run/config.json ]; then
    "$bin/ccstream-train" -q --resume run
else
    "$bin/ccstream-train" -q --data pairs --out run --augment crop --loss nuclr --image-tower resnet10t --text-tower tiny \
        --image-size 48 --batch-size 128 --epochs 12 --lr 0.0007 --tau 0.05 --zeta-freeze-epochs 3
fi
"$bin/ccstream-eval" score run -q --data pairs --attach score --force >/dev/null

sort wrong.txt >wrong-sorted.txt
for where in 'col.score < 5%' 'col.score < 20%' 'image.log_u > 95%' 'text.log_u > 95%' 'text.log_u > 80%' 'text.zeta < 20%'; do
    rm -rf chosen
    "$bin/ccpack" subset pairs -q --where "$where" --state run -o chosen
    "$bin/ccdump" ls chosen | awk '$1 ~ /^[0-9]+$/ { print $1 }' | sort >ids.txt
    comm -12 ids.txt wrong-sorted.txt | awk -v where="$where" -v chosen="$(wc -l <ids.txt)" '
        END { printf "%-20s %4d chosen, %5.1f %% with a wrong caption\n", where, chosen, 100 * NR / chosen }'
done
