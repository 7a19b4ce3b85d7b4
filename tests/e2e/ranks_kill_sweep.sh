#!/bin/bash
# by hand
# Loses one rank of 2, 3 or 4 in every phase of a training run: killed (SIGKILL), stopped (SIGSTOP), ended by a second
# SIGTERM, or on a disk that does not answer any more: to that rank (disk), to all but its heartbeat (files); and at
# random moments on a full disk. gdb, attached to the rank, holds it where the phase begins until it is lost. Each time
# the job must end with a failure, within 35 s of the timeout, and the other ranks name the lost one: one that is
# stopped, or whose disk hangs, within the timeout and 5 s. Then the run is resumed, with another number of ranks where
# the bits do not depend on it, until it ends: the bytes must be those of an undisturbed run.
#
#     BIN=build/release/bin TESTBIN=build/release/tests/bin [HOWS="stop kill"] [PHASES="load end"] [TIMEOUT=10]
#         [LAUNCHER=gloo] tests/e2e/ranks_kill_sweep.sh [LOSSES] [SEED]
#
# LAUNCHER: mpirun, or gloo: processes with torchrun's variables, and SIGTERM and 20 s later SIGKILL to all when one fails.
# LOSSES: how many at least, default 100: half an hour on two cores, release build. HOWS: of kill, stop, twice, disk,
# files and full, default all. PHASES: of load, forward, loss, backward, optimizer, save, evaluate, end, default all. TIMEOUT: of the
# ranks in seconds, default 5; gdb needs more of it where others use the machine.
set -u
BIN=$(realpath "${BIN:?folder of ccstream-train}")
TESTBIN=$(realpath "${TESTBIN:?folder of make_scenes}")
losses=${1:-100}
timeout=${TIMEOUT:-5}
ulimit -c 0
RANDOM=${2:-$$}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
folder=$(pwd -P)
exec 3>quiet.txt # what nobody reads, unless the sweep fails
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none

fail() {
    echo "FAIL: $*"
    [ ! -e err.txt ] || cat err.txt
    grep "exit code" quiet.txt | tail -n 4
    exit 1
}

"$TESTBIN/make_scenes" train 96 3 32 train.tar || exit 1
"$BIN/ccpack" -q -o data train.tar || exit 1
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null || exit 1
options="--data data --image-tower resnet10t --text-tower tiny --image-size 16 --max-tokens 12 --batch-size 24
    --epochs 4 --lr 0.001 --tau 0.05 --seed 7 --threads 1 --checkpoint-every 2 --val data --rank-timeout $timeout --io-engine pread"

ranks_of_gloo() { # ranks_of_gloo WORLD COMMAND...
    local world=$1 processes=() rank code=0
    shift
    for ((rank = 0; rank < world; rank++)); do
        RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$@" </dev/null &
        processes+=($!)
    done
    for ((rank = 0; rank < world && code == 0; rank++)); do
        wait -n || code=$?
    done
    [ $code != 0 ] || return 0
    sleep 0.5
    kill -TERM "${processes[@]}" 2>&3
    for ((rank = 0; rank < 200; rank++)); do
        kill -0 "${processes[@]}" 2>&3 || break
        sleep 0.1
    done
    kill -KILL "${processes[@]}" 2>&3
    for rank in "${!processes[@]}"; do
        wait "${processes[rank]}"
        echo "rank $rank: exit code $?" >&3
    done
    return $code
}

