#!/bin/bash
# What programs rely on is recorded in abi.txt and does not change; the header compiles alone in C11 and
# C++17 without a warning.
# Usage: test_abi.sh LIBRARY CC CXX
. "$SRC/tests/support/cli.sh"
cc=$2
cxx=$3
c=$SRC/bindings/c

"$c/print-abi" "$cc" >now.txt
diff "$c/abi.txt" now.txt || fail "ccstream.h is not what abi.txt records. An addition: give new functions
a new version in ccstream.map and run bindings/c/print-abi >bindings/c/abi.txt. A change or removal: not
without a new soname"

# changed SED...: a header with this change is noticed.
changed() {
    mkdir -p changed
    sed "$@" "$c/ccstream.h" >changed/ccstream.h
    cmp -s changed/ccstream.h "$c/ccstream.h" && fail "no such line in ccstream.h: $*"
    expect 0 "$c/print-abi" "$cc" changed/ccstream.h
    cmp -s out.txt now.txt && fail "not noticed: $*"
    true
}
changed 's/uint32_t width_px, height_px;/uint32_t height_px, width_px;/'
changed 's/int32_t label; /int64_t label; /'
changed 's/CCS_IMAGE_GIF = 4/CCS_IMAGE_GIF = 5/'
changed 's/uint32_t label);/int32_t label);/'
changed 's/^CCS_API uint32_t ccs_tokenizer_vocabulary.*//'
changed 's/^CCS_API uint32_t ccs_tokenizer_vocabulary.*/&\nCCS_API int32_t ccs_more(void);/'
has out.txt "(not in ccstream.map) int32_t ccs_more(void)"
sed 's/uint32_t reserved;  .*//' "$c/ccstream.h" >changed/ccstream.h
expect 1 "$c/print-abi" "$cc" changed/ccstream.h
has err.txt "struct ccs_dataset_info ends with padding"

mkdir alone
cp "$c/ccstream.h" alone/
printf '#include "ccstream.h"\n#include "ccstream.h"\n' >alone/a.c
flags="-Wall -Wextra -pedantic -Werror -fsyntax-only"
$cc -std=c11 -Wstrict-prototypes -Wundef $flags alone/a.c || fail "C11"
$cxx -x c++ -std=c++17 -Wundef $flags alone/a.c || fail "C++17"
