#!/bin/bash
# Ranks that mpirun starts: the checks of a group over MPI, a rank that fails, and what is reported where
# launcher, module and MPI do not fit together.
set -eu
. "$SRC/tests/support/cli.sh"
. "$SRC/tests/support/mpirun.sh"
export CCSTREAM_MPI_MODULE=$BIN/libccstream_mpi.so
ranks() { # ranks WORLD ARGUMENT...
    world=$1
    shift
    mpirun --oversubscribe --bind-to none -n "$world" "$TESTBIN/one_rank" "$@"
}

# Jobs that wait for timeouts and for mpirun: all at once, and the checks of a group meanwhile.

# They lose a rank in step 5.
lose() { # lose RANK HOW
    mkdir "$2"
    code=0
    local began=$SECONDS
    timeout -k 9 600 mpirun --oversubscribe --bind-to none -n 3 \
        "$TESTBIN/one_rank" lose "$2" "$@" >"$2/out.txt" 2>"$2/err.txt" || code=$?
    echo "$code" >"$2/code"
    echo $((SECONDS - began)) >"$2/seconds"
}
lose 1 stop &
lose 2 hang &
lose 1 hang-save &
lose 1 stop-save &
lose 0 stop-open &
lose 2 stop-close &
lose 0 fail &
lose 0 end &
# mpirun kills all as soon as one is gone; after 5 s instead of 1 s, also a busy machine has named it.
OMPI_MCA_odls_base_sigkill_timeout=5 lose 2 kill &
OMPI_MCA_odls_base_sigkill_timeout=5 lose 1 exit &

# The exit code of the rank that fails is that of the job, which ends although others wait.
(
    mkdir failed && cd failed
    expect 74 timeout 600 mpirun --oversubscribe --bind-to none -n 3 "$TESTBIN/one_rank" fail 1
) &
others=$!

# One that never joins.
(
    mkdir alone && cd alone
    # shellcheck disable=SC2016 # expanded by the inner shell
    expect 75 timeout 600 mpirun --oversubscribe --bind-to none -n 2 bash -c \
        '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec sleep 1000; exec "$@"' - "$TESTBIN/one_rank" open auto 2
    has err.txt "rank 0 ends: not all ranks have joined within 2 s of its start"
) &
others="$others $!"

for world in 2 3 4; do
    expect 0 ranks "$world" check
done
[ ! -e .tmp ] || fail "a group without a folder of heartbeats left a file"
expect 0 ranks 1 open mpi
has out.txt "world 1"
expect 0 "$TESTBIN/one_rank" open mpi # without a launcher
has out.txt "world 1"
expect 0 "$TESTBIN/one_rank" open auto

# Variables of an enclosing job, which did not start this process: one rank, and a line that says so.
for job in "PMI_RANK=1 PMI_SIZE=4" "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_TASK_PID=1" "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4"; do
    expect 0 env $job "$TESTBIN/one_rank" open auto
    has out.txt "world 1"
    has err.txt "${job%%=*} is ignored: it belongs to an enclosing job"
    lines err.txt 1
done

# A launcher that MPI does not know.
expect 74 env PMI_RANK=0 PMI_SIZE=4 PMI_PORT=nowhere:1 "$TESTBIN/one_rank" open auto
has err.txt "mpiexec started 4 processes, but MPI sees 1"
has err.txt "srun --mpi=pmix"

# No module, and one of another build.
expect 69 env -u CCSTREAM_MPI_MODULE mpirun --oversubscribe --bind-to none -n 2 "$TESTBIN/one_rank" open auto
has err.txt "mpirun started 2 processes, but this build has no MPI module"
export CCSTREAM_MPI_MODULE=$TESTBIN/module_of_another_build.so
expect 69 ranks 2 open auto
has err.txt "another build"
has err.txt "0.0.1-other"

for pid in $others; do
    wait "$pid"
done

# The jobs have ended although others waited, and every other rank names the one that is lost.
wait
exec 3>/dev/null
lost() { # lost RANK HOW TEXT CODE
    for other in 0 1 2; do
        [ "$other" = "$1" ] || grep -qE "rank $other ends: rank $1 \(host [^ ]*, pid [0-9]*\) $3" "$2/err.txt" ||
            { cat "$2/err.txt"; fail "rank $other did not name rank $1: $2"; }
    done
    [ "$(cat "$2/code")" = "$4" ] || { cat "$2/err.txt"; fail "$2: exit code $(cat "$2/code"), not $4"; }
    for pid in $(sed -n 's/.*is process //p' "$2/out.txt"); do
        # A zombie's command line is empty.
        [ -z "$(cat "/proc/$pid/cmdline" 2>&3 | tr -d '\0')" ] || fail "$2: process $pid is left"
    done
}
lost 2 kill "is gone: its process ended; last seen at step [0-9]+, in " 137
lost 1 exit "is gone: its process ended; last seen at step [0-9]+, in " 1
lost 0 fail "failed at step 5, in load: disk full" 74
# What is seen first: its file does not change, or it keeps the others waiting.
lost 1 stop "(has not answered for [0-9]+ s, last seen at step [0-9]+, in .* \\(its process is stopped\\)|is in [a-z]+ at step [0-9]+, and rank [02] has waited for it)" 75
# Not after ten times the timeout of 6 s because the others save, and not only by ranks that wait for files.
lost 1 stop-save "has not answered for [0-9]+ s, last seen at step [0-9]+, in [a-z]+ \\(its process is stopped\\)" 75
lost 0 stop-open "has not answered for [0-9]+ s \\(its process is stopped\\)" 75
lost 2 stop-close "(has not answered for [0-9]+ s, last seen .* \\(its process is stopped\\)|is in [a-z]+ at step [0-9]+, and rank [01] has waited)" 75
for how in stop-save stop-open stop-close hang-save; do
    [ "$(cat $how/seconds)" -lt 50 ] || fail "$how: ended after $(cat $how/seconds) s"
done
lost 2 hang "is in load at step 5, and rank [01] has waited for it for [67] s" 75
lost 1 hang-save "is in save at step 5, and rank [02] has waited for it for [6-9] s; it does not compute" 75
[ "$(cat end/code)" = 0 ] || { cat end/err.txt; fail "a group that ended: $(cat end/code)"; }
for rank in 0 1 2; do
    has "end/ranks/$rank.json" '"state":"ended"'
done
