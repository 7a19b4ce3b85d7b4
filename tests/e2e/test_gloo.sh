#!/bin/bash
# ccstream-train without MPI: ranks with the variables of torchrun end in the bytes of one process and of mpirun's ranks,
# resume, name a lost rank, and are one launch at a time.
. "$SRC/tests/support/cli.sh"
. "$SRC/tests/support/gloo.sh"
"$TESTBIN/make_scenes" train 48 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
scene_words words.txt
"$BIN/ccpack" tokenizer -q data --tokenizer words.txt
small_model model.json
options="--data data --model model.json --tokenizer words.txt --batch-size 24 --micro-batch 2 --lr 0.0002 --tau 0.05
    --zeta-freeze-epochs 0 --seed 7 --threads 1 --loader-threads 1"
train="$last $BIN/ccstream-train"

tiny="--image-tower tiny --text-tower tiny --image-size 8 --stem small --max-tokens 8" # with batch norm
tiny="${options/--model model.json --tokenizer words.txt/$tiny}"
$train -q $tiny --epochs 2 --out one
gloo 2 $train $tiny --epochs 2 --steps 2 --out runs/parts 2>2.txt || fail "2 ranks: $(cat 2.txt)"
gloo 4 $train --resume runs/parts 2>4.txt || fail "4 ranks: $(cat 4.txt)"
cmp one/last runs/parts/last || fail "a run of 2 ranks that 4 resumed ends in other bytes than one"
grep -q "4 ranks, 4 on this host" 4.txt || fail "$(cat 4.txt)"
[ "$(ls -A runs/parts/ranks | tr '\n' ' ')" = "0.json 1.json 2.json 3.json " ] || fail "left: $(ls -A runs/parts/ranks)"
# The other runs are of a small model. 8 ranks, of 2 pairs each.
$train -q $options --epochs 2 --out small
eight="${options/--batch-size 24/--batch-size 16} --epochs 1"
$train -q $eight --out one8
gloo 8 $train -q $eight --out g8
cmp one8/last g8/last || fail "8 ranks end in other bytes than one"

# A machine without MPI: nothing looks for it.
mkdir without-mpi
cp "$BIN/ccstream-train" "$BIN/libccstream_gloo.so" without-mpi
bare="$last $PWD/without-mpi/ccstream-train"
export LD_DEBUG=libs LD_DEBUG_OUTPUT=$PWD/opened
gloo 2 $bare -q $options --epochs 2 --steps 2 --out bare || fail "without MPI: $?"
gloo 4 $bare -q --resume bare || fail "resuming without MPI: $?"
unset LD_DEBUG LD_DEBUG_OUTPUT
cmp small/last bare/last || fail "without MPI ranks end in other bytes"
grep -q libgloo opened.* || fail "no Gloo: $(ls opened.*)"
grep libmpi opened.* && fail "MPI is looked for"

gloo 3 $train -q $options --epochs 2 --out g3
if command -v mpirun >/dev/null && [ -e "$BIN/libccstream_mpi.so" ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpi="mpirun --oversubscribe --bind-to none -n 3"
    $mpi $train -q $options --epochs 2 --out m3 </dev/null
    cmp g3/last m3/last || fail "3 ranks over Gloo end in other bytes than over MPI"
    $mpi $train -q $options --epochs 2 --out mg3 --transport gloo </dev/null
    cmp g3/last mg3/last || fail "mpirun's ranks over Gloo end in other bytes"
    ${mpi% 3} 8 $train -q $eight --out m8 </dev/null
    cmp one8/last m8/last || fail "8 ranks over MPI end in other bytes than one"
fi
# without_mpi COMMAND...: as on a machine without MPI's packages: its programs and libraries, and the module for it, are empty.
without_mpi() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare -rm bash -c 'for file in $(ldconfig -p | sed -n "s/.*=> //p" | grep -E "/(libmpi|libopen-|liboshmem|libpmix|libprrte)") \
            "$0/libccstream_mpi.so" $(command -v mpirun mpiexec orterun orted prte); do
            [ ! -e "$file" ] || mount --bind /dev/null "$file" || exit 1
        done
        if mpirun --version 2>/dev/null; then echo "mpirun is there"; exit 1; fi
        exec "$@"' "$BIN" "$@"
}
torchrun=$(command -v torchrun "${CCSTREAM_PEERS:-/nowhere}/bin/torchrun" | head -n 1)
if unshare -rm true 2>unshare.txt; then
    export -f gloo
    # shellcheck disable=SC2016
    without_mpi bash -c 'gloo 2 "$@"' - $train -q $options --epochs 2 --steps 2 --out hidden || fail "with MPI hidden: $?"
    # shellcheck disable=SC2016
    without_mpi bash -c 'gloo 4 "$@"' - $train -q --resume hidden || fail "resuming with MPI hidden: $?"
    cmp small/last hidden/last || fail "with MPI hidden ranks end in other bytes"
    if [ -n "$torchrun" ]; then
        without_mpi "$torchrun" --no-python --nproc-per-node 3 "$BIN/ccstream-train" -q $options --epochs 2 --steps 2 --out torchrun </dev/null
        without_mpi "$torchrun" --no-python --nproc-per-node 3 "$BIN/ccstream-train" -q --resume torchrun </dev/null
        cmp "$([ -d m3 ] && echo m3 || echo g3)/last" torchrun/last || fail "torchrun's ranks, with MPI hidden, end in other bytes"
    fi
