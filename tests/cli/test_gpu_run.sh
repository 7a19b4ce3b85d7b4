#!/bin/bash
# tests/gpu/run without a GPU: one line with the reason, exit code 77, no files; its refusals.
. "$SRC/tests/support/expect.sh"

expect 0 "$SRC/tests/gpu/run" --help
has out.txt "memcheck and racecheck"
expect 64 "$SRC/tests/gpu/run" --unknown
has err.txt "--unknown"

expect 77 "$SRC/tests/gpu/run" --build nowhere --out results
has out.txt "nowhere has no programs"

if "$BIN/ccstream-train" --list-devices | grep -q '^cuda:0 '; then
    echo "there is a GPU: run tests/gpu/run itself"
    exit 0
fi
expect 77 "$SRC/tests/gpu/run" --build "$BIN/.." --out results
lines out.txt 1
has out.txt "gpu/run: "
[ ! -e results ] || fail "results were made without a GPU"
