#!/bin/bash
# The numbers of the loader: bench_loader.sh DIR [ROUNDS]
#
# Loader against its limit on one thread and on two; both engines on cached data and, with
# O_DIRECT, on uncached data; the wait of a consumer that takes 80 % of the limit; the first batch. Wants an idle machine:
# the processor's time, cpu_ratio, is the one column that neighbours disturb little. Of ROUNDS (3) the middle one by ratio
# is printed. BIN names the folder of ccbench.
set -eu

dir=$1
rounds=${2:-3}
bin=${BIN:-build/release/bin}

# run ARGS...: a line of the middle round; leaves its limit in $limit
run() {
    for _ in $(seq "$rounds"); do
        "$bin/ccbench" loader "$dir" "$@" --json
    done | python3 -c '
import json, sys
rounds = sorted((json.loads(line) for line in sys.stdin), key=lambda r: r["ratio"])
r = rounds[len(rounds) // 2]
read = r["stages"]["read"]
print("%-52s %7.0f %7.0f %6.3f %6.3f %8.2f %% %7.3f s %6.0f MiB %5d" % (
    sys.argv[1], r["pairs_per_s"], r["limit_pairs_per_s"], r["ratio"], r["limit_cpu_s"] / r["cpu_s"],
    100 * r["stall_fraction"], r["open_s"] + r["first_batch_s"], r["peak_rss_bytes"] / 2**20, read["bytes_per_s"] / 1e6))
print(r["limit_pairs_per_s"], file=sys.stderr)
' "$*" 2>limit.$$
    limit=$(cat limit.$$)
    rm limit.$$
}

printf '%-52s %7s %7s %6s %6s %10s %9s %10s %5s\n' args pairs/s limit ratio cpu stalled first memory MB/s
for args in "--threads 1 --io-engine io_uring" "--threads 2 --io-engine io_uring" "--threads 2 --io-engine pread" \
    "--threads 2 --io-engine io_uring --augment paper" "--threads 2 --io-engine io_uring --augment simclr" \
    "--threads 2 --io-engine io_uring --direct" "--threads 2 --io-engine pread --direct" "--threads 2 --io-engine io_uring --order block:64"; do
    run $args --epochs 6
done

# A consumer at 80 % of the limit: 128 pairs in so many milliseconds.
run --threads 2 --io-engine io_uring --epochs 6 >/dev/null
ms=$(python3 -c "print('%.2f' % (128 * 1000 / (0.8 * $limit)))")
for prefetch in 2 3 6; do
    run --threads 2 --io-engine io_uring --steps 200 --prefetch "$prefetch" --consumer-ms "$ms"
done
