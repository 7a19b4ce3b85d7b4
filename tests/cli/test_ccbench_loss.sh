# ccbench loss: its keys, the same value by tiles and from the whole matrix, and refusals.
# not under sanitizers: it computes; the losses have unit tests
. "$SRC/tests/support/cli.sh"
loss() { # loss NAME OPTION...
    expect 0 "$BIN/ccbench" loss "$@" --batch 300 --dim 16 --threads 1 --steps 1 --json
}

loss nuclr --loss-tile 128
lines out.txt 1
for key in loss batch dim tile step_s step_cpu_s products_cpu_s ratio peak_bytes value; do
    has out.txt "\"$key\":"
done
has out.txt '"tile":128,'
tiles=$(sed 's/.*"value":\([^,}]*\).*/\1/' out.txt)
loss nuclr --loss-tile 0
whole=$(sed 's/.*"value":\([^,}]*\).*/\1/' out.txt)
awk "BEGIN { exit !($tiles - $whole < 1e-5 && $whole - $tiles < 1e-5 && $whole != 0) }" || fail "tiles $tiles, whole $whole"
loss siglip --loss-tile 0

expect 0 "$BIN/ccbench" loss clip --batch-size 64 --dim 8 --threads 1
has out.txt 'products_cpu_s: '
expect_message 64 "no loss .nothing" "$BIN/ccbench" loss nothing
expect_message 64 "at most 32768" "$BIN/ccbench" loss clip --batch-size 32769 --dim 1 --loss-tile 0
expect_message 69 "whole matrix.*--loss-tile 0" "$BIN/ccbench" loss siglip --batch-size 64
expect_message 69 "ccbench step" "$BIN/ccbench" loss emc2 --batch-size 64
expect 64 "$BIN/ccbench" loss
