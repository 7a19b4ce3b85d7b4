#!/bin/bash
# Towers that start from the weights of a file.
set -eu

fail() {
    echo "$*"
    exit 1
}

"$TESTBIN/make_scenes" train 32 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null

options="--data data --image-tower resnet10t --text-tower tiny --image-size 16 --max-tokens 12
    --batch 16 --epochs 1 --threads 1"

train() { # train OUT OPTIONS...
    local out=$1
    shift
    "$BIN/ccstream-train" $options --out "$out" "$@" 2>"$out.log"
}

train first --seed 1
train plain --seed 2 --steps 1
train both --seed 2 --steps 1 --init-image first/last --init-text first/last
grep -q "is not used" both.log || fail "unused tensors are not named: $(cat both.log)"
if cmp -s plain/last both/last; then
    fail "--init-image and --init-text have no effect"
fi

# The run resumes from its own checkpoint, even if the files are gone.
train whole --seed 2 --init-image first/last --init-text first/last
cp first/last copy.safetensors
rm -r first
"$BIN/ccstream-train" -q --resume both
cmp whole/last both/last || fail "a resumed run is not the uninterrupted one"

# Weights that do not fit are named, and no files are left.
refused() { # refused CODE PATTERN OPTIONS...
    local wanted=$1 pattern=$2 code=0
    shift 2
    "$BIN/ccstream-train" -q $options --out x "$@" 2>err.txt || code=$?
    [ "$code" -eq "$wanted" ] || fail "$*: exit code $code, not $wanted: $(cat err.txt)"
    grep -q -- "$pattern" err.txt || fail "$*: no '$pattern': $(cat err.txt)"
    [ ! -e x ] || fail "$*: left a directory"
}
refused 65 "conv1.weight is missing" --image-tower resnet18 --init-image copy.safetensors
refused 65 "the model has (44, 384)" --text-tower small --init-text copy.safetensors
refused 66 "none" --init-text none
head -c 5000 copy.safetensors >cut.safetensors
refused 65 "cut.safetensors" --init-image cut.safetensors
