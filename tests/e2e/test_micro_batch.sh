#!/bin/bash
# Batches in micro-batches: losses with and without state train, a resumed run ends with the same bytes, and the
# memory plan shrinks.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 96 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
"$BIN/ccpack" tokenizer -q data --tokenizer words.txt
small_model model.json

tiny="--image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12"
options="--data data --augment crop --batch-size 32 --epochs 1 --lr 0.001 --zeta-freeze-epochs 0 --zeta-lr 0.0001 --threads 1"

run() { # run NAME OPTIONS...
    local name=$1
    shift
    expect 0 "$BIN/ccstream-train" -q $options "$@" --out "$name-whole" --checkpoint-every 1 --keep-checkpoints 3
    resumes "$name-whole" 1
    if grep -Eq 'nan|inf|null' "$name-whole/metrics.jsonl"; then
        fail "$name: metrics are not numbers"
    fi
}

# 12 does not divide 32: the last part is smaller.
small="--model model.json --tokenizer words.txt"
run clip $small --loss clip --tau 0.07 --temperature global --tau-lr 0.01 --micro-batch 12
run cyclip $small --loss cyclip --tau 0.05 --micro-batch 12
options="$options $tiny"
run nuclr --loss nuclr --tau 0.05 --micro-batch 12

# One micro-batch equals the batch; several differ by batch norm.
"$BIN/ccstream-train" -q $options --loss nuclr --tau 0.05 --out whole
"$BIN/ccstream-train" -q $options --loss nuclr --tau 0.05 --micro-batch 32 --out one
cmp whole/last one/last || fail "one micro-batch is not the batch"
"$BIN/ccstream-train" -q $options --loss nuclr --tau 0.05 --sync-bn --out synchronised
cmp whole/last synchronised/last || fail "--sync-bn changes a run of one rank"
if cmp -s whole/last nuclr-whole/last; then
    fail "micro-batches of 12 pairs end in the bytes of the whole batch"
fi

# Four times the batch fits into the memory of a quarter of it, except for embeddings.
plan() {
    "$BIN/ccstream-train" $options --out planned --dry-run "$@" | sed -n 's/^activations *//p'
}
[ "$(plan)" != "$(plan --micro-batch 8)" ] || fail "the plan does not know micro-batches: $(plan)"

"$BIN/ccstream-train" $options --out planned --dry-run --micro-batch 16 >plan.txt
for line in "  8            8" " 16           16" " 32           16" "128           16"; do
    grep -q "^ *$line " plan.txt || fail "no line '$line': $(cat plan.txt)"
done

expect 64 "$BIN/ccstream-train" -q $options --micro-batch 33 --out x
has err.txt "--micro-batch 33 is larger than --batch-size 32"
[ ! -e x ] || fail "a refused run left a directory"
