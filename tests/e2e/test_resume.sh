#!/bin/bash
# Runs that were stopped, killed or never started resume as if they had not been interrupted.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 128 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null

small_model model.json
model="--model model.json --tokenizer data/tokenizer.model --batch-size 32
    --epochs 4 --lr 0.001 --tau 0.05 --zeta-freeze-epochs 1 --seed 7 --threads 2"
options="--data data $model"

# The uninterrupted run: 16 steps.
$last "$BIN/ccstream-train" -q $options --out whole
[ "$(readlink whole/last)" = checkpoints/step-16.safetensors ] || fail "last names $(readlink whole/last)"

# --zeta-lr auto is a rule, which the run stores.
$last "$BIN/ccstream-train" $options --out auto --steps 1 2>auto.txt
has auto.txt 'zeta: learning rate auto (tau / (t + 2) at visit t, at least tau / 10), of images 1 times that'
has auto/config.json '"zeta-lr":"auto"'
$last "$BIN/ccstream-train" --resume auto --steps 2 2>auto.txt
has auto.txt 'zeta: learning rate auto ('

# An epoch and three quarters, then the rest with another number of loader threads and another engine.
$last "$BIN/ccstream-train" -q $options --out parts --steps 7 --loader-threads 1
[ "$(readlink parts/last)" = checkpoints/step-7.safetensors ] || fail "last names $(readlink parts/last)"
$last "$BIN/ccstream-train" -q --resume parts --loader-threads 4 --io-engine pread
cmp whole/last parts/last || fail "a resumed run is not the uninterrupted one"

# One metrics line per step, besides those of checkpoints; everything but times is equal.
for run in whole parts; do
    grep -Ev '"(state|stages)":' "$run/metrics.jsonl" | sed 's/,"pairs_per_s":.*//' >"$run.metrics"
done
cmp whole.metrics parts.metrics || fail "metrics differ"
[ "$(wc -l <parts.metrics)" -eq 16 ] || fail "$(wc -l <parts.metrics) lines of metrics"

# SIGINT saves and exits with 0.
$last "$BIN/ccstream-train" -q $options --out stopped &
pid=$!
for _ in $(seq 2000); do
    [ -s stopped/metrics.jsonl ] && break
    sleep 0.01
done
kill -INT "$pid"
code=0
wait "$pid" || code=$?
[ "$code" -eq 0 ] || fail "SIGINT: exit code $code"
[ -e stopped/last ] || fail "SIGINT left no checkpoint"
$last "$BIN/ccstream-train" -q --resume stopped
cmp whole/last stopped/last || fail "a stopped run does not end as the uninterrupted one"

# kill -9, before any checkpoint or after one.
$last "$BIN/ccstream-train" -q $options --out killed --checkpoint-every 3 &
pid=$!
for _ in $(seq 2000); do
    [ -s killed/metrics.jsonl ] && break
    sleep 0.01
done
kill -KILL "$pid" 2>/dev/null || true
wait "$pid" 2>/dev/null || true
$last "$BIN/ccstream-train" -q --resume killed
cmp whole/last killed/last || fail "a killed run does not end as the uninterrupted one"

# An evaluation that was due when a run was stopped is run later: the evaluation lines are those of an uninterrupted
# run. Stopped right after the checkpoint of an epoch, and killed between checkpoint and line.
evaluations() {
    grep '"retrieval":' "$1/metrics.jsonl" | sed 's/,"time":.*//'
}
$last "$BIN/ccstream-train" -q $options --epochs 2 --val data --out judged
[ "$(evaluations judged | cut -d, -f1 | tr '\n' ' ')" = '{"step":4 {"step":8 ' ] || fail "$(evaluations judged)"
$last "$BIN/ccstream-train" -q $options --epochs 2 --val data --out cut &
pid=$!
for _ in $(seq 2000); do
    grep -qs '"state":' cut/metrics.jsonl && break
    sleep 0.01
