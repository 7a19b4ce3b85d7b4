#!/bin/bash
# Training on several datasets: resumed to the bit, state by offset ids, and refused where a dataset, their order or
# their weights are others. test-timeout: 300
set -eu

fail() {
    echo "$*"
    exit 1
}

train="$BIN/ccstream-train"
"$TESTBIN/make_scenes" train 96 3 32 a.tar
"$TESTBIN/make_scenes" train 64 9 32 b.tar
"$BIN/ccpack" -q -o a a.tar
"$BIN/ccpack" -q -o b b.tar
"$BIN/ccpack" tokenizer a --vocab-size 100 >/dev/null

cp a/tokenizer.model b/

mix="--data a:0.7 --data b:0.3"
small="--image-tower resnet10t --text-tower tiny --image-size 16 --stem small --max-tokens 12
    --batch 32 --epochs 2 --lr 0.001 --tau 0.05 --zeta-freeze-epochs 1 --zeta-lr 0.0001 --seed 7 --threads 2"

# An epoch has as many samples as both: 5 steps. Stopped in both, and gone on with on other threads and another engine.
"$train" $mix $small --out whole --json >whole.json 2>log.txt
grep -q '"total_steps":10,' whole.json || fail "$(cat whole.json)"
grep -q '"datasets":\[{"directory":"a","samples":96,"weight":0.7,"id_offset":0},{"directory":"b","samples":64,"weight":0.3,"id_offset":96}\]' \
    whole.json || fail "$(cat whole.json)"
grep -q '30 % from b: 64 samples, ids from 96' log.txt || fail "$(cat log.txt)"
"$train" -q $mix $small --out parts --steps 3 --loader-threads 1
"$train" -q --resume parts --steps 7 --loader-threads 4 --engine pread
"$train" -q --resume parts --data a:0.7 --data b:0.3
cmp whole/last parts/last || fail "a resumed mix is not the uninterrupted one"
"$train" -q --config whole/config.json --out again
cmp whole/last again/last || fail "a mix by its configuration is not the mix"

# Every id of both is visited: 160 columns, those of b behind those of a.
grep -q '"image.log_u":{"visited":160,' whole/metrics.jsonl || fail "$(grep '"state"' whole/metrics.jsonl | tail -n 1)"

# The metadata stand in the file's first kilobytes.
for key in '"dataset.count":"2"' '"dataset.1.id_offset":"96"' '"dataset.1.fingerprint":"' '"dataset.mix":"'; do
    head -c 65536 whole/last | grep -aq -- "$key" || fail "the checkpoint lacks $key"
done

expect() {
    local wanted=$1 pattern=$2
    shift 2
    local got=0
    "$@" >out.txt 2>err.txt || got=$?
    [ "$got" -eq "$wanted" ] || fail "$*: exit code $got, expected $wanted: $(cat err.txt)"
    grep -q -- "$pattern" err.txt || fail "$*: message lacks '$pattern': $(cat err.txt)"
}
expect 65 "other weights" "$train" --resume whole --data a:0.6 --data b:0.4
expect 65 "other weights" "$train" --resume whole --data a --data b
expect 65 "b: .*fingerprint" "$train" --resume whole --data b:0.3 --data a:0.7
expect 65 "belongs to 2 datasets, the loader has 1" "$train" --resume whole --data a
expect 64 "weight" "$train" $small --data a:0.7 --data b --out x
expect 64 "a weight is above 0" "$train" $small --data a:0 --data b:1 --out x
expect 64 "named twice" "$train" $small --data a:0.5 --data a:0.5 --out x
[ ! -e x ] || fail "a refused run left a directory"

# From one dataset to two, and a dataset of a mix that has grown, in front or behind.
"$train" -q $small --data a --out single --steps 2
expect 65 "belongs to 1 dataset" "$train" --resume single --data a --data b
"$TESTBIN/make_scenes" train 32 5 32 c.tar
cp -r b grown
"$BIN/ccpack" -q --append -o grown c.tar
expect 65 "grown: .*fingerprint" "$train" --resume whole --data a:0.7 --data grown:0.3
cp -r a front
"$BIN/ccpack" -q --append -o front c.tar
expect 65 "front: .*fingerprint" "$train" --resume whole --data front:0.7 --data b:0.3

# Without weights: by size, every sample once an epoch.
"$train" -q $small --data a --data b --epochs 1 --out sized
grep -q '"image.log_u":{"visited":160,' sized/metrics.jsonl || fail "$(grep '"state"' sized/metrics.jsonl | tail -n 1)"
