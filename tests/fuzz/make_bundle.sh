#!/bin/bash
# make_bundle.sh BUILD OUT.tar.gz TARGET...: fuzz targets of a build by the preset fuzz, with their corpora and the libraries that they need, for
# another machine with Linux on x86-64 and a glibc that is not older than this one's. In it:
#   run.sh SECONDS JOBS: every target in JOBS processes at once; a line for each; inputs that failed go to $OUT
set -eu
if [ $# -lt 3 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 64
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$1 out=$2
shift 2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bundle=$dir/fuzz-bundle
mkdir -p "$bundle/lib" "$bundle/corpus"

# libcurl is opened at run time.
curl=$(ldconfig -p | sed -n 's/^\tlibcurl.so.4 .*x86-64.* => //p' | head -1)
cp -L "$curl" "$bundle/lib/libcurl.so.4"
for target; do
    cp "$build/tests/bin/fuzz_$target" "$bundle/"
    cp -r "$here/corpus/$target" "$bundle/corpus/"
    mkdir -p "$build/tests/fuzz-found/$target"
    find "$build/tests/fuzz-found/$target" -type f -exec cp -n -t "$bundle/corpus/$target" {} +
done
for file in "$curl" "$bundle"/fuzz_*; do
    ldd "$file" | sed -n 's/.* => \(\/[^ ]*\).*/\1/p'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux-x86-64)\.so' | while read -r lib; do
    cp -L "$lib" "$bundle/lib/"
done
printf '%s\n' "$@" >"$bundle/targets"
cat >"$bundle/run.sh" <<'RUN'
#!/bin/bash
# run.sh SECONDS JOBS: fuzzes every target in JOBS processes at once for SECONDS. Prints for each: executions, seconds, findings. Inputs that
# failed, with the logs of the processes that found them, are copied to $OUT (default: out). The exit status is 1 if there is any.
set -u
seconds=${1:?seconds} jobs=${2:?processes of each target}
cd "$(dirname "$0")" || exit 1
OUT=${OUT:-$PWD/out}
export LD_LIBRARY_PATH=$PWD/lib ASAN_OPTIONS=allocator_may_return_null=1
mkdir -p "$OUT" found log

# A process that found something is followed by another until the time is over.
job() {
    local target=$1 number=$2 end=$((SECONDS + seconds)) round=0
    while [ $((end - SECONDS)) -gt 0 ] && [ $round -lt 50 ]; do
        local log=log/$target-$number-$round
        "./fuzz_$target" -max_total_time=$((end - SECONDS)) -rss_limit_mb=4096 -timeout=60 -print_final_stats=1 -reload=1 \
            -artifact_prefix="$OUT/$target-$number-$round-" "found/$target" "corpus/$target" >"$log" 2>&1 || cp "$log" "$OUT/"
        round=$((round + 1))
    done
}
started=$SECONDS
while read -r target; do
    mkdir -p "found/$target"
    for ((i = 0; i < jobs; i++)); do
        job "$target" "$i" &
    done
done <targets
wait
status=0
while read -r target; do
    runs=$(cat log/"$target"-* | awk '/^stat::number_of_executed_units:/ { n += $2 } END { print n + 0 }')
    found=$(find "$OUT" -regex ".*/$target-[0-9]+-[0-9]+-.*" | wc -l)
    failed=$(find "$OUT" -regex ".*/$target-[0-9]+-[0-9]+" | wc -l)
    echo "$target: $runs executions in $jobs processes of $((SECONDS - started)) s, $found findings, $failed processes that failed"
    [ "$found$failed" = 00 ] || status=1
done <targets
exit $status
RUN
chmod +x "$bundle/run.sh"
tar -C "$dir" -czf "$out" fuzz-bundle