done
kill -INT "$pid"
wait "$pid" || fail "SIGINT: exit code $?"
$last "$BIN/ccstream-train" -q --resume cut
cmp <(evaluations judged) <(evaluations cut) || fail "evaluations of a stopped run: $(evaluations cut)"
$last "$BIN/ccstream-train" -q $options --epochs 2 --val data --out owing --steps 4
grep -v '"retrieval":' owing/metrics.jsonl >left.jsonl
mv left.jsonl owing/metrics.jsonl
$last "$BIN/ccstream-train" -q --resume owing
cmp <(evaluations judged) <(evaluations owing) || fail "an evaluation was not made up: $(evaluations owing)"
$last "$BIN/ccstream-train" -q --resume owing
cmp <(evaluations judged) <(evaluations owing) || fail "a finished run was evaluated again: $(evaluations owing)"

# A run without a checkpoint starts at step 0; a finished one is not changed.
mkdir fresh
cp whole/config.json fresh/
$last "$BIN/ccstream-train" -q --resume fresh --json >fresh.json
grep -q '"resumed_step":0' fresh.json || fail "a run without checkpoint did not start at step 0"
cmp whole/last fresh/last || fail "a run from config.json alone is another run"
$last "$BIN/ccstream-train" -q --resume whole || fail "resuming a finished run: exit code $?"

# The memory plan requires no run.
$last "$BIN/ccstream-train" $options --out planned --dry-run >plan.txt
grep -q "^total " plan.txt || fail "--dry-run printed no total: $(cat plan.txt)"
[ ! -e planned ] || fail "--dry-run made a directory"

# Every line of metrics carries the time and the run's id, which a resumed run keeps.
id=$(sed 's/.*"run":"\([0-9a-f]*\)".*/\1/' parts/config.json)
[ "${#id}" -eq 16 ] || fail "config.json has no id: $(cat parts/config.json)"
lines=$(grep -c "\"time\":\"20[0-9-]*T[0-9:.]*Z\",\"run\":\"$id\"}\$" parts/metrics.jsonl)
[ "$lines" -eq "$(wc -l <parts/metrics.jsonl)" ] || fail "$lines lines have the time and the id"
if grep -q "$id" whole/metrics.jsonl; then
    fail "two runs have the same id"
fi

train="$BIN/ccstream-train"
expect_message 66 "not a run of ccstream-train" "$train" --resume data
expect_message 73 "holds a run already" "$train" $options --out whole
expect_message 64 "are required" "$train" --data data
expect_message 64 "no loss\|--loss" "$train" $options --out x --loss triplet
expect_message 66 "nowhere" "$train" --data nowhere --out x
expect_message 66 "nowhere" "$train" $options --val nowhere --out x
[ ! -e x ] || fail "a refused run left a directory"
"$TESTBIN/make_scenes" train 64 4 32 other.tar
"$BIN/ccpack" -q -o other other.tar
cp data/tokenizer.model other/
expect_message 65 "was trained on dataset" "$train" --resume whole --data other
towers="--image-tower tiny --text-tower tiny"
expect_message 64 "fewer than one batch of 128" "$train" --data other --out x $towers --batch-size 128
"$BIN/ccpack" -q -o plain other.tar
expect_message 64 "has no tokenizer" "$train" $towers --batch-size 32 --data plain --out y
rm data/tokenizer.model
expect_message 66 "it is missing" "$train" $towers --batch-size 32 --data data --out y
[ ! -e y ] || fail "a refused run left a directory"
mkdir empty new
cp whole/config.json new/
touch new/metrics.jsonl
expect_message 66 "not a run or checkpoint" "$BIN/ccstream-eval" retrieval empty --data data
expect_message 66 "no checkpoint yet" "$BIN/ccstream-eval" retrieval new --data data
head -c 5000 whole/last >junk.safetensors
expect_message 65 "junk" "$BIN/ccstream-eval" retrieval junk.safetensors --data data
