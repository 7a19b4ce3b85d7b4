#!/bin/bash
# Training on several datasets: exact resumption, state by offset ids, and refusal if a dataset, their order or
# their weights differ.
. "$SRC/tests/support/cli.sh"

train="$BIN/ccstream-train"
"$TESTBIN/make_scenes" train 96 3 32 a.tar
"$TESTBIN/make_scenes" train 64 9 32 b.tar
"$BIN/ccpack" -q -o a a.tar
"$BIN/ccpack" -q -o b b.tar
scene_words words.txt
"$BIN/ccpack" tokenizer -q a --tokenizer words.txt
cp a/tokenizer.model b/

mix="--data a:0.7 --data b:0.3"
run="--batch-size 32 --epochs 2 --lr 0.001 --tau 0.05 --zeta-freeze-epochs 1 --zeta-lr 0.0001 --seed 7 --threads 1"
tiny="--image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 12 $run" # with the tokenizer of the datasets
small_model model.json
small="--model model.json --tokenizer words.txt $run"

# An epoch has the samples of both: 5 steps. Stopped in each epoch, and resumed with other threads and another engine.
"$train" $mix $tiny --out whole --json >whole.json 2>log.txt
grep -q '"total_steps":10,' whole.json || fail "$(cat whole.json)"
grep -q '"datasets":\[{"directory":"a","samples":96,"weight":0.7,"id_offset":0},{"directory":"b","samples":64,"weight":0.3,"id_offset":96}\]' \
    whole.json || fail "$(cat whole.json)"
grep -q '30 % from b: 64 samples, ids from 96' log.txt || fail "$(cat log.txt)"
"$train" -q $mix $tiny --out parts --steps 3 --loader-threads 1
"$train" -q --config whole/config.json --out again --steps 3
cmp parts/last again/last || fail "a mix by its configuration is not the mix"
"$train" -q --resume parts --steps 7 --loader-threads 4 --io-engine pread
"$train" -q --resume parts --data a:0.7 --data b:0.3
cmp whole/last parts/last || fail "a resumed mix is not the uninterrupted one"

# Every id of both is visited: 160 entries, those of b after those of a.
grep -q '"image.log_u":{"visited":160,' whole/metrics.jsonl || fail "$(grep '"state"' whole/metrics.jsonl | tail -n 1)"

# The metadata are in the first kilobytes of the file.
for key in '"dataset.count":"2"' '"dataset.1.id_offset":"96"' '"dataset.1.fingerprint":"' '"dataset.mix":"'; do
    head -c 65536 whole/last | grep -aq -- "$key" || fail "the checkpoint lacks $key"
done

expect_message 65 "other weights" "$train" --resume whole --data a:0.6 --data b:0.4
expect_message 65 "other weights" "$train" --resume whole --data a --data b
expect_message 65 "b: .*fingerprint" "$train" --resume whole --data b:0.3 --data a:0.7
expect_message 65 "belongs to 2 datasets, the loader has 1" "$train" --resume whole --data a
expect_message 64 "weight" "$train" $small --data a:0.7 --data b --out x
expect_message 64 "a weight must be above 0" "$train" $small --data a:0 --data b:1 --out x
expect_message 64 "given twice" "$train" $small --data a:0.5 --data a:0.5 --out x
[ ! -e x ] || fail "a refused run left a directory"

# Without weights: by size, every sample once per epoch.
"$train" -q $small --data a --data b --steps 5 --out sized
grep -q '"image.log_u":{"visited":160,' sized/metrics.jsonl || fail "$(grep '"state"' sized/metrics.jsonl | tail -n 1)"
cp -r sized grows
cp -r sized moved
"$train" -q --resume sized