job() { # job WORLD KILOBYTES ARGUMENT...: files of at most so many kilobytes; 0: any
    local world=$1 limit=$2
    shift 2
    local start="exec env mpirun --oversubscribe --bind-to none -n"
    [ "${LAUNCHER:-mpirun}" != gloo ] || start=ranks_of_gloo
    export HANG_UNDER="$folder" OMP_WAIT_POLICY=passive LOSES="${loses:-}"
    # shellcheck disable=SC2016 # expanded by the inner shell
    $start "$world" bash -c \
        'trap "" XFSZ; [ $0 = 0 ] || ulimit -f $0
        if [ "${RANK:-${OMPI_COMM_WORLD_RANK:-}}" = "$LOSES" ]; then
            XDG_CACHE_HOME=$HANG_UNDER setsid gdb -batch -nx -iex "set index-cache enabled on" -x lose.gdb -p $$ >gdb.txt 2>&1 &
            until ! grep -q "^TracerPid:.0$" /proc/$$/status; do sleep 0.02; done
        fi
        export LD_PRELOAD=$1
        shift
        exec "$@"' "$limit" "$TESTBIN/hang_disk.so" "$BIN/ccstream-train" -q "$@" >out.txt 2>err.txt
}

# lose_in PHASE TIMES HOW RANK: the commands for gdb
lose_in() {
    local number=1 name
    for name in load forward loss backward optimizer save evaluate end; do
        [ "$name" = "$1" ] && break
        number=$((number + 1))
    done
    local where="*comm_at if \$edx == $number" after=finish lost
    if [ "$1" = end ]; then
        where="*comm_close if ((struct comm *)\$rdi)->watched.world > 1"
        after='watch -l ((struct comm *)$rdi)->watched.phase
continue'
    fi
    # shellcheck disable=SC2016 # expanded by the shell that gdb starts
    case $3 in
    kill) lost='kill -KILL $pid' ;;
    stop) lost='kill -STOP $pid' ;;
    disk | files) lost="touch hang-$3.$4" ;;
    twice) lost='{ sleep 0.05; kill -TERM $pid; sleep 0.02; kill -TERM $pid; } &' ;; # once gdb has left
    esac
    cat >lose.gdb <<GDB
set pagination off
handle all nostop noprint pass
catch exec
continue
delete
break $where
ignore 2 $2
continue
$after
python
import gdb, subprocess
inferior = gdb.selected_inferior()
if inferior.pid and inferior.threads():
    subprocess.call(["bash", "-c", "pid=%d; echo \$pid >hit.tmp && mv hit.tmp hit; %s" % (inferior.pid, """$lost""")])
end
detach
GDB
}
now_ms() {
    echo $(($(date +%s%N) / 1000000))
}
start=$(now_ms)
# A class is a number of ranks and a micro-batch: 1, 2 and 4 ranks give the bits of class 2.
options2="$options --micro-batch 6"
options3="$options --micro-batch 8"
(job 2 0 $options2 --out whole2) || fail "an undisturbed run of 2"
took=$(($(now_ms) - start))
(job 3 0 $options3 --out whole3) || fail "an undisturbed run of 3"
checkpoint_kb=$(($(stat -Lc %s whole2/last) / 1024))

