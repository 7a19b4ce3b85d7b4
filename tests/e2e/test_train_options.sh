#!/bin/bash
# Presets, configuration files, and a dataset that grows or shrinks between runs.
. "$SRC/tests/support/cli.sh"

option() { # option NAME RUN: its value in RUN/config.json
    sed "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/" "$2/config.json"
}

"$TESTBIN/make_scenes" train 96 3 32 first.tar
"$TESTBIN/make_scenes" train 64 9 32 second.tar
"$BIN/ccpack" -q -o data first.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null

small_model model.json
model="--model model.json --tokenizer data/tokenizer.model --batch-size 32 --threads 1"
small="--image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12 --batch-size 32 --threads 1"

# Options override a preset.
"$BIN/ccstream-train" -q --data data --out parents/made/preset --preset cpu-demo $small --epochs 1
mv parents/made/preset preset
[ "$(option lr preset)" = 0.001 ] || fail "the preset's learning rate is $(option lr preset)"
[ "$(option epochs preset)" = 1 ] || fail "the command line's epochs are $(option epochs preset)"
[ "$(option augment preset)" = crop ] || fail "the preset's augmentation is $(option augment preset)"

# A run with the configuration of another ends with the same bytes; the command line overrides it.
"$BIN/ccstream-train" -q --config preset/config.json --out again
cmp preset/last again/last || fail "a run by its configuration is not the run"
"$BIN/ccstream-train" -q --config preset/config.json --out seeded --seed 5
[ "$(option seed seeded)" = 5 ] || fail "the command line does not override the file"
if cmp -s preset/last seeded/last; then
    fail "another seed ends in the same bytes"
fi
code=0
"$BIN/ccstream-train" -q --config no-such.json --data data --out x 2>err.txt || code=$?
[ "$code" -eq 66 ] || fail "a missing configuration: exit code $code"
echo '{"options":{"no-such-option":1}}' >bad.json
code=0
"$BIN/ccstream-train" -q --config bad.json --data data --out x 2>err.txt || code=$?
[ "$code" -eq 64 ] || fail "an unknown option in a configuration: exit code $code"

# On a terminal: one line redrawn in place with the remaining time, in a resumed run by the steps of this
# process, and never wider than the terminal.
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    script -qec "stty cols 110; '$BIN/ccstream-train' --config preset/config.json --out seen --epochs 3" /dev/null </dev/null |
        tr '\r' '\n' >seen.txt
    grep -q '^\[[#-]*\] *[0-9]* %  [1-9]/9 steps  .* left  epoch [123]  global loss [-0-9.]*  [0-9]* pairs/s  stall [0-9]* %' seen.txt ||
        fail "no live line: $(cat seen.txt)"
    script -qec "stty cols 40; '$BIN/ccstream-train' --config preset/config.json --out narrow" /dev/null </dev/null |
        tr '\r' '\n' | grep 'steps  ' >narrow.txt
    [ "$(wc -L <narrow.txt)" -le 39 ] || fail "wider than the terminal: $(cat narrow.txt)"
fi

# --tokenizer gives the bytes of a run whose dataset has this tokenizer, interrupted or not.
"$BIN/ccpack" -q -o bare first.tar
"$BIN/ccstream-train" -q --data bare --tokenizer data/tokenizer.model --out brought --preset cpu-demo $small --epochs 1 --steps 2
"$BIN/ccstream-train" -q --resume brought
cmp preset/last brought/last || fail "the same tokenizer, other bytes"
"$BIN/ccstream-train" --dry-run --data bare --tokenizer data/tokenizer.model --preset cpu-demo $small >plan.txt && grep -q "^total" plan.txt ||
    fail "no plan with a tokenizer from elsewhere"
code=0
"$BIN/ccstream-train" -q --data bare --tokenizer no-such.model --out x $small 2>err.txt || code=$?
[ "$code" -eq 66 ] || fail "a missing tokenizer: exit code $code: $(cat err.txt)"
grep -q no-such.model err.txt || fail "which tokenizer is missing? $(cat err.txt)"
code=0
"$BIN/ccstream-train" -q --data bare --tokenizer first.tar --out x $small 2>err.txt || code=$?
[ "$code" -eq 65 ] || fail "a tokenizer that is none: exit code $code: $(cat err.txt)"
code=0
"$BIN/ccstream-train" -q --data bare --task two-views --loss simclr --tokenizer data/tokenizer.model --out x \
    --image-tower tiny --image-size 16 --batch-size 32 2>err.txt || code=$?
[ "$code" -eq 64 ] || fail "two views with a tokenizer: exit code $code: $(cat err.txt)"

# Each checkpoint summarises per-sample state.
grep -q '"state":{"image.log_u":{"visited":96,' preset/metrics.jsonl || fail "no state in $(tail -n 1 preset/metrics.jsonl)"
grep -q '"stall_fraction":' preset/metrics.jsonl || fail "no stall_fraction"

ranks() { # ranks N RUN DIR: a checkpoint of before the dataset changed ranks the N samples that it knows
    "$BIN/ccdump" popularity "$2" "$3" --top 160 --json >popular.txt || fail "no popularity of $2 on $3"
    ranked=$(grep -o '"id":[0-9]*' popular.txt | sort -u | wc -l)
    [ "$ranked" -eq "$1" ] || fail "popularity of $2 on $3 ranks $ranked samples, not $1"
}

# A dataset from which samples are removed: the run resumes, with the state of the others.
cp -r data less
"$BIN/ccstream-train" -q --data less --out shrunk --preset cpu-demo $model --epochs 2 --zeta-freeze-epochs 0 --steps 4
seq 10 41 >ids.txt
"$BIN/ccpack" remove -q less --ids ids.txt
"$BIN/ccpack" compact -q less
ranks 64 shrunk less
"$BIN/ccstream-train" --resume shrunk 2>log.txt
grep -q 'has shrunk from 96 to 64 samples' log.txt || fail "the log does not say that samples were removed: $(cat log.txt)"
[ "$(readlink shrunk/last)" = checkpoints/step-4.safetensors ] || fail "last names $(readlink shrunk/last)"
grep -q '"visited":96,' shrunk/metrics.jsonl || fail "state was lost: $(grep state shrunk/metrics.jsonl)"

# A dataset that grows: the run resumes, with new samples unvisited.
"$BIN/ccstream-train" -q --data data --out grown --preset cpu-demo $model --epochs 2 --zeta-freeze-epochs 0 --steps 4
"$BIN/ccpack" -q --append -o data second.tar
ranks 96 grown data
"$BIN/ccstream-train" --resume grown 2>log.txt
grep -q 'has grown from 96 to 160 samples' log.txt || fail "the log does not say that the dataset has grown: $(cat log.txt)"
[ "$(readlink grown/last)" = checkpoints/step-10.safetensors ] || fail "last names $(readlink grown/last)"
grep -q '"visited":160,' grown/metrics.jsonl || fail "new samples were not visited: $(grep state grown/metrics.jsonl)"

# Another dataset is refused, and the message names both.
"$BIN/ccpack" -q -o other second.tar
cp data/tokenizer.model other/
code=0
"$BIN/ccstream-train" -q --resume grown --data other 2>err.txt || code=$?
[ "$code" -eq 65 ] || fail "another dataset: exit code $code: $(cat err.txt)"
grep -q 'was trained on dataset' err.txt || fail "$(cat err.txt)"
