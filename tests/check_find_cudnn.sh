#!/bin/bash
# cmake/FindcuDNN.cmake over every layout that cuDNN comes in, as made-up trees: what it finds, of which
# version, and what it says where header and library do not belong together. With CUDNN_WHEELS naming a
# site-packages folder that holds NVIDIA's real wheel, that too.
#
# Usage: check_find_cudnn.sh (CMAKE, SRC as in CTest)
set -eu
: "${SRC:=$(cd "$(dirname "$0")/.." && pwd)}" "${CMAKE:=cmake}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

header() { # header FOLDER VERSION
    mkdir -p "$1"
    printf '#define CUDNN_MAJOR %s\n#define CUDNN_MINOR %s\n#define CUDNN_PATCHLEVEL %s\n' ${2//./ } >"$1/cudnn_version.h"
}
library() { # library FOLDER VERSION [dev]: the real file, its soname, and with dev the linker's name
    mkdir -p "$1"
    : >"$1/libcudnn.so.$2"
    [ -e "$1/libcudnn.so.${2%%.*}" ] || ln -s "libcudnn.so.$2" "$1/libcudnn.so.${2%%.*}"
    [ "${3:-}" != dev ] || ln -s "libcudnn.so.${2%%.*}" "$1/libcudnn.so"
}

mkdir project
cat >project/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.25)
project(find NONE)
list(APPEND CMAKE_MODULE_PATH "$SRC/cmake")
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF) # what this machine has must not be found
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)
set_property(GLOBAL PROPERTY FIND_LIBRARY_USE_LIB64_PATHS ON)
foreach(id IN ITEMS INCLUDE_DIRS LIBRARY_DIR LIBRARY_ROOT) # as FindCUDAToolkit leaves them
  set(CUDAToolkit_\${id} "\${TOOLKIT_\${id}}")
endforeach()
find_package(cuDNN 9.8 QUIET)
if(cuDNN_FOUND)
  get_target_property(at cuDNN::cudnn IMPORTED_LOCATION)
  message(STATUS "found \${cuDNN_VERSION} \${cuDNN_INCLUDE_DIR} \${at}")
else()
  message(STATUS "not found \${cuDNN_VERSION} mismatch=\${cuDNN_MISMATCH}")
endif()
END
failed=0
count=0
find_cudnn() { # find_cudnn EXPECTED OPTION...: the line it prints, paths relative to here
    local expected=$1 got
    shift
    count=$((count + 1))
    rm -rf build
    got=$("$CMAKE" -S project -B build -DCMAKE_MAKE_PROGRAM=true "$@" 2>&1 |
        sed -n "s|$work/||g; s/^-- \(found\|not found\)/\1/p")
    [ "$got" = "$expected" ] || { echo "$*: '$got', expected '$expected'"; failed=1; }
}
unset CUDNN_ROOT

header wheels/nvidia/cudnn/include 9.19.0
library wheels/nvidia/cudnn/lib 9 # a wheel's only file is libcudnn.so.9 itself
wheel="found 9.19.0 wheels/nvidia/cudnn/include wheels/nvidia/cudnn/lib/libcudnn.so.9"
find_cudnn "$wheel" -DCUDNN_ROOT="$work/wheels"
find_cudnn "$wheel" -DCUDNN_ROOT="$work/wheels/nvidia/cudnn"
CUDNN_ROOT=$work/wheels find_cudnn "$wheel"

header apt/include/x86_64-linux-gnu 9.10.2
library apt/lib/x86_64-linux-gnu 9.10.2 dev
find_cudnn "found 9.10.2 apt/include/x86_64-linux-gnu apt/lib/x86_64-linux-gnu/libcudnn.so" -DCMAKE_PREFIX_PATH="$work/apt"

header system/include 9.8.0
library system/lib64 9.8.0
find_cudnn "found 9.8.0 system/include system/lib64/libcudnn.so.9" -DCUDNN_ROOT="$work/system"

header toolkit/targets/x86_64-linux/include 9.19.1
library toolkit/targets/x86_64-linux/lib 9.19.1 dev
toolkit="-DTOOLKIT_INCLUDE_DIRS=$work/toolkit/targets/x86_64-linux/include
    -DTOOLKIT_LIBRARY_DIR=$work/toolkit/targets/x86_64-linux/lib"
find_cudnn "found 9.19.1 toolkit/targets/x86_64-linux/include toolkit/targets/x86_64-linux/lib/libcudnn.so" $toolkit
# what was named comes before what lies in the toolkit
find_cudnn "$wheel" $toolkit -DCUDNN_ROOT="$work/wheels"

header old/include 9.7.1
library old/lib 9.7.1
find_cudnn "not found 9.7.1 mismatch=" -DCUDNN_ROOT="$work/old"
header mixed/include 8.9.7
library mixed/lib 9.19.0
find_cudnn "not found 8.9.7 mismatch=mixed/lib/libcudnn.so.9.19.0 is not of version 8.9.7, which mixed/include is for" \
    -DCUDNN_ROOT="$work/mixed"
find_cudnn "not found  mismatch="

if [ -n "${CUDNN_WHEELS:-}" ]; then
    folder=$CUDNN_WHEELS/nvidia/cudnn
    version=$(sed -n 's/^#define CUDNN_\(MAJOR\|MINOR\|PATCHLEVEL\) *\([0-9]*\)$/\2/p' \
        "$folder/include/cudnn_version.h" | paste -sd.)
    find_cudnn "found $version $folder/include $folder/lib/libcudnn.so.9" -DCUDNN_ROOT="$CUDNN_WHEELS"
fi
[ $failed = 0 ] && echo "$count layouts"
exit $failed
