#!/bin/bash
# CLIP's tokenizer and byte-level BPE give the ids of open_clip and of Hugging Face's library: tokens.py.
#   tokens.sh [--captions N] [--random N]
# BIN: the programs. CCSTREAM_PEERS: a Python environment with what tokens.py names. About six minutes.
python=${CCSTREAM_PEERS:-}/bin/python
"$python" -c 'import ftfy, regex, tokenizers, importlib.util as i; assert i.find_spec("open_clip")' 2>/dev/null || {
    echo "skipped: CCSTREAM_PEERS names no environment with open_clip_torch, ftfy, regex and tokenizers"
    exit 77
}
[ -d "${CCSTREAM_TEST_DATA:-}/pairs" ] || { echo "skipped: CCSTREAM_TEST_DATA is not set"; exit 77; }
exec "$python" "$(dirname "$0")/tokens.py" "$BIN/../lib/libccstream.so" "$CCSTREAM_TEST_DATA" "$@"
