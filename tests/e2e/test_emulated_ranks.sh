#!/bin/bash
# Two ranks, each on an emulated GPU of its own, with tests/support/nccl instead of NCCL:
# step 1 has the loss and the state of one rank, later steps agree to within rounding; steps that
# each rank records by the shapes of its own captions, as late as CUDA allows, give the bytes of
# steps op by op; a lost rank ends the job although the others wait on the device for it.
. "$SRC/tests/support/cli.sh"

[ -n "${EMULATED:-}" ] || {
    echo "skipped: the emulated GPU is not built (no fibers under sanitizers)"
    exit 77
}
. "$SRC/tests/support/mpirun.sh"
export LD_LIBRARY_PATH=$EMULATED CCSTREAM_CUDA_MODULE=$EMULATED/libccstream_cuda.so
export CCSTREAM_EMULATED_GPUS=4

# One caption is shorter. It is rank 1's in step 1, so rank 0 replays step 3 and rank 1 does not.
"$TESTBIN/make_scenes" train 12 3 32 train.tar
mkdir files
tar -xf train.tar -C files
caption=$(find files -name '*.txt' | sort | sed -n 3p)
cut -d' ' -f1 "$caption" >new.txt
mv new.txt "$caption"
tar -C files -cf train.tar --sort=name .
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null

options=(--data data --augment crop --tau 0.1 --image-tower tiny --text-tower tiny
    --image-size 8 --stem small --max-tokens 8 --batch-size 4 --micro-batch 1 --threads 1
    --loader-threads 1 --device cuda --precision f32 --loss sogclr)
ranks() { # ranks W COMMAND...
    world=$1
    shift
    timeout 600 mpirun --oversubscribe --bind-to none -n "$world" "$@"
}
numbers() { # of every step, but times and memory
    grep '"loss"' "$1/metrics.jsonl" |
        sed 's/"pairs_per_s":[^,]*,"stall_fraction":[^,]*,//; s/,"slowest_rank":.*//; s/,"peak_rss_bytes":.*//'
}
first() { # what a step reports before its gradient
    numbers "$1" | sed -n '1s/,"lr":.*//p'
}
near() { # near RUN RUN: losses to within 1e-5
    paste <(grep -o '"global_loss":[^,]*' "$1/metrics.jsonl" | cut -d: -f2) \
        <(grep -o '"global_loss":[^,]*' "$2/metrics.jsonl" | cut -d: -f2) |
        awk 'NF == 2 { d = $1 - $2; n++; if (d < -1e-5 || d > 1e-5) bad = 1 } END { exit bad || n < 2 }' ||
        fail "$2 is not near $1"
}

CCSTREAM_EMULATED=now expect 0 $last "$BIN/ccstream-train" "${options[@]}" --steps 2 --cuda-graph off --out one
CCSTREAM_EMULATED=now expect 0 ranks 2 $last "$BIN/ccstream-train" "${options[@]}" --steps 3 \
    --cuda-graph off --out eager
has err.txt "the loss runs on the device"
CCSTREAM_EMULATED=late expect 0 ranks 2 $last "$BIN/ccstream-train" "${options[@]}" --steps 3 \
    --state-memory pinned --out recorded
has err.txt " graphs of "
cmp eager/last recorded/last || fail "recorded steps are not those op by op"
[ "$(numbers eager)" = "$(numbers recorded)" ] || fail "the metrics of recorded are not those of eager"
[ "$(first one)" = "$(first eager)" ] || fail "step 1 of eager: $(first one) $(first eager)"
near one eager
CCSTREAM_EMULATED=late expect 0 ranks 2 $last "$BIN/ccstream-train" "${options[@]}" --steps 2 --loss-tile 1 --out tiles
near one tiles # each rank computed its own rows and columns

# Two ranks, of which both see one GPU and it is the same; all ranks on one.
CCSTREAM_EMULATED_GPUS=1 expect 69 ranks 2 $last "$BIN/ccstream-train" "${options[@]}" --out none
has err.txt "ranks 0 and 1 have the same GPU; start at most one rank for each GPU of a host"
expect 69 ranks 2 $last "$BIN/ccstream-train" "${options[@]}" --device cuda:0 --out none
has err.txt "--device cuda:0 gives all 2 ranks of this host one GPU"

# Ranks that each see one GPU, their own: each is number 0 of what the rank sees.
# shellcheck disable=SC2016 # expanded by the ranks' shells
CCSTREAM_EMULATED=now expect 0 ranks 2 bash -c 'export CCSTREAM_EMULATED_GPUS=1 CCSTREAM_EMULATED_FIRST_GPU=$OMPI_COMM_WORLD_RANK; exec "$@"' - $last "$BIN/ccstream-train" "${options[@]}" --steps 3 --cuda-graph off --out bound
cmp eager/last bound/last || fail "ranks that see one GPU each end in other bytes than those that see all"

# Rank 1 is killed; rank 0 waits for it on the device.
code=0
CCSTREAM_EMULATED=late ranks 2 $last "$BIN/ccstream-train" "${options[@]}" --epochs 1000 --out lost \
    >out.txt 2>err.txt &
job=$!
until [ "$(field lost/ranks/1.json step 2>/dev/null || echo 0)" -ge 1 ] 2>/dev/null; do
    kill -0 "$job" || fail "the job ends before it has lost a rank: $(cat err.txt)"
    sleep 0.1
done
kill -9 "$(field lost/ranks/1.json pid)"
wait "$job" || code=$?
[ "$code" != 0 ] && [ "$code" != 124 ] || fail "a job that lost a rank ended with $code"
has err.txt "rank 1 (host"
