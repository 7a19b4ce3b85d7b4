# ccbench ops: its keys, every op of the table, and refusals.
# not under sanitizers: it computes; the kernels and losses have unit tests
set -eu
. "$SRC/tests/support/cli.sh"
ops() { # ops OPTION...
    expect 0 "$BIN/ccbench" ops --threads 1 --seconds 1ms "$@"
}

ops --only l2_normalize --json
lines out.txt 1
for key in device threads type autotune matmul_gflops copy_gb_per_s ops median_ms best_ms gflops gb_per_s of_matmul \
    of_copy; do
    has out.txt "\"$key\":"
done
has out.txt '"op":"l2_normalize_bwd"'
hasnt out.txt '"op":"linear"'
ops --only segment
has out.txt 'matmul_gflops: '
has out.txt 'segment_mean_bwd'
[ "$(grep -c segment_mean out.txt)" = 2 ]

# Both sets of sizes have every op of OPS_LIST; a gradient is measured with its op.
sed -n '/ shapes\[\] = {$/,/^};/p' "$SRC/tools/ccbench/ops.c" | tr -s ' \n' ' ' >small.txt
sed -n '/ large_shapes\[\] = {$/,/^};/p' "$SRC/tools/ccbench/ops.c" | tr -s ' \n' ' ' >large.txt
for op in $(sed -n 's/^ *X(\([a-z0-9_]*\)).*/\1/p' "$SRC/kernels/ops.h"); do
    has small.txt "{\"${op%_bwd}\","
    has large.txt "{\"${op%_bwd}\","
done
# auto means small on a CPU
ops --only normalize_u8
has out.txt '64 px'
hasnt out.txt '224 px'

code=0
"$BIN/ccbench" ops --threads 1 --seconds 1ms --type bf16 --only scatter >out.txt 2>err.txt || code=$?
[ $code = 0 ] || { [ $code = 69 ] && has err.txt bf16; } || fail "bf16: exit code $code"

expect 64 "$BIN/ccbench" ops --only nonsense
has err.txt "no op has a name"
expect 64 "$BIN/ccbench" ops --type f16
expect 69 "$BIN/ccbench" ops --device abacus
has err.txt cpu-ref
