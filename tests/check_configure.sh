#!/bin/bash
# The tree configures without a preset, as `cmake -S . -B build`: with what CMake picks by itself, which
# is Makefiles and, where there is a CUDA toolkit, the CUDA module.
#
# Usage: check_configure.sh (CMAKE, SRC as in CTest)
set -eu
: "${SRC:=$(cd "$(dirname "$0")/.." && pwd)}" "${CMAKE:=cmake}"
if ! command -v make >/dev/null; then
    echo "skipped: make is not installed"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CMAKE_GENERATOR CMAKE_BUILD_TYPE
"$CMAKE" -S "$SRC" -B "$work/build" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log"
    exit 1
}
