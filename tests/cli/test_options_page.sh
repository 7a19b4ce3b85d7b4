#!/bin/bash
# tools/OPTIONS.md is what --help of the programs prints.
# not under sanitizers: tables alone, which the release build tests
set -eu

"$SRC/tools/print-options" "$BIN" >options.md
if ! diff "$SRC/tools/OPTIONS.md" options.md; then
    echo "tools/OPTIONS.md is not what --help prints; make it again: tools/print-options BIN >tools/OPTIONS.md"
    exit 1
fi
[ "$(grep -c '^## ' options.md)" -ge 25 ] || { echo "a program is missing"; exit 1; }
