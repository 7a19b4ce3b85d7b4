#!/bin/bash
# The tests of Parquet with the pyarrow of a Python environment.
# BIN: the programs. CCSTREAM_PEERS: an environment with pyarrow.
python=${CCSTREAM_PEERS:-}/bin/python
"$python" -c 'import pyarrow.parquet' 2>/dev/null || { echo "skipped: CCSTREAM_PEERS names no environment with pyarrow"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCSTREAM_PYTHON=$python TESTBIN=${TESTBIN:-$BIN/../tests/bin}
for test in parquet parquet_samples; do
    mkdir "$work/$test" && cd "$work/$test"
    bash "$SRC/tests/cli/test_ccpack_$test.sh" || exit
done
