#!/bin/bash
# by hand: how fast ccpack is, beside the limits of this machine on the same bytes.
#
# Usage: BIN=build/release/bin TESTBIN=build/release/tests/bin tests/bench/bench_pack.sh WORK FILE.tar...
#   WORK   a folder on the disk to measure; needs four times the tars' size, made larger than 1 GB
#          by taking them several times
#   JOBS   threads of everything (default: all cores)    ROUNDS  of each (default 3: the median counts)
#
# Pass-through: ccpack with and without the check of every image, beside `cp` and `tar | zstd -1`,
# all with their fsync, page cache warm. Check: beside one bare decode pass. Resize: beside the bare
# decode, resize and encode of the same images (bench_recode).
set -eu

: "${BIN:?folder of ccpack}" "${TESTBIN:?folder of bench_recode}"
work=$1
shift
jobs=${JOBS:-$(nproc)}
rounds=${ROUNDS:-3}
short=${SHORT:-112}
mkdir -p "$work/in"
trap 'rm -rf "$work/in" "$work/out"' EXIT

# The tars again and again, under names of their own, until there is 1 GB. So most keys of a shard
# come more than once, as with tars that number their samples from 0 each.
size=0 n=0
while [ "$size" -lt 1000000000 ]; do
    for tar in "$@"; do
        cp "$tar" "$work/in/$(printf '%06d' "$n").tar"
        n=$((n + 1))
        size=$((size + $(stat -c %s "$tar")))
    done
done
sync
cat "$work"/in/*.tar >/dev/null
echo "$n tars, $((size / 1000000)) MB, $jobs threads, median of $rounds rounds"

# measure NAME COMMAND: the median of the rounds' seconds, into the variable NAME.
measure() {
    local name=$1 i
    shift
    for i in $(seq "$rounds"); do
        rm -rf "$work/out"
        mkdir "$work/out"
        local begin=$EPOCHREALTIME
        "$@"
        echo "$begin $EPOCHREALTIME" | awk '{ printf "%.3f\n", $2 - $1 }'
    done | sort -n | awk -v name="$name" '{ s[NR] = $1 } END { print name "=" s[int((NR + 1) / 2)] }' >"$work/median"
    . "$work/median"
    rm "$work/median"
}

copy() {
    cp --reflink=never "$work"/in/*.tar "$work/out/"
    sync "$work"/out/*.tar "$work/out"
}
compress() {
    (cd "$work/in" && tar -c ./*.tar) | zstd -q -1 "-T$jobs" -o "$work/out/all.tar.zst"
    sync "$work/out/all.tar.zst" "$work/out"
}
pack() {
    "$BIN/ccpack" -q "-j$jobs" "$@" -o "$work/out/d" "$work"/in/*.tar
}
decode() {
    "$TESTBIN/bench_recode" 0 90 "$jobs" "$work"/in/*.tar | awk '{ print $1 }'
}
recode() {
    "$TESTBIN/bench_recode" "$short" 90 "$jobs" "$work"/in/*.tar | awk '{ print $1 }'
}

# median NAME COMMAND: the same for a command that prints its own seconds.
median() {
    local name=$1 i
    shift
    eval "$name=$(for i in $(seq "$rounds"); do "$@"; done | sort -n | awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)] }')"
}

measure cp copy
measure zstd compress
measure unchecked pack --no-check
measure plain pack --no-check --container tar
measure checked pack
measure resized pack --resize "short:$short"
median decode decode
median recode recode

row() { # NAME SECONDS LIMIT_NAME LIMIT_SECONDS
    awk -v size="$size" -v name="$1" -v s="$2" -v limit="$3" -v l="$4" 'BEGIN {
        printf "%-34s %8.2f s %8.0f MB/s", name, s, size / s / 1e6
        if (limit != "") printf "   %.2f of %s", l / s, limit
        printf "\n"
    }'
}
row "cp --reflink=never, fsync" "$cp" "" 1
row "tar | zstd -1 -T$jobs, fsync" "$zstd" "cp" "$cp"
row "ccpack --no-check" "$unchecked" "cp" "$cp"
row "ccpack --no-check --container tar" "$plain" "cp" "$cp"
row "bare decode pass" "$decode" "" 1
row "ccpack" "$checked" "decode pass" "$decode"
row "bare decode, resize, encode" "$recode" "" 1
row "ccpack --resize short:$short" "$resized" "bare recode" "$recode"
