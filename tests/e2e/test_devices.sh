#!/bin/bash
# --device and --list-devices: refused names, the messages of auto, and cuda by name, which works or fails
# with one line that explains why and never falls back. Passes with a GPU and without.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" train 24 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
"$BIN/ccpack" tokenizer -q data --tokenizer words.txt
small_model model.json
train() { # train CODE NAME OPTION...
    code=$1
    name=$2
    shift 2
    expect "$code" "$BIN/ccstream-train" --data data --augment crop --loss clip --tau 0.1 \
        --model model.json --tokenizer words.txt --batch-size 8 --steps 1 --threads 1 --out "$name" "$@"
}

expect 0 "$BIN/ccstream-train" --list-devices
has out.txt "cpu      oneDNN"
has out.txt "cpu-ref"
has out.txt "cuda"
if grep -q '^cuda:0 ' out.txt; then
    gpu=yes
else
    gpu=no
    grep -q '^cuda  *unavailable: .' out.txt || fail "no reason: $(cat out.txt)"
fi

# Devices that do not exist, and invalid names.
for name in gpu cuda:x cuda:63; do
    train 69 none --device "$name"
    [ ! -e none ] || fail "a run was made for --device '$name'"
done
train 64 none --device ""

# cuda by name: itself or an error, never the CPU.
if [ "$gpu" = yes ]; then
    train 0 by-name --device cuda
    has err.txt "device cuda"
else
    train 69 by-name --device cuda
    lines err.txt 1
    [ ! -e by-name ] || fail "a run was made without a device"
fi

# auto: a device, and one line if it is not the first choice.
train 0 by-auto --device auto
if [ "$gpu" = yes ]; then
    has err.txt "device cuda"
    hasnt err.txt "no cuda: "
else
    has err.txt "device cpu"
    [ "$(grep -c 'no cuda: ' err.txt)" = 1 ] || fail "no reason, or more than one: $(cat err.txt)"
    # and the same numbers as cpu by name
    train 0 by-cpu --device cpu
    hasnt err.txt "no cuda: "
    cmp by-auto/last by-cpu/last || fail "auto is not the cpu"
    # and the same look at the memory
    expect_message 71 "needs .* of memory" "$BIN/ccstream-train" --data data --loss clip --image-tower tiny --text-tower tiny \
        --image-size 1024 --batch-size 2048 --device auto --out none
    [ ! -e none ] || fail "a run was made that has no memory"
fi

# Per-sample state: in host memory on the CPU by default; another place is an error that explains why, as it
# is for published code on every device.
train 64 none --state-memory device
has err.txt "--state-memory device is not possible: the device cpu computes no losses itself"
train 64 none --state-memory pinned
has err.txt "--state-memory pinned"
train 0 by-host --state-memory host
train 0 by-default
cmp by-host/last by-default/last || fail "--state-memory auto is not the host's on the CPU"
if [ "$gpu" = yes ]; then
    for place in device pinned; do
        train 0 "on-$place" --device cuda --state-memory "$place"
    done
    cmp on-device/last on-pinned/last || fail "the place of the state has a say in the numbers"
    train 64 none --device cuda --state-memory device --loss sogclr --variant code
    has err.txt "--variant code"
fi

# A module that cannot be loaded gives a message, not a crash.
echo "not a library" >broken.so
CCSTREAM_CUDA_MODULE=$PWD/broken.so expect 0 "$BIN/ccstream-train" --list-devices
grep -q '^cuda  *unavailable: .' out.txt || fail "a broken module: $(cat out.txt)"

# Options that only cuda uses are accepted on the CPU and change nothing there.
train 0 options --tf32 --autotune --nondeterministic --plan-cache plans
cmp options/metrics.jsonl /dev/null >/dev/null 2>&1 && fail "nothing was trained"
[ ! -e plans ] || fail "a CPU run wrote a plan cache"
