#!/bin/bash
# bf16, SGD, LARS, Adam, mean pooling, padded captions: runs resume to the same bytes, and each option has its
# effect.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 24 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null

options="--data data --augment crop --loss clip --tau 0.1 --batch-size 8 --epochs 1 --lr 0.001 --threads 1"
tiny="--image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12"
small_model model.json
small="--model model.json --tokenizer data/tokenizer.model"

run() { # run NAME OPTIONS...
    local name=$1
    shift
    $last "$BIN/ccstream-train" -q $options "$@" --checkpoint-every 1 --keep-checkpoints 3 --out "$name"
    resumes "$name" 1
}
losses() {
    grep '"loss":' "$1/metrics.jsonl" | sed 's/.*"loss":\([^,]*\),.*/\1/'
}
near() { # near A B TOLERANCE: the losses of two runs
    paste <(losses "$1") <(losses "$2") |
        awk -v t="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (d > t) exit 1; n++ } END { if (n == 0) exit 1 }' ||
        fail "losses of $1 and $2: $(paste <(losses "$1") <(losses "$2"))"
}
other() {
    if cmp -s "$1/last" "$2/last"; then
        fail "$1 and $2 end in the same bytes"
    fi
}

run f32 $tiny
run sgdm $small --optimizer sgdm --momentum 0.8 --lr 0.01
run lars $small --optimizer lars --lr 1.2 --weight-decay 0.000001 --trust-coeff 0.01
$last "$BIN/ccstream-train" -q $options $small --optimizer lars --lr 1.2 --weight-decay 0.000001 --out lars-trust
other lars lars-trust
run adam $small --optimizer adam --lr 0.001 --weight-decay 0.1
$last "$BIN/ccstream-train" -q $options $small --weight-decay 0.1 --out adamw
other adam adamw
run mean $tiny --text-pool mean
other f32 mean

$last "$BIN/ccstream-train" -q $options $tiny --padding longest --out padded
near f32 padded 0.0001

# The device computes in bf16, or reports before any work that it cannot.
code=0
$last "$BIN/ccstream-train" -q $options $tiny --precision bf16 --out fast 2>err.txt || code=$?
if [ "$code" -eq 0 ]; then
    near fast f32 0.1
    other fast f32
    run bf16 $tiny --precision bf16 --micro-batch 5
    $last "$BIN/ccstream-train" -q $options $tiny --precision bf16 --val data --out evaluated
    grep -q '"mean_r1":' evaluated/metrics.jsonl || fail "a run in bf16 was not evaluated"
else
    [ "$code" -eq 69 ] || fail "bf16: exit code $code: $(cat err.txt)"
    [ ! -e fast ] || fail "a refused run left a directory"
fi
