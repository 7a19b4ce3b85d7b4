#!/bin/bash
# Curation: a run's own numbers choose the samples of a new dataset, on which it continues.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 96 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
train() {
    "$BIN/ccstream-train" -q --threads 1 "$@"
}
train --data data --out run --augment crop --image-tower tiny --text-tower tiny --image-size 16 --stem small --max-tokens 12 \
    --batch-size 16 --epochs 2 --lr 0.002 --loss nuclr --tau 0.05 --zeta-freeze-epochs 0
"$BIN/ccstream-eval" score run --data data --attach score --threads 1 >/dev/null

count() { # count OPTIONS...: how many samples would be taken
    "$BIN/ccpack" subset data --dry-run --json "$@" | sed 's/.*"samples":\([0-9]*\),.*/\1/'
}
[ "$(count --where 'visits = 2' --state run)" = 96 ] || fail "not all samples were seen twice"
[ "$(count --where 'text.zeta < 75%' --state run)" = 72 ] || fail "three quarters: $(count --where 'text.zeta < 75%' --state run)"
[ "$(count --where 'col.score >= 50%')" = 48 ] || fail "half: $(count --where 'col.score >= 50%')"
both=$(count --where 'text.zeta < 75% and col.score >= 50%' --state run)
[ "$both" -gt 16 ] && [ "$both" -lt 48 ] || fail "both conditions leave $both"

# An existing column is replaced on request; features of both sides are a column too.
expect_message 73 "a column 'score' exists; pass --force" "$BIN/ccstream-eval" score run --data data --attach score
expect 0 "$BIN/ccstream-eval" score run --data data --attach score --force -o scores.npy --threads 1
expect 64 "$BIN/ccstream-eval" score run --data data --threads 1
expect 0 "$BIN/ccstream-eval" embed run --data data --attach features --threads 1
expect 0 "$BIN/ccdump" show data 5 --json
has out.txt '"features":{"kind":"f16","values":512,"vectors":2,'
has out.txt '"score":{"kind":"f32","values":1,"vectors":1,"first":['
expect 0 "$BIN/ccdump" verify data
expect 0 "$BIN/ccstream-train" -q --init run --data data --out taught --reference features --teacher-image features \
    --teacher-text features --distill-weight 0.3 --batch-size 16 --epochs 1 --threads 1
has taught/metrics.jsonl '"distill_loss":'
has taught/config.json '"features"'
expect_message 64 "column 'score' has" "$BIN/ccstream-train" -q --init run --data data --out no --reference score --batch-size 16
expect 64 "$BIN/ccstream-train" -q --resume taught --reference score
has err.txt '--reference cannot be changed by --resume: the per-sample state was computed with it'

# The ids of popularity's list are those of the condition.
"$BIN/ccdump" popularity run data --top 24 --json | head -n 24 | sed 's/.*"id":\([0-9]*\),.*/\1/' | sort -n >most.txt
"$BIN/ccpack" subset data --where 'text.zeta >= 75%' --state run -o popular -q
"$BIN/ccdump" ls popular --json | sed 's/.*"id":\([0-9]*\),.*/\1/' | cmp - most.txt || fail "the most popular samples are others"

# The run continues with what was chosen, with the state of these samples.
"$BIN/ccpack" subset data --where 'text.zeta < 75%' --state run -o rare -q
"$BIN/ccdump" verify rare >/dev/null
cp -r run longer
train --resume longer --data rare --epochs 4
"$BIN/ccdump" state longer --json >state.json
grep -q '"visits":{"ids":96,"visited":96,"min":2,' state.json || fail "visits after more epochs: $(cat state.json)"
[ "$("$BIN/ccpack" subset rare --where 'visits > 2' --state longer --dry-run --json | sed 's/.*"samples":\([0-9]*\),.*/\1/')" -ge 64 ] ||
    fail "the chosen samples were not seen again"

# A run on other data does not choose.
"$TESTBIN/make_scenes" train 32 9 32 other.tar
"$BIN/ccpack" -q -o other other.tar
code=0
"$BIN/ccpack" subset other --where 'visits = 2' --state run --dry-run 2>err.txt || code=$?
[ "$code" -eq 65 ] && grep -q 'was not trained on this dataset' err.txt || fail "another dataset: $code $(cat err.txt)"
code=0
"$BIN/ccpack" subset data --where 'zeta < 0' --state run --dry-run 2>err.txt || code=$?
[ "$code" -eq 64 ] && grep -q 'image.zeta' err.txt || fail "zeta of which side: $code $(cat err.txt)"
