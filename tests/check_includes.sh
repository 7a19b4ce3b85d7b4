#!/bin/bash
# Greps every #include of the tree against the table of who may include whom.
#
#   check_includes.sh              checks the tree (SRC, or the folder above this file)
#   check_includes.sh --self-test  plants violations in a copy and demands that each is found
#
# The rule runs from the bottom up: formats/base knows only libc; pack and loader do not see each
# other; kernels knows tensors, not files; train sees no third-party header but MPI's and Gloo's, in train/comm/mpi and gloo.
# A public header never includes a third-party one, and folder/x_internal.h is for its own folder and the tests.
# Under tools, cli and inspect are the libraries of the programs, cli below inspect; no program includes another.
set -eu

check_tree() {
    # grep finds the lines, awk judges them: FILE:LINE:#include ...
    grep -rnE '^[[:space:]]*#[[:space:]]*include' \
        --include='*.c' --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' \
        formats augment net pack loader kernels train bindings tools tests 2>/dev/null | awk '
    BEGIN {
        # Project folders each folder may include (itself always).
        ours["formats/base"] = ""
        ours["formats"]      = "formats/base"
        ours["augment"]      = "formats/base"
        ours["net"]          = "formats/base"
        ours["pack"]         = "formats formats/base augment net"
        ours["loader"]       = "formats formats/base augment net"
        ours["kernels"]      = "formats/base"
        ours["train"]        = "loader kernels formats formats/base"
        ours["bindings"]     = "train loader kernels pack net augment formats formats/base"
        ours["tools"]        = "train loader kernels pack net augment formats formats/base"
        ours["tests"]        = "tools bindings train loader kernels pack net augment formats formats/base"

        # Libraries, by header, and the folders whose .c files may include each.
        lib("^xxhash\\.h$", "xxHash", "formats/base")
        lib("^zstd(_errors)?\\.h$", "zstd", "formats")
        lib("^jansson\\.h$", "jansson", "formats")
        lib("^(jpeglib|jerror|jmorecfg|jconfig|turbojpeg)\\.h$", "libjpeg", "formats")
        lib("^png\\.h$", "libpng", "formats")
        lib("^webp/", "libwebp", "formats")
        lib("^gif_lib\\.h$", "giflib", "formats")
        lib("^sentencepiece", "SentencePiece", "formats")
        lib("^archive(_entry)?\\.h$", "libarchive", "pack")
        lib("^zlib\\.h$", "zlib", "pack formats")
        lib("^curl/", "libcurl", "net")
        lib("^liburing", "liburing", "loader")
        lib("^omp\\.h$", "OpenMP", "kernels")
        lib("^(oneapi/dnnl/|dnnl)", "oneDNN", "kernels/cpu")
        lib("^(cuda|cublas|cudnn|nvrtc|nvtx)", "CUDA", "kernels/cuda")
        lib("^nccl", "NCCL", "kernels/cuda")
        lib("^mpi\\.h$", "MPI", "train/comm/mpi")
        lib("^gloo/", "Gloo", "train/comm/gloo")
        lib("^Python\\.h$", "Python", "bindings/python")
        lib("^ccstream\\.h$", "libccstream", "bindings")
        lib("^cmocka\\.h$", "cmocka", "tests")

        split("assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp " \
              "netdb search signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn " \
              "string tgmath threads time uchar wchar wctype dirent dlfcn elf fcntl fnmatch ftw " \
              "getopt glob langinfo libgen link poll pthread pwd regex sched semaphore spawn strings " \
              "sysexits termios ucontext unistd malloc endian byteswap cpuid immintrin", names, " ")
        for (i in names) {
            libc[names[i] ".h"] = 1
        }
        bad = 0
    }
    function lib(pattern, name, folders) {
        lib_count++
        lib_pattern[lib_count] = pattern
        lib_name[lib_count] = name
        lib_folders[lib_count] = folders
    }
    function within(word, list, parts, n, i) {
        n = split(list, parts, " ")
        for (i = 1; i <= n; i++) {
            if (parts[i] == word) {
                return 1
            }
        }
        return 0
    }
    # Whether a folder is one of the list, or lies in one.
    function below(folder, list) {
        while (!within(folder, list) && folder ~ /\//) {
            sub(/\/[^\/]*$/, "", folder)
        }
        return within(folder, list)
    }
    function dir_of(path) {
        sub(/\/[^\/]*$/, "", path)
        return path
    }
    function folder_of(path) {
        if (path ~ /^formats\/base\//) {
            return "formats/base"
        }
        sub(/\/.*/, "", path)
        return path
    }
    function complain(why) {
        printf "%s:%s: %s\n", file, line, why
        bad = 1
    }
    function check_ours(target,    from, to) {
        from = folder_of(file)
        to = folder_of(target)
        if (from == to) {
            check_tools(part_of(file), part_of(target), target)
            return
        }
        if (!within(to, ours[from])) {
            complain(from " may not include " to ": \"" target "\"")
        } else if (target ~ /_internal\.h$/ && from != "tests") {
            complain("\"" target "\" is internal to " to)
        }
    }
    # The folder below tools: a library, or a program.
    function part_of(path,    parts) {
        split(path, parts, "/")
        return parts[1] == "tools" ? parts[2] : ""
    }
    function check_tools(from, to, target) {
        if (from == "" || from == to || to == "cli" || (to == "inspect" && from != "cli")) {
            return
        }
        complain((from == "cli" || from == "inspect" ? "tools/" from " may not include " : \
                  "a program may not include another: ") "\"" target "\"")
    }
    function check_foreign(target,    i, ok) {
        for (i = 1; i <= lib_count; i++) {
            if (target !~ lib_pattern[i]) {
                continue
            }
            ok = folder_of(file) == "tools" || folder_of(file) == "tests" ||
                 within(folder_of(file), lib_folders[i]) || below(dir_of(file), lib_folders[i])
            if (!ok) {
                complain("only " lib_folders[i] " may include " lib_name[i] ": <" target ">")
            } else if (file ~ /\.h$/ && file !~ /_internal\.h$/ && file !~ /^tests\//) {
                complain("a public header may not include " lib_name[i] ": <" target ">")
            }
            return
        }
        if (target in libc || target ~ /^(sys|linux|netinet|arpa)\// || target ~ /intrin\.h$/) {
            return
        }
        # The C++ library: in C++, and in what the .cu files compile against as C++.
        if (file ~ /\.cpp$|^tests\/support\/(cuda_emulation|ptx)\// && target ~ /^[a-z_]+$/) {
            return
        }
        complain("unknown header <" target ">: not libc, and in no row of tests/check_includes.sh")
    }
    {
        file = $0; sub(/:.*/, "", file)
        line = $0; sub(/^[^:]*:/, "", line); text = line; sub(/:.*/, "", line)
        sub(/^[^:]*:/, "", text)
        target = text
        sub(/^[^"<]*["<]/, "", target)
        sub(/[">].*$/, "", target)
        seen++
        if (target ~ /^(formats|augment|net|pack|loader|kernels|train|bindings|tools|tests)\//) {
            check_ours(target)
        } else if (text ~ /"/ && file !~ /^tests\//) {
            complain("include path is not from the root of the tree: \"" target "\"")
        } else {
            check_foreign(target)
        }
    }
    END {
        printf "%d includes checked\n", seen
        exit bad
    }'
}

# plant FILE LINE: the copy with this one line must be refused, without it accepted.
plant() {
    mkdir -p "$(dirname "$1")"
    printf '%s\n' "$2" >"$1"
    if check_tree >out.txt; then
        echo "self-test: not found: $2 in $1"
        exit 1
    fi
    if ! grep -q "^$1:1: " out.txt; then
        echo "self-test: found at the wrong place: $2 in $1"
        cat out.txt
        exit 1
    fi
    rm "$1"
}

self_test() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/check-includes.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    mkdir -p formats/base augment net pack loader kernels/cpu kernels/cuda/conv train/comm/mpi bindings/c tools/ccpack tools/inspect tests/unit
    echo '#include "formats/base/status.h"' >pack/good.c
    echo '#include <oneapi/dnnl/dnnl.h>' >kernels/cpu/good.c
    echo '#include <cudnn.h>' >kernels/cuda/conv/good.c
    echo '#include <mpi.h>' >train/comm/mpi/good.c
    echo '#include "pack/pack.h"' >bindings/c/good.c
    echo '#include "loader/x_internal.h"' >tests/unit/good.c
    echo '#include "tools/cli/cli.h"' >tools/inspect/good.c
    echo '#include "tools/inspect/x_internal.h"' >tools/ccpack/good.c
    check_tree >out.txt || { echo "self-test: a clean tree is refused"; cat out.txt; exit 1; }
    plant pack/planted.c '#include "loader/loader.h"'
    plant loader/planted.c '#include "kernels/ops.h"'
    plant kernels/planted.c '#include "formats/shard/shard.h"'
    plant formats/base/planted.h '#include "formats/shard/shard.h"'
    plant train/planted.c '#include "augment/resize.h"'
    plant train/planted.c '#include <oneapi/dnnl/dnnl.h>'
    plant kernels/planted.c '#include <oneapi/dnnl/dnnl.h>'
    plant kernels/op_cases/planted.c '#include <cudnn.h>'
    plant pack/planted.c '#include <zstd.h>'
    plant pack/planted.c '#include <curl/curl.h>'
    plant train/comm/planted.c '#include <mpi.h>'
    plant loader/planted.h '#include <liburing.h>'
    plant train/planted.c '#include "loader/ring_internal.h"'
    plant augment/planted.c '#include "resize.h"'
    plant net/planted.c '#include "formats/shard/shard.h"'
    plant train/planted.c '#include "net/retry.h"'
    plant bindings/c/planted.c '#include "tools/cli/cli.h"'
    plant loader/planted.c '#include "bindings/c/ccstream.h"'
    plant augment/planted.c '#  include <curl/curl.h>'
    plant tools/cli/planted.c '#include "tools/inspect/input.h"'
    plant tools/cli/planted.c '#include "tools/ccpack/where.h"'
    plant tools/inspect/page/planted.c '#include "tools/ccdump/verify.h"'
    plant tools/ccdump/planted.c '#include "tools/ccpack/where.h"'
    plant tools/ccstudy/planted.c '#include "tools/ccstream_eval/ccstream_eval_internal.h"'
    echo "self-test passed"
}

cd "${SRC:-$(cd "$(dirname "$0")/.." && pwd)}"
if [ "${1:-}" = "--self-test" ]; then
    self_test
else
    check_tree
fi