elif [ -n "$torchrun" ]; then
    "$torchrun" --no-python --nproc-per-node 2 "$BIN/ccstream-train" -q $options --epochs 2 --out torchrun </dev/null
    cmp small/last torchrun/last || fail "torchrun's ranks end in other bytes"
fi

# A failure of all ranks is printed once, and leaves no folder.
code=0
gloo 2 $train $options --batch-size 25 --out none 2>err.txt || code=$?
[ $code = 64 ] || fail "a batch that ranks do not divide: $code, $(cat err.txt)"
[ "$(grep -c 'the nearest that they divide' err.txt)" = 1 ] || fail "$(cat err.txt)"
[ ! -e none ] || fail "left: $(find none)"
expect 64 env RANK=0 WORLD_SIZE=2 MASTER_ADDR=h "$BIN/ccstream-train" $options --dry-run
has err.txt "give --out RUN or --resume RUN"
expect 64 "$BIN/ccstream-train" $options --out none --transport gloo
has err.txt "--transport gloo needs a launcher"

# A rank is killed: the others name it, and the run resumes. Meanwhile a second launch is refused.
gloo 3 $train $options --epochs 500 --checkpoint-every 1 --out killed 2>killed.txt &
job=$!
until [ -s killed/last ] && [ "$(grep -l '"pid":' killed/ranks/[012].json 2>/dev/null | wc -l)" = 3 ]; do
    kill -0 $job || fail "the job ends: $(cat killed.txt)"
    sleep 0.05
done
pid_of() { grep -o '"pid":[0-9]*' "$1" | cut -d: -f2; }
victim=$(pid_of killed/ranks/1.json)
others="$(pid_of killed/ranks/0.json) $(pid_of killed/ranks/2.json)"
kill -STOP "$victim" $others # the second launch alone computes
code=0
gloo 2 $train --resume killed 2>second.txt || code=$?
kill -KILL "$victim"
kill -CONT $others
[ $code != 0 ] || fail "a second launch trains the same run"
grep -q "killed" second.txt || fail "the second launch: $(cat second.txt)"
wait $job && fail "a job that lost a rank ends with 0"
for rank in 0 2; do
    grep -q "rank $rank ends: rank 1 (host .*, pid $victim) is gone" killed.txt || fail "rank $rank does not name it: $(cat killed.txt)"
done
saved=$(readlink killed/last | tr -dc 0-9)
gloo 2 $train -q --resume killed --steps $((saved + 1))
[ "$(readlink killed/last)" = "checkpoints/step-$((saved + 1)).safetensors" ] || fail "a run that lost a rank does not resume"

# Rank 0 is lost after the last step, while the others wait for its end: its summary fills a pipe that nobody reads.
mkfifo full
exec 9<>full
timeout 1 cat /dev/zero >&9 || true
gloo 3 $train $options --epochs 1 --json --out late >&9 2>late.txt &
job=$!
until [ "$(grep -l '"phase":"end"' late/ranks/[12].json 2>/dev/null | wc -l)" = 2 ]; do
    kill -0 $job || fail "the job ends: $(cat late.txt)"
    sleep 0.05
done
victim=$(pid_of late/ranks/0.json)
kill -KILL "$victim"
wait $job && fail "a job that lost rank 0 at its end ends with 0"
for rank in 1 2; do
    grep -q "rank $rank ends: rank 0 (host .*, pid $victim) is gone" late.txt || fail "rank $rank does not name it: $(cat late.txt)"
done
exec 9>&-

# A rank that cannot connect says why, also where rank 0 does not know.
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 $train -q $options --out few --rank-timeout 4 </dev/null 2>few0.txt &
first=$!
code=0
(
    exec </dev/null 2>few1.txt
    export RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
    ulimit -n 5
    exec "$BIN/ccstream-train" -q $options --out few --rank-timeout 4
) || code=$?
wait $first && fail "a launch that lost a rank ends with 0"
[ $code != 0 ] || fail "5 files are enough"
[ -s few1.txt ] || fail "exit code $code without a word"
