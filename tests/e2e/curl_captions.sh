#!/bin/bash
# by hand: --task blocks --block-of captions on real text: the captions of 3,600 photographs of Flickr8k with exactly one of 20 topic
# words, grouped as 'ccstudy blocks --captions' does it: without that word, every fourth photograph's to test. A text tower for every
# block size and seed, then the mean classifier and mu-5 on the captions to test. Equal blocks: 32 a step whatever their size.
#
# usage: BIN=build/release/bin tests/e2e/curl_captions.sh DATA DIR
#   DATA/pairs/*.tar: photographs with five captions each in the .json
#   STEPS=N LR=X BLOCKS=N (of a step) SEEDS="1 2 3" RUNS="blocks:1 pairs:5 ..."  change the runs
# About twenty minutes on one core. Started again with the same DIR, it resumes.
set -eu
data=$(readlink -f "$1")
bin=$(readlink -f "$BIN")
mkdir -p "$2"
cd "$2"
steps=${STEPS:-1000}
if [ ! -e packed ]; then
    rm -rf folders
    python3 - "$data"/pairs/*.tar <<'EOF'
import json, os, re, sys, tarfile
TOPICS = ("water snow grass street beach bike pool soccer football mountain tennis car skateboard baseball basketball horse "
          "frisbee boat slide swing").split()
NAMED = {word: topic for topic in TOPICS for word in (topic, topic + "s")}
rows = {}
for path in sys.argv[1:]:
    with tarfile.open(path) as tar:
        for member in tar:
            stem, extension = member.name.rsplit(".", 1)
            if extension in ("jpg", "json"):
                rows.setdefault((path, stem), {})[extension] = tar.extractfile(member).read()
for i, row in enumerate(rows.values()):
    part = "test" if i % 4 == 3 else "train"
    for k, caption in enumerate(json.loads(row["json"])["captions"]):
        words = [w for w in re.findall("[a-z]+", caption.lower()) if len(w) > 1]
        topics = {NAMED[w] for w in words if w in NAMED}
        if len(topics) == 1:
            name = f"folders/{part}/{topics.pop()}/{i}-{k}"
            os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(name + ".jpg", "wb") as f:
                f.write(row["jpg"])
            with open(name + ".txt", "w") as f:
                f.write(" ".join(w for w in words if w not in NAMED))
EOF
    for part in train test; do
        "$bin/ccpack" -q --overwrite -o $part --from folders --resize short:16 folders/$part
    done
    "$bin/ccpack" tokenizer -q --overwrite train --vocab-size 2000
    rm -r folders
    touch packed
fi
samples=$("$bin/ccdump" info train --json | grep -o '"samples":[0-9]*' | head -n 1 | cut -d: -f2)

run() { # run KIND:SIZE SEED
    local size=${1#*:} name=$1-$2 batch epochs
    batch=$((${BLOCKS:-32} * (size + 1)))
    epochs=$((steps / (samples / batch) + 1))
    [ "${1%:*}" = blocks ] || set -- "$1" "$2" --block-pairs
    if [ -e "$name/config.json" ]; then
        "$bin/ccstream-train" -q --resume "$name" --steps "$steps"
    else
        "$bin/ccstream-train" -q --data train --task blocks --block-of captions --text-tower tiny --text-pool mean --embed-dim 32 \
            --block-size "$size" --block-negatives 4 --batch-size $batch --epochs $epochs --steps "$steps" --lr "${LR:-0.001}" --seed "$2" \
            --threads 1 --loader-threads 1 --out "$name" "${@:3}"
    fi
    for shots in 0 5; do
        [ -e "$name/mean-$shots.json" ] || {
            "$bin/ccstream-eval" mean -q "$name" --train train --data test --layer captions --shots $shots --threads 1 --json >"$name/mean.tmp"
            mv "$name/mean.tmp" "$name/mean-$shots.json"
        }
    done
}

field() { # field FILE NAME
    grep -o "\"$2\":[0-9.]*" "$1" | head -n 1 | cut -d: -f2
}
for seed in ${SEEDS:-1 2 3}; do
    for what in ${RUNS:-blocks:1 blocks:2 blocks:5 blocks:10 pairs:2 pairs:5 pairs:10}; do
        run "$what" "$seed"
        echo "$what seed $seed: AVG-2 $(field "$what-$seed/mean-0.json" avg2), top-1 $(field "$what-$seed/mean-0.json" top1)," \
            "AVG-2 of mu-5 $(field "$what-$seed/mean-5.json" avg2)"
    done
done