# lose WORLD HOW PHASE ARGUMENT...: a job in RUN that loses a rank, unless it ends before
total=0
worst=0
worst_stop=0
worst_named=0
lose() {
    local world=$1 how=$2 phase=$3 limit=0 loses="" lost="" began
    shift 3
    rm -f hit
    if [ "$how" = full ]; then
        limit=$((checkpoint_kb / 2))
    else
        loses=$((RANDOM % world)) lost=$loses
        case $phase in
        evaluate) lose_in "$phase" $((RANDOM % 3)) "$how" "$lost" ;;
        end) lose_in "$phase" 0 "$how" "$lost" ;;
        *) lose_in "$phase" $((RANDOM % 6)) "$how" "$lost" ;;
        esac
    fi
    job "$world" "$limit" "$@" &
    local job=$! pids=""
    while kill -0 "$job" 2>&3 && ! [ -e hit ] && [ "$how" != full ]; do
        pids=$(pgrep -P "$job" | xargs)
        sleep 0.02
    done
    began=$(now_ms)
    local code=0 lasted slow=0
    case $how in stop | disk | files) slow=1 ;; esac
    if [ "$slow" = 1 ] && [ -e hit ]; then
        while kill -0 "$job" 2>&3 && ! grep -q "ends: .*rank $lost (host" err.txt; do
            sleep 0.05
        done
        lasted=$(($(now_ms) - began))
        [ "$lasted" -le "$worst_named" ] || worst_named=$lasted
        [ "$lasted" -le $((timeout * 1000 + 5000)) ] || fail "$how in $phase: named after $lasted ms"
    fi
    wait "$job" || code=$?
    rm -f hang-*
    lasted=$(($(now_ms) - began))
    for pid in $pids; do # mpirun may end before the last of them, which has 18 s after its line
        for _ in $(seq 180); do
            [ -n "$(cat "/proc/$pid/cmdline" 2>&3 | tr -d '\0')" ] || continue 2
            sleep 0.1
        done
        fail "$how: process $pid is left"
    done
    [ "$code" != 0 ] && { [ "$how" = full ] || [ -e hit ]; } || return 0 # it ended before
    [ "$how" = full ] || [ "$lasted" -lt $(((${LAUNCHER:+20} + 30 + timeout) * 1000)) ] || fail "$how: the job ended after $lasted ms"
    [ "$how" = full ] || [ "$slow" = 1 ] || [ "$lasted" -le "$worst" ] || worst=$lasted
    [ "$slow" = 0 ] || [ "$lasted" -le "$worst_stop" ] || worst_stop=$lasted
    if [ "$how" = full ]; then
        grep -q "File too large" err.txt || fail "full: exit code $code"
    elif ! grep -q '"state":"ended"' "run/ranks/$lost.json"; then # one that has ended is not lost
        for rank in $(seq 0 $((world - 1))); do
            [ "$rank" = "$lost" ] || grep -q "rank $rank ends: .*rank $lost (host" err.txt ||
                fail "$how: rank $rank did not name rank $lost of $world, exit code $code: $(cat run/ranks/*.json)"
        done
    fi
    total=$((total + 1))
    [ "$how" != full ] || phase=any
    echo "$how of rank ${lost:-?} of $world in $phase: ended after $lasted ms" | tee -a sweep.txt
    return 1
}
read -ra hows <<<"${HOWS:-kill stop disk files twice full}"
read -ra phases <<<"${PHASES:-load forward loss backward optimizer save evaluate end}"
runs=0 tried=0
while [ "$total" -lt "$losses" ]; do
    rm -rf run
    class=$((2 + RANDOM % 2)) # the bits are those of whole2 or whole3
    runs=$((runs + 1))
    fresh="$options2 --out run"
    [ $class = 2 ] || fresh="$options3 --out run"
    for _ in 1 2 3; do
        world=3
        [ $class = 3 ] || world=$((2 + 2 * (RANDOM % 2)))
        how=${hows[tried / ${#phases[@]} % ${#hows[@]}]}
        phase=${phases[tried % ${#phases[@]}]}
        tried=$((tried + 1))
        if [ -e run/config.json ]; then
            lose $world "$how" "$phase" --resume run --rank-timeout $timeout && break
        else
            rm -rf run
            lose $world "$how" "$phase" $fresh && break
        fi
    done
    world=3
    [ $class = 3 ] || world=$((1 << RANDOM % 3))
    if [ -e run/config.json ]; then
        (job $world 0 --resume run) || fail "resuming with $world ranks"
    else
        rm -rf run
        (job $world 0 $fresh) || fail "starting again with $world ranks"
    fi
    cmp "whole$class/last" run/last || fail "the bytes of run $runs differ from those of $class ranks, seed of this sweep: ${2:-$$}"
done
echo "$total losses in $runs runs: every one was named and resumed to the same bytes; the longest end took $worst ms," \
    "$worst_stop ms of a stopped or hanging rank, which was named after $worst_named ms at most"
cut -d: -f1 sweep.txt | sed 's/of rank . of/,/' | sort | uniq -c
