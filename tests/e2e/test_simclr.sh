#!/bin/bash
# Two views of images: every loss trains on class folders without captions, a run that was cut ends
# in the same bytes, and what it learned is judged. test-timeout: 300
set -eu

fail() {
    echo "$*"
    exit 1
}

number() { # number KEY FILE: the first value of a key
    sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" "$2" | head -n 1
}

# Class folders: the scenes by the pattern of their background.
labelled() { # labelled COUNT SEED NAME
    "$TESTBIN/make_scenes" train "$1" "$2" 24 "$3.tar"
    mkdir all
    tar -xf "$3.tar" -C all
    for text in all/*.txt; do
        class=$(grep -oE 'plain|striped|dotted' "$text" | head -n 1)
        mkdir -p "$3-folders/$class"
        mv "${text%.txt}".[jp]*g "$3-folders/$class/"
    done
    rm -r all
    "$BIN/ccpack" -q -o "$3" "$3-folders"
}
labelled 256 3 train
labelled 128 5 test

options="--data train --task simclr --image-tower resnet10t --image-size 12 --stem small --embed-dim 32 --hidden-dim 64
    --batch 64 --threads 1"

for loss in simclr dcl hcl rince sogclr isogclr emc2; do
    "$BIN/ccstream-train" -q $options --epochs 1 --lr 0.001 --loss $loss --out $loss-whole
    "$BIN/ccstream-train" -q $options --epochs 1 --lr 0.001 --loss $loss --out $loss-parts --steps 2
    "$BIN/ccstream-train" -q --resume $loss-parts
    cmp $loss-whole/last $loss-parts/last || fail "$loss: a resumed run is not the uninterrupted one"
    if grep -Eq 'nan|inf|null' $loss-whole/metrics.jsonl; then
        fail "$loss: metrics are not numbers"
    fi
    "$BIN/ccdump" state $loss-whole --json >state.json
    grep -q '"visits":{"ids":256,"visited":256,"min":1,' state.json || fail "$loss: $(cat state.json)"
    rm -r $loss-parts
done
"$BIN/ccdump" state emc2-whole --json | grep -q '"image.chain_id":{"ids":256,"visited":256,' || fail "no chains of emc2"

# The two views of a picture come closer together than those of others, and the tower's neighbours are
# of the same class more often than by chance (33 %). Under sanitizers there is time for one epoch.
epochs=12
[ -z "${CCS_SANITIZE:-}" ] || epochs=1
"$BIN/ccstream-train" -q $options --epochs $epochs --lr 0.002 --tau 0.2 --loss simclr --out trained
"$BIN/ccstream-eval" knn trained --train train --data test --neighbours 20 --json -q --threads 1 >knn.json
"$BIN/ccstream-eval" linear trained --train train --data test --json -q --threads 1 >linear.json
if [ $epochs -gt 1 ]; then
    grep '"loss"' trained/metrics.jsonl | sed 's/.*"loss":\([^,]*\),.*/\1/' |
        awk '{ v[NR] = $1 } END { n = NR; a = v[1] + v[2] + v[3] + v[4]; b = v[n - 3] + v[n - 2] + v[n - 1] + v[n]
            print "loss of the first and of the last epoch:", a / 4, b / 4
            exit !(b / 4 < a / 4 - 0.1) }' || fail "the loss does not fall"
    for what in knn linear; do
        awk -v a="$(number top1 $what.json)" 'BEGIN { exit !(a > 42) }' || fail "$what: $(cat $what.json)"
    done
fi

"$BIN/ccstream-eval" mean trained --train train --data test --json -q >mean.json
"$BIN/ccstream-eval" embed trained --data test -q -o embedded
[ -s embedded.images.npy ] || fail "no embeddings"

# What does not fit together.
refused() { # refused WORDS COMMAND...
    local words=$1 code=0
    shift
    "$@" >out.txt 2>err.txt || code=$?
    [ $code -eq 64 ] || fail "$*: exit code $code: $(cat err.txt)"
    grep -q -- "$words" err.txt || fail "$*: $(cat err.txt)"
    [ ! -e refused ] || fail "$*: left a directory"
}
train="$BIN/ccstream-train -q"
refused 'of images with texts' $train $options --loss nuclr --out refused
refused 'has no tokenizer' $train --data train --loss simclr --out refused --image-tower resnet10t --text-tower tiny --batch 32
refused 'no reference code' $train $options --loss sogclr --parity reference --out refused
refused 'no captions to validate' $train $options --loss simclr --val test --out refused
refused 'no tower for captions' "$BIN/ccstream-eval" retrieval trained --data test
refused 'need a tokenizer' "$BIN/ccstream-eval" embed trained --data test --texts -o x
"$BIN/ccstream-train" $options --loss simclr --dry-run --out planned | grep -q '^total ' || fail "no memory plan"
