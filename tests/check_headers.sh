#!/bin/bash
# Every public header must compile alone, as C11 and as C++17, and label its defaults.
# Usage: check_headers.sh CC CXX (SRC: root of the tree)
set -eu
cc=${1:-cc}
cxx=${2:-c++}
root=${SRC:-$(cd "$(dirname "$0")/.." && pwd)}
cd "$root"
flags="-fsyntax-only -I. -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wundef -Werror"
bad=0
count=0
while read -r header; do
    count=$((count + 1))
    for how in "$cc -x c -std=c11 -Wstrict-prototypes" "$cxx -x c++ -std=c++17"; do
        # Twice: the guard is tested too.
        if ! printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
            $how $flags - 2>&1; then
            echo "$header: does not compile alone with: $how"
            bad=1
        fi
    done
done < <(find formats augment net pack loader kernels train bindings tools -name '*.h' ! -name '*_internal.h' |
    sort)
if git ls-files '*.h' | xargs grep -nE '; (NULL|false|true|-?[0-9][0-9.]*) \*/$' | grep -v default; then
    echo "a default without a label: write '; default X */'"
    bad=1
fi
echo "$count headers checked"
exit "$bad"
