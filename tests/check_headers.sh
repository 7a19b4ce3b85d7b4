#!/bin/bash
# Every public header must compile alone as C11, together as C++17, and label its defaults.
# Usage: check_headers.sh CC CXX (SRC: root of the tree)
set -eu
cc=${1:-cc}
cxx=${2:-c++}
root=${SRC:-$(cd "$(dirname "$0")/.." && pwd)}
cd "$root"
flags="-fsyntax-only -I. -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wundef -Werror"
bad=0
count=0
headers=$(find formats augment net pack loader kernels train bindings tools -name '*.h' ! -name '*_internal.h' | sort)
for header in $headers; do
    count=$((count + 1))
    # Twice: the guard is tested too.
    if ! printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
        $cc -x c -std=c11 -Wstrict-prototypes $flags - 2>&1; then
        echo "$header: does not compile alone"
        bad=1
    fi
done
# What a header needs is the same in C++, so one compilation shows whether all of a folder are C++.
for folder in $(printf '%s\n' $headers | cut -d / -f 1 | sort -u); do
    if ! printf '%s\n' $headers | sed -n "s|^$folder/.*|#include \"&\"|p" | $cxx -x c++ -std=c++17 $flags - 2>&1; then
        echo "$folder: its headers do not compile as C++17"
        bad=1
    fi
done
if git ls-files '*.h' | xargs grep -nE '; (NULL|false|true|-?[0-9][0-9.]*) \*/$' | grep -v default; then
    echo "a default without a label: write '; default X */'"
    bad=1
fi
echo "$count headers checked"
exit "$bad"
