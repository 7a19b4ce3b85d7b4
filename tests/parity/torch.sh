#!/bin/bash
# The Python package with torch and its relatives: tests/python/test_torch_*.py and the examples.
# BIN, SRC: programs and tree. CCSTREAM_PEERS: a Python environment with torch, and where they are to be tested open_clip_torch,
# pandas, timm, transformers, lightning, accelerate, torchdata, pyarrow and webdataset. About five minutes.
python=${CCSTREAM_PEERS:-}/bin/python
"$python" -c 'import torch' 2>/dev/null || {
    echo "skipped: CCSTREAM_PEERS names no environment with torch"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$BIN/../python TESTBIN=$BIN/../tests/bin SRC BIN OMP_NUM_THREADS=1
for test in "$SRC"/tests/python/test_torch_*.py "$SRC"/tests/python/test_examples.py; do
    echo "$test"
    mkdir "$work/d" && cd "$work/d" && "$python" "$test" || exit 1
    cd / && rm -rf "$work/d"
done
