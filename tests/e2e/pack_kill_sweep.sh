#!/bin/bash
# by hand
# Kills ccpack with SIGKILL at many random moments of a run, an append and a merge, and resumes it each
# time until it ends: the bytes must be those of an undisturbed run. A run may be killed several times.
#
#     BIN=build/release/bin TESTBIN=build/release/tests/bin tests/e2e/pack_kill_sweep.sh [KILLS] [SEED]
#
# KILLS: how many at least, default 200. About ten minutes on two cores.
set -u
BIN=$(realpath "${BIN:?folder of ccpack}")
TESTBIN=$(realpath "${TESTBIN:?folder of make_scenes}")
kills=${1:-200}
RANDOM=${2:-$$}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

fail() {
    echo "FAIL: $*"
    exit 1
}

"$TESTBIN/make_scenes" train 1500 1 96 a.tar >/dev/null || exit 1
"$TESTBIN/make_scenes" train 1500 2 96 b.tar >/dev/null || exit 1
head -c $(($(stat -c %s a.tar) / 3)) /dev/zero | tr '\0' x >noise.txt # rows that are bad
tar rf b.tar noise.txt
how="-q --shard-samples 40 --resize short:64 --max-bad 50%"

# until_done NAME DIR COMMAND...: runs the command until it ends by itself, killing it at random moments.
total=0
until_done() {
    local name=$1 longest_ms=$2
    shift 2
    local times=$((RANDOM % 4))
    while :; do
        "$@" >/dev/null 2>err.txt &
        local pid=$!
        if [ $times -gt 0 ]; then
            local ms=$((RANDOM * 32768 + RANDOM))
            ms=$((ms % longest_ms))
            sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
            kill -KILL $pid 2>/dev/null
            times=$((times - 1))
        fi
        wait $pid 2>/dev/null
        local got=$?
        if [ $got -eq 137 ]; then
            total=$((total + 1))
            continue
        fi
        [ $got -eq 0 ] || fail "$name: exit code $got: $(cat err.txt)"
        return
    done
}

took_ms() { # of a command
    local from to
    from=$(date +%s%N)
    "$@" >/dev/null 2>err.txt || fail "$*: $(cat err.txt)"
    to=$(date +%s%N)
    echo $(((to - from) / 1000000 + 1))
}

pack_ms=$(took_ms "$BIN/ccpack" $how -o good a.tar b.tar)
"$BIN/ccpack" $how -o old a.tar || exit 1
cp -r old grown
append_ms=$(took_ms "$BIN/ccpack" $how --append -o grown b.tar)
for k in 1 2 3; do
    "$BIN/ccpack" $how --part $k/3 -o part-$k a.tar b.tar || exit 1
done
merge_ms=$(took_ms "$BIN/ccpack" merge -q -o merged part-1 part-2 part-3)
echo "undisturbed: pack $pack_ms ms, append $append_ms ms, merge $merge_ms ms"

rounds=0
while [ $total -lt "$kills" ]; do
    rm -rf out out-grown out-merged
    until_done pack $pack_ms "$BIN/ccpack" $how --jobs $((RANDOM % 4 + 1)) --resume -o out a.tar b.tar
    diff -r good out || fail "pack: other bytes"
    cp -r old out-grown
    until_done append $append_ms "$BIN/ccpack" $how --append --resume -o out-grown b.tar
    diff -r grown out-grown || fail "append: other bytes"
    until_done merge $merge_ms "$BIN/ccpack" merge -q -o out-merged part-3 part-1 part-2
    diff -r merged out-merged || fail "merge: other bytes"
    rounds=$((rounds + 1))
done
echo "$total kills in $rounds rounds, the bytes are the same"
