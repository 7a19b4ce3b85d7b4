#!/bin/bash
# A trained model of open_clip scores the same in clip-benchmark and in ccstream-eval suite: compare_suite.py.
#   clip_benchmark.sh [MODEL SETS]    an open_clip folder and sets of yours; without, small ones that it makes
# BIN: the programs. CCSTREAM_PEERS: a Python environment with clip_benchmark, open_clip_torch, webdataset, numpy<2.4. About two minutes.
python=${CCSTREAM_PEERS:-}/bin/python
"$python" -c 'import numpy, open_clip, webdataset, clip_benchmark.cli; assert [*map(int, numpy.__version__.split(".")[:2])] < [2, 4]' \
    2>/dev/null || {
    echo "skipped: CCSTREAM_PEERS names no environment with clip_benchmark, open_clip_torch, webdataset and a NumPy before 2.4"
    exit 77
}
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# = 2 ]; then
    model=$1 sets=$2
else
    "$python" "$here/../support/clip_sets.py" "$work"
    mv "$work"/more/* "$work/sets/"
    cat >"$work/tiny.json" <<'END'
{"embed_dim": 64,
 "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8},
 "text_cfg": {"context_length": 24, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 2}}
END
    "$BIN/ccpack" -q -o "$work/train" "$work/train.tar"
    "$BIN/ccstream-train" -q --model "$work/tiny.json" --data "$work/train" --out "$work/run" --loss clip --epochs 30 --batch-size 32 \
        --lr 1e-3 --warmup-steps 10 --no-clean --seed 1
    "$BIN/ccstream-export" -q "$work/run" --format open_clip -o "$work/model"
    model=$work/model sets=$work/sets
fi
OMP_NUM_THREADS=2 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false exec "$python" "$here/compare_suite.py" "$BIN" "$model" "$sets" "$work/out"
