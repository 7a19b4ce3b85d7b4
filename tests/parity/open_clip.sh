#!/bin/bash
# Models of open_clip with random weights are open_clip's: models.py.
#   open_clip.sh [NAME...]       of models.py; all small ones, and seven in full size without
# BIN: the programs. CCSTREAM_PEERS: a Python environment with open_clip_torch, torch, sentencepiece and transformers. Some minutes, and 8 GB.
python=${CCSTREAM_PEERS:-}/bin/python
"$python" -c 'import torch, open_clip, safetensors, sentencepiece, transformers' 2>/dev/null || {
    echo "skipped: CCSTREAM_PEERS names no environment with torch, open_clip_torch, sentencepiece and transformers"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$(dirname "$0")/models.py" "$BIN" "$work" "$@"
