#!/bin/bash
# The installed libccstream is found by CMake and by pkg-config, also after its folder was moved, and the
# examples built either way run.
# Usage: test_install.sh LIBRARY CC CXX
. "$SRC/tests/support/cli.sh"
cc=$2
: "${CMAKE:=cmake}"
if [ -n "${CCS_SANITIZE:-}" ]; then
    echo "skipped: programs built by hand do not have the sanitizer of this build"
    exit 77
fi
flags="-std=c11 -Wall -Wextra -pedantic -Werror"
examples=$SRC/bindings/c/examples

for component in libccstream libccstream-dev; do
    expect 0 "$CMAKE" --install "$(dirname "$BIN")" --prefix "$PWD/first" --component $component
done
(cd first && find . -type f -o -type l) | sed 's|lib/[a-z0-9_]*-linux-[a-z]*/|lib/|; s|lib64/|lib/|' | sort >files.txt
cat >expected.txt <<'END'
./include/ccstream.h
./lib/cmake/ccstream/ccstreamConfig-relwithdebinfo.cmake
./lib/cmake/ccstream/ccstreamConfig.cmake
./lib/cmake/ccstream/ccstreamConfigVersion.cmake
./lib/libccstream.so
./lib/libccstream.so.0
./lib/libccstream.so.0.1.0
./lib/pkgconfig/ccstream.pc
END
sed -i 's/-[a-z]*\.cmake/-relwithdebinfo.cmake/' files.txt
diff expected.txt files.txt || fail "other files were installed"
mv first "a folder"
prefix="$PWD/a folder"

expect 0 "$CMAKE" -S "$examples" -B built -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$flags"
expect 0 "$CMAKE" --build built
sed 's/find_package(ccstream 0.1/find_package(ccstream 0.2/; s|example}\.c|example}.c|' \
    "$examples/CMakeLists.txt" >CMakeLists.txt
expect 1 "$CMAKE" -S . -B later -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc"
has err.txt "compatible with requested version"

mv "a folder" prefix # pkg-config separates flags by spaces
PKG_CONFIG_PATH=$(dirname "$(find "$PWD/prefix" -name ccstream.pc)")
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion ccstream)" = "$(sed -n 's/^project(ccstream VERSION \([0-9.]*\) .*/\1/p' "$SRC/CMakeLists.txt")" ] ||
    fail "the version of ccstream.pc"
for example in captions epoch; do
    $cc $flags "$examples/$example.c" -o "$example" $(pkg-config --cflags --libs ccstream)
done
LD_LIBRARY_PATH=$(dirname "$(find "$PWD/prefix" -name libccstream.so)")
export LD_LIBRARY_PATH

"$TESTBIN/make_images" data 100
for run in . built; do
    expect 0 "$run/captions" data
    [ "$(wc -l <out.txt)" -gt 10 ] || fail "few captions"
    id=$(sed -n '5s/\t.*//p' out.txt)
    grep "^$id	" out.txt >of_id.txt
    expect 0 "$run/captions" data "$id"
    diff of_id.txt out.txt
    expect 1 "$run/captions" none
    has err.txt "captions: none"
    expect 0 "$run/epoch" data 16
    has out.txt " images/s"
    has out.txt "100 images, "
    expect 1 "$run/epoch" data 0
    has err.txt "batch_size is 0, expected 1 to"
done
