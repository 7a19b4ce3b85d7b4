#!/bin/bash
# Bad input is refused with a message before any work; failures during a run leave the last checkpoint
# valid.
. "$SRC/tests/support/cli.sh"
refuses() {
    expect_message "$@"
    [ ! -e x ] || fail "$*: left a directory"
}

"$TESTBIN/make_scenes" train 64 3 24 train.tar
"$TESTBIN/make_scenes" train 48 9 24 other.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer -q data --vocab-size 60
"$BIN/ccpack" -q --part 1/2 -o part train.tar other.tar
mkdir all
tar -xf train.tar -C all
mkdir -p folders/a
mv all/*.jpg folders/a/
"$BIN/ccpack" -q -o captionless folders

small_model model.json
towers="--model model.json --tokenizer data/tokenizer.model"
options="$towers --batch-size 16 --epochs 1 --lr 0.001 --tau 0.05 --threads 1"
train="$BIN/ccstream-train -q"

refuses 66 nowhere $train --data nowhere $options --out x
refuses 64 'fewer than one batch of 128' $train --data data $towers --batch-size 128 --out x
refuses 64 '--loss' $train --data data $options --loss triplet --out x
refuses 64 '--tau' $train --data data $options --tau -1 --out x
refuses 64 '--batch-size' $train --data data $options --batch-size 1 --out x
refuses 64 "--precision .*f32, bf16.*'fp16'" $train --data data $options --precision fp16 --out x
refuses 64 'no captions to evaluate on' $train --data data --val captionless $options --out x
refuses 64 'captionless has no captions; --task two-views' $train --data captionless $options --out x
refuses 64 "part is part 1/2 of a dataset; join all parts with 'ccpack merge'" $train --data data --data part $options --out x
refuses 64 'requires a run' $train --data data --remap-state captionless $options --out x

# Resuming with a wrong dataset or a damaged checkpoint. The tokenizer of the dataset is not read: the
# checkpoint holds the run's.
$train --data data $options --out run --steps 2
cp run/last good.safetensors
"$BIN/ccpack" -q -o other other.tar
cp data/tokenizer.model other/
refuses 65 'was trained on dataset' $train --resume run --data other
cp -r data renamed
"$BIN/ccpack" tokenizer -q renamed --overwrite --vocab-size 38
cp -r run same
cp -r run other-tokenizer
$train --resume same --steps 3
$train --resume other-tokenizer --data renamed --steps 3
cmp same/last other-tokenizer/last || fail "the tokenizer of the dataset matters"
newest=run/$(readlink run/last)
size=$(stat -c %s "$newest")
printf '\377' | dd of="$newest" bs=1 seek=$((size / 2)) conv=notrunc status=none
refuses 65 'run/last' $train --resume run
head -c $((size / 2)) good.safetensors >"$newest"
refuses 65 'run/last' $train --resume run
cp good.safetensors "$newest"

# State transferred by image to another dataset: the first tar and more.
"$BIN/ccpack" -q -o more other.tar train.tar
cp data/tokenizer.model more/
"$BIN/ccpack" tokenizer -q more --overwrite --tokenizer data/tokenizer.model
refuses 65 'name the dataset that the run was trained on' $train --resume run --data more --remap-state other
"$BIN/ccdump" state run --json >before.json
"$BIN/ccstream-train" --resume run --data more --remap-state data --steps 3 2>log.txt || fail "$(cat log.txt)"
grep -q 'per-sample state: 64 matched by image hash, 48 initialised, 0 of data dropped' log.txt || fail "$(cat log.txt)"
"$BIN/ccdump" state run --json >after.json
visits() { # the mean times the number visited
    sed 's/.*"visits":{"ids":[0-9]*,"visited":\([0-9]*\),"min":[^,]*,"mean":\([^,]*\),.*/\1 \2/' "$1" |
        awk '{ printf "%.0f", $1 * $2 }'
}
[ "$(visits before.json)" -eq 32 ] || fail "visits before: $(cat before.json)"
[ "$(visits after.json)" -eq 80 ] || fail "visits after three steps of the epoch begun anew: $(cat after.json)"
$train --resume run || fail "a remapped run does not resume"

# A non-finite step (Adam without epsilon divides 0 by 0) ends the run and records the values.
code=0
$train --data data $options --adam-eps 0 --out broken 2>err.txt || code=$?
[ "$code" -ne 0 ] || fail "a run of NaN ended well"
grep -q 'nonfinite.json describes the step; no checkpoint is saved yet' err.txt || fail "no dump: $(cat err.txt)"
grep -q '"parameters_not_finite":{"' broken/nonfinite.json || fail "$(cat broken/nonfinite.json)"
grep -q '"sample_ids":\[' broken/nonfinite.json || fail "$(cat broken/nonfinite.json)"
[ ! -e broken/last ] || fail "a checkpoint of a run that diverged in its second step"

# What such a step made of the model is not saved: the checkpoint before it stays the last.
expect_message 65 'tensor .* has the value .*; training diverged.*; the last checkpoint stays' \
    $train --data data $towers --batch-size 16 --lr 100 --weight-decay 100 --epochs 2 --threads 1 --checkpoint-every 1 --out sound
[ "$(readlink sound/last)" = "checkpoints/$(ls -t sound/checkpoints | head -n 1)" ] || fail "last names $(readlink sound/last)"
"$BIN/ccstream-eval" retrieval -q sound --data data >/dev/null || fail "the last checkpoint is not sound"
expect_message 65 'tensor .* has the value .*; no checkpoint is saved' \
    $train --data data $options --adam-eps 0 --checkpoint-every 1 --out never

# A full disk: files may not grow beyond a quarter of a checkpoint. The run stops, or with the option
# continues to its last checkpoint; what was saved before stays.
$train --data data $options --out full --steps 1
limit=$(($(stat -Lc %s full/last) / 4096)) # blocks of 1024 bytes
before=$(readlink full/last)
limited() { # limited WORDS...: exit code in $code
    code=0
    (
        trap '' XFSZ
        ulimit -f "$limit"
        exec "$BIN/ccstream-train" "$@" 2>err.txt
    ) || code=$?
}
limited --resume full --checkpoint-every 1
[ "$code" -eq 74 ] || fail "a full disk: exit code $code: $(cat err.txt)"
[ "$(readlink full/last)" = "$before" ] || fail "last moved"
limited --resume full --checkpoint-every 1 --on-full-disk go-on
[ "$code" -eq 74 ] || fail "the last checkpoint cannot be written: exit code $code: $(cat err.txt)"
[ "$(grep -c 'is not saved, the run continues' err.txt)" -eq 2 ] || fail "warnings: $(cat err.txt)"
[ "$(readlink full/last)" = "$before" ] || fail "last moved"
if ls full/*.tmp full/checkpoints/*.tmp 2>/dev/null | grep -q .; then
    fail "something half written stays: $(ls full)"
fi
$train --resume full || fail "a run does not resume once the disk has space again"
[ "$(readlink full/last)" = checkpoints/step-4.safetensors ] || fail "last names $(readlink full/last)"
