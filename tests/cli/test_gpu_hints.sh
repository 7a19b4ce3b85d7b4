# What a GPU that cannot be used is said to need: each error that a first use ends with has its remedy. On the emulated runtime.
. "$SRC/tests/support/cli.sh"
[ -n "${EMULATED:-}" ] || { echo "skipped: no emulated GPU in this build"; exit 77; }
export LD_LIBRARY_PATH=$EMULATED CCSTREAM_CUDA_MODULE=$EMULATED/libccstream_cuda.so
hint() { # hint TEXT [VARIABLE=VALUE...]: in the list of devices, and where the device is asked for
    text=$1
    shift
    expect 0 env "$@" "$BIN/ccstream-train" --list-devices
    has out.txt "$text"
    hasnt out.txt "cuda:0 "
    expect 69 env "$@" "$BIN/ccbench" step --device cuda --image-tower resnet10t --image-size 8 --batch-size 2 --steps 1
    has err.txt "$text"
}
hint "start nvidia-fabricmanager" CCSTREAM_EMULATED_FAULT=count:802
hint "libcuda.so.1 does not match the kernel's driver: restart the machine" CCSTREAM_EMULATED_FAULT=count:803
hint "the NVIDIA driver is for CUDA 12.4, this build requires 13.0 or later; update the driver" CCSTREAM_EMULATED_FAULT=count:35
hint "nvidia-smi -L lists GPUs and their MIG instances (MIG-...)" CCSTREAM_EMULATED_FAULT=count:100
hint "CUDA_VISIBLE_DEVICES is ''; unset it" CUDA_VISIBLE_DEVICES=
hint "CUDA_VISIBLE_DEVICES is 'GPU-00000000-1111'; unset it, or set it to GPUs listed by nvidia-smi -L: a number, GPU-... or MIG-..." CUDA_VISIBLE_DEVICES=GPU-00000000-1111
for visible in 0 GPU-8a12 MIG-77; do
    expect 0 env CUDA_VISIBLE_DEVICES=$visible "$BIN/ccstream-train" --list-devices
    has out.txt "cuda:0 "
done
