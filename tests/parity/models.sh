#!/bin/bash
# Models of open_clip with random weights are open_clip's: models.py.
#   models.sh [NAME...]          of open_clip's models; three small ones and ViT-S-32 without
# BIN: the programs. CCSTREAM_PEERS: a Python environment with open_clip_torch and torch. About two minutes.
python=${CCSTREAM_PEERS:-}/bin/python
"$python" -c 'import torch, open_clip, safetensors' 2>/dev/null || {
    echo "skipped: CCSTREAM_PEERS names no environment with torch and open_clip_torch"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$(dirname "$0")/models.py" "$BIN" "$work" "$@"
