#!/bin/bash
# tests/gpu/run without a GPU: one line with the reason, exit code 77, no files; its refusals. On the emulated GPU: a
# device that does not open, an operator that fails, and what compute-sanitizer is asked for.
. "$SRC/tests/support/cli.sh"

expect 0 "$SRC/tests/gpu/run" --help
has out.txt "memcheck and synccheck"
expect 64 "$SRC/tests/gpu/run" --unknown
has err.txt "--unknown"

# The bytes that tests/gpu/roofline.py counts are those that an H200 moved, to a tenth.
if command -v python3 >/dev/null; then
    expect 0 python3 "$SRC/tests/gpu/roofline.py" --measured "$SRC/tests/bench/results/gpu-2026-11-28/kernels.txt"
    lines out.txt 12
    expect 0 python3 "$SRC/tests/gpu/roofline.py" --image-tower ViT-B-16 --text-tower clip --gpu A100
    has out.txt "attention_bwd"
fi

expect 77 "$SRC/tests/gpu/run" --build nowhere --out results
has out.txt "nowhere has no programs"

if "$BIN/ccstream-train" --list-devices | grep -q '^cuda:0 '; then
    echo "there is a GPU: run tests/gpu/run itself"
    exit 0
fi
expect 77 "$SRC/tests/gpu/run" --build "$BIN/.." --out results
lines out.txt 1
has out.txt "gpu/run: "
[ ! -e results ] || fail "results were made without a GPU"

# The rest drives the CUDA module, which builds with sanitizers do not have.
[ -e "$BIN/libccstream_cuda.so" ] || exit 0

# A GPU that our programs do not list is a failure.
mkdir stand-ins
printf '#!/bin/sh\necho "GPU 0: a GPU (UUID: none)"\n' >stand-ins/nvidia-smi
chmod +x stand-ins/nvidia-smi
PATH=$PWD/stand-ins:$PATH expect 1 "$SRC/tests/gpu/run" --build "$BIN/.." --out results
has out.txt "FAIL: this GPU is not listed"

# tools/quickstart and tools/check build for the GPUs that nvidia-smi lists, and without one for those of the default or one.
# shellcheck disable=SC2016 # expanded when it runs
{
    echo 'cmake() { echo "cmake $*"; }'
    sed -n '/^build() {/,/^}/p' "$SRC/tools/quickstart"
    echo 'check() {'
    sed -n '/local cuda=""/,/native$/p' "$SRC/tools/check"
    echo 'echo "check $cuda"; }; targets=""; build; check'
} >chooses.sh
PATH=$PWD/stand-ins:$PATH expect 0 bash chooses.sh
has out.txt "cmake --preset release -DCCS_CUDA_ARCHITECTURES=native"
has out.txt "check -DCCS_CUDA_ARCHITECTURES=native"
printf '#!/bin/sh\nexit 9\n' >stand-ins/nvidia-smi
PATH=$PWD/stand-ins:$PATH expect 0 bash chooses.sh
hasnt out.txt "native"
rm -r stand-ins/nvidia-smi

[ -n "${EMULATED:-}" ] || exit 0
export LD_LIBRARY_PATH=$EMULATED CCSTREAM_CUDA_MODULE=$EMULATED/libccstream_cuda.so
run() { # run CODE OPTION...
    code=$1
    shift
    expect "$code" "$SRC/tests/gpu/run" --build "$BIN/.." --out results --tiny "$@"
}

# The device is listed but does not open: nothing is skipped.
CCSTREAM_EMULATED_FAULT=open run 1 --only device,ops,guards
has results/run.txt "device: versions"
hasnt results/run.txt " s  skip"
grep "ops: cuda_agrees_with_the_reference " results/run.txt | grep -q "FAIL" || fail "ops passed"
grep "guards: cuda_refuses_wrong" results/run.txt | grep -q "FAIL" || fail "refusals passed"

# Launches fail from the 400th of a process on: after each such row a new process takes the others, up to the last.
CCSTREAM_EMULATED_FAULT=400 run 1 --only ops
has results/run.log "the current row was 4 conv_bn_bwd f32"
has results/run.log "a new process continues from row 5"
last=$(sed -n 's/.*the current row was \([0-9]*\) .*/\1/p' results/run.log | sort -n | tail -n 1)
[ "$last" -gt 20 ] || fail "the rows after $last were not run"

# compute-sanitizer gets our own kernels by name.
cat >stand-ins/compute-sanitizer <<'END'
#!/bin/sh
[ "$1" != --help ] || { echo "  --kernel-name arg"; exit 0; }
echo "asked for $*"
END
chmod +x stand-ins/compute-sanitizer
PATH=$PWD/stand-ins:$PATH run 0 --only sanitizer
has results/run.log "asked for --tool memcheck"
has results/run.log "asked for --tool synccheck"
grep -q -e "--kernel-name kne=_ZL*4fillI" results/run.log || fail "fill is not among the kernels"
hasnt results/run.log "cudnn"
# Its time is its own: what the other parts had does not count, and with 0 it is not run.
PATH=$PWD/stand-ins:$PATH run 1 --only device,sanitizer --seconds 1
grep -q "^device: .* not run: no time is left" results/run.txt || fail "device: $(cat results/run.txt)"
has results/run.txt "2 passed, 0 skipped, 1 failed or not run"
PATH=$PWD/stand-ins:$PATH run 0 --only sanitizer --sanitize 0
has results/run.txt "0 passed"

# The bundle unpacks without xz, and its programs find all libraries but the system's and CUDA's in it.
git -C "$SRC" rev-parse HEAD >/dev/null 2>&1 || exit 0
printf '#!/bin/sh\nexit 1\n' >stand-ins/xz
printf '#!/bin/sh\nexec %s -1\n' "$(command -v gzip)" >stand-ins/gzip
chmod +x stand-ins/xz stand-ins/gzip
unset LD_LIBRARY_PATH
PATH=$PWD/stand-ins:$PATH expect 0 "$SRC/tests/gpu/bundle" --built "$BIN/.." "$PWD/bundle.tar.gz"
rm stand-ins/gzip
mkdir unpacked
PATH=$PWD/stand-ins:$PATH tar -xzf bundle.tar.gz -C unpacked
for program in unpacked/build/cuda/bin/cc* unpacked/build/cuda/tests/bin/test_*; do
    LD_LIBRARY_PATH=$PWD/unpacked/build/cuda/lib ldd "$program" | grep '=>' | grep -v "=> $PWD/unpacked/" |
        grep -vE '^.(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s)\.so|lib(cu|nv|nccl))' >missing.txt &&
        fail "$program: $(cat missing.txt)"
done
expect 0 env LD_LIBRARY_PATH="$PWD/unpacked/build/cuda/lib" unpacked/build/cuda/bin/ccstream-train --version