# ccdump popularity of a mix: both datasets by their own ids, and one alone.
"$TESTBIN/make_scenes" train 32 5 32 c.tar
"$BIN/ccpack" -q -o c c.tar
"$BIN/ccdump" popularity sized a b --top 200 --json --html page.html >both.jsonl
"$BIN/ccdump" popularity sized b --top 200 --json >b.jsonl
[ "$(wc -l <both.jsonl)" -eq 320 ] && [ "$(wc -l <b.jsonl)" -eq 128 ] || fail "popularity: $(wc -l both.jsonl b.jsonl)"
grep '"dataset":"b"' both.jsonl | head -n 64 | cmp - <(head -n 64 b.jsonl) || fail "popularity of b beside a is another"
grep -q '"dataset":"a","id":95,' both.jsonl || fail "$(head -n 3 both.jsonl)"
[ "$(grep -o '"src":"data:' page.html | wc -l)" -eq 320 ] || fail "page.html has not all images"
"$BIN/ccdump" popularity sized a b --top 2 | grep -q ' [ab] ' || fail "the table does not name the datasets"
expect_message 65 "was not trained on c" "$BIN/ccdump" popularity sized a c
expect_message 64 "given twice" "$BIN/ccdump" popularity sized a a
objective() {
    "$BIN/ccstream-eval" objective sized --threads 1 --json -q "$@"
}
objective --data a --also b >both.json
objective --data b >b.json
objective --data a --also c >other.json
grep -q '"pairs":160,' both.json && grep -q '"nuclr":' both.json || fail "objective of the mix: $(cat both.json)"
grep -q '"pairs":64,' b.json && grep -q '"nuclr":' b.json || fail "objective of b: $(cat b.json)"
if grep -q '"nuclr":' other.json; then
    fail "zeta of a dataset that the run never saw: $(cat other.json)"
fi

# State stays with its sample when datasets grow: after one epoch all have one visit; after the second, new samples
# have one and the others two. The ids of b move from 96 to 128.
visits() { # IDS VISITED MIN MAX
    "$BIN/ccdump" state "$1" --json |
        sed 's/.*"visits":{"ids":\([0-9]*\),"visited":\([0-9]*\),"min":\([0-9]*\),.*"max":\([0-9]*\),.*/\1 \2 \3 \4/'
}
[ "$(visits grows)" = "160 160 1 1" ] || fail "visits before: $(visits grows)"
for set in a b; do
    cp -r $set $set-before
    "$BIN/ccpack" -q --append -o $set c.tar
done
"$train" --resume grows --steps 7 2>log.txt
grep -q 'the mix has grown from 160 to 224 samples' log.txt || fail "$(cat log.txt)"
grep -q 'epoch 2 restarts' log.txt || fail "$(cat log.txt)"
[ "$(visits grows)" = "224 160 1 1" ] || fail "visits of what has grown: $(visits grows)"
"$train" -q --resume grows
[ "$(visits grows)" = "224 224 1 2" ] || fail "visits after: $(visits grows)"
settings() { sed 's/"folder":[0-9]*//' "$1/config.json"; }
cmp <(settings grows) <(settings moved) || fail "growing changed the configuration"
expect_message 65 "other weights" "$train" --resume whole --data a:0.6 --data b:0.4
"$train" -q --resume whole --data a:0.7 --data b:0.3 || fail "a weighted mix does not grow"

# The same state by images: b alone, at another offset, with new samples.
expect_message 64 "was trained on 2 datasets, --remap-state names 1" \
    "$train" --resume moved --data b-before --data c --remap-state a-before
expect_message 65 "(for a mix, each one in the same order)" "$train" --resume moved --data b-before --data c \
    --remap-state b-before --remap-state a-before
cp a/tokenizer.model c/
"$BIN/ccpack" tokenizer -q c --overwrite --tokenizer a/tokenizer.model
"$train" --resume moved --data c --data b-before --remap-state a-before --remap-state b-before --steps 3 2>log.txt
grep -q 'per-sample state: 64 matched by image hash, 32 initialised, 96 of a-before and the others dropped' log.txt || fail "$(cat log.txt)"
[ "$(visits moved)" = "96 64 1 1" ] || fail "visits after: $(visits moved)"
"$train" -q --resume moved || fail "a remapped mix does not resume"
[ "$(visits moved)" = "96 96 1 2" ] || fail "visits at the end: $(visits moved)"

# From one dataset to two.
"$train" -q $small --data a-before --out single --steps 3
expect_message 65 "belongs to 1 dataset.*--remap-state" "$train" --resume single --data a-before --data c
"$train" -q --resume single --data a-before --data c --remap-state a-before --steps 5 || fail "one dataset does not become two"
[ "$(visits single | cut -d' ' -f1)" = 128 ] || fail "visits: $(visits single)"
