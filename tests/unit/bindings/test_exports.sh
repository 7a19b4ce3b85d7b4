#!/bin/bash
# libccstream exports the functions that its header declares, under the versions of its map, and needs
# none of the libraries of the towers, of ranks, of GPUs or of archives.
# Usage: test_exports.sh LIBRARY
. "$SRC/tests/support/cli.sh"
library=$1

nm -D --defined-only --with-symbol-versions "$library" | awk '$2 == "T" { sub(/@@/, " ", $3); print $3 }' |
    sort >exported.txt
awk '/{$/ { version = $1 } /^ +ccs_[a-z0-9_]+;/ { sub(/;/, ""); print $1, version }' \
    "$SRC/bindings/c/ccstream.map" | sort >map.txt
diff map.txt exported.txt || fail "exported are not the functions in ccstream.map"
nm -D --defined-only "$library" | awk '$2 != "T" && $2 != "A"' >others.txt
lines others.txt 0

tr '\n' ' ' <"$SRC/bindings/c/ccstream.h" | grep -o 'CCS_API [^;]*;' | grep -o 'ccs_[a-z0-9_]*(' | tr -d '(' |
    sort >declared.txt
cut -d ' ' -f 1 map.txt >mapped.txt
diff declared.txt mapped.txt || fail "declared in ccstream.h are not the functions in ccstream.map"

readelf -d "$library" >dynamic.txt
has dynamic.txt "soname: [libccstream.so.0]"
ldd "$library" >needs.txt
! grep -E 'dnnl|libarchive|libgomp|libmpi|libcu(da|blas|dnn)|nccl|not found' needs.txt || fail "the library needs them"
