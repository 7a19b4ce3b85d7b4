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

# The commands of ccpack, whose usage lines are written by hand.
sed -nE 's/^ *\{"([a-z]+)", ".*_main\},/\1/p' "$SRC/tools/ccpack/ccpack.c" >commands.txt
[ "$(wc -l <commands.txt)" -ge 7 ] || { echo "no commands were found"; exit 1; }
while read -r command; do
    grep -q "^## ccpack $command\$" options.md || { echo "ccpack --help does not name $command"; exit 1; }
done <commands.txt
