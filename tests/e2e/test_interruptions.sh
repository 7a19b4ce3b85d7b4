#!/bin/bash
# Runs interrupted at random moments by SIGINT or kill -9, and resumed until they end: checkpoint and
# metrics are those of an uninterrupted run. CTest runs a few interruptions. By hand, in an empty folder,
# the script runs more of them at other moments:
#
#     BIN=.../bin TESTBIN=.../tests/bin SRC=... tests/e2e/test_interruptions.sh [COUNT] [SEED]
. "$SRC/tests/support/cli.sh"
wanted=${1:-3}
seed=${2:-1}
RANDOM=$seed

fail() {
    echo "FAIL (seed $seed, interruption $done): $*"
    exit 1
}
done=0

"$TESTBIN/make_scenes" train 96 3 32 train.tar
rm -rf data whole
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
small_model model.json
options="--data data --model model.json --tokenizer words.txt --batch-size 16 --epochs 12 --lr 0.001 --tau 0.05
    --zeta-freeze-epochs 1 --zeta-lr 0.0001 --seed 7 --threads 1 --checkpoint-every 3"

steps_of() { # a run's step lines without what depends on time
    grep -Ev '"(state|stages)":' "$1/metrics.jsonl" | sed 's/,"pairs_per_s":.*//'
}

from=$(date +%s%N)
"$BIN/ccstream-train" -q $options --out whole
whole_ms=$((($(date +%s%N) - from) / 1000000 + 1))
steps_of whole >whole.steps

# interrupt SIGNAL WORDS...: runs ccstream-train and sends the signal at a random moment of the time that
# the whole run took, to it and the programs that it started: a report of a killed run would be written
# into the folder of the next one. Leaves the exit code in $code.
interrupt() {
    local signal=$1 pid ms
    shift
    setsid env -u CCSTREAM_REPORT "$BIN/ccstream-train" -q "$@" 2>err.txt &
    pid=$!
    ms=$(((RANDOM * 32768 + RANDOM) % whole_ms))
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
    kill -"$signal" -- -$pid 2>/dev/null || true
    code=0
    wait $pid 2>/dev/null || code=$?
}

runs=0
while [ "$done" -lt "$wanted" ]; do
    rm -rf run
    runs=$((runs + 1))
    while :; do
        signal=$([ $((RANDOM % 2)) -eq 0 ] && echo INT || echo KILL)
        if [ -e run/config.json ]; then
            interrupt $signal --resume run
        else
            interrupt $signal $options --out run
        fi
        # 0: the run ended before the signal, or stopped after it. 130: the signal came before the run.
        case $signal$code in
        INT0 | INT130 | KILL0 | KILL137) ;;
        *) fail "$signal: exit code $code: $(cat err.txt)" ;;
        esac
        if [ -e run/last ] && [ "$(readlink run/last)" = "$(readlink whole/last)" ]; then
            break
        fi
        if [ $signal$code = INT0 ]; then
            grep -q -- '--resume run' err.txt || fail "SIGINT does not print how to resume: $(cat err.txt)"
            [ -e run/last ] || fail "SIGINT left no checkpoint"
        fi
        done=$((done + 1))
        if [ "$done" -ge "$wanted" ]; then
            words="--resume run"
            [ -e run/config.json ] || words="$options --out run"
            "$BIN/ccstream-train" -q $words
            break
        fi
    done
    cmp whole/last run/last || fail "another checkpoint"
    steps_of run | cmp - whole.steps || fail "other metrics"
done
echo "$done interruptions in $runs runs: the bytes are the same"
