#!/bin/bash
# by hand
# Kills one rank of three over Gloo at a random moment of a job's start, before its first step: no other rank may end without a
# word. Rank 0 speaks for all where all fail together, so a silent rank counts where rank 0 is the killed one or silent too.
#
#     BIN=build/release/bin TESTBIN=build/release/tests/bin tests/e2e/ranks_start_sweep.sh [KILLS] [SEED]     default: 40 kills
set -u
BIN=$(realpath "${BIN:?folder of ccstream-train}")
TESTBIN=$(realpath "${TESTBIN:?folder of make_scenes}")
kills=${1:-40}
RANDOM=${2:-$$}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
"$TESTBIN/make_scenes" train 48 3 32 train.tar || exit 1
"$BIN/ccpack" -q -o data train.tar || exit 1
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null 2>&1 || exit 1
start() { # start RUN: the ranks' processes in pids
    pids=()
    for rank in 0 1 2; do
        RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$BIN/ccstream-train" -q --data data \
            --image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 8 --batch-size 24 --micro-batch 2 \
            --epochs 500 --threads 1 --loader-threads 1 --rank-timeout 20 --out "$1" </dev/null >out.$rank 2>err.$rank &
        pids+=($!)
    done
}
now_ms() {
    echo $(($(date +%s%N) / 1000000))
}
# How long a start takes here.
began=$(now_ms)
start first
until grep -q '"loss"' first/metrics.jsonl 2>/dev/null; do sleep 0.02; done
took=$(($(now_ms) - began))
kill -KILL "${pids[@]}"
wait 2>/dev/null
silent=0
for ((kill = 0; kill < kills; kill++)); do
    start "run$kill"
    victim=$((RANDOM % 3))
    after=$((RANDOM * took / 32768))
    sleep "$(printf '%d.%03d' $((after / 1000)) $((after % 1000)))"
    kill -KILL "${pids[victim]}"
    said=""
    for rank in 0 1 2; do
        code=0
        wait "${pids[rank]}" 2>/dev/null || code=$?
        [ "$rank" = "$victim" ] || said="$said; rank $rank: $code, $(tail -n 1 err.$rank | cut -c1-140)"
        if [ "$rank" != "$victim" ] && ! [ -s err.$rank ] && { [ "$victim" = 0 ] || ! [ -s err.0 ]; }; then
            silent=$((silent + 1))
            said="$said SILENT"
        fi
    done
    echo "rank $victim killed after $after of $took ms$said"
    rm -rf "run$kill"
done
echo "$kills kills, $silent ranks ended without a word"
[ "$silent" = 0 ]
