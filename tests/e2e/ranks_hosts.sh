#!/bin/bash
# by hand
# Four ranks on two "hosts" of this machine: two network namespaces with host names of their own and a link between
# them, over which mpirun starts its daemon and MPI speaks TCP. The file system is shared, and so are the heartbeats.
# The bytes must be those of one process, also if the link is down for a while; signals reach both hosts; and the
# ranks end within the documented time when a rank is killed, a host is lost, or the link stays down.
#
#     BIN=build/release/bin TESTBIN=build/release/tests/bin tests/e2e/ranks_hosts.sh      as root; two minutes
set -eu
BIN=$(realpath "${BIN:?folder of ccstream-train}")
TESTBIN=$(realpath "${TESTBIN:?folder of make_scenes}")
folder=$(mktemp -d)
a=ccs-a-$$
b=ccs-b-$$
cleanup() {
    local host pid
    for host in $a $b; do
        for pid in $(ip netns pids $host 2>/dev/null); do
            kill -KILL "$pid" 2>/dev/null || true
        done
        ip netns del $host 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap cleanup EXIT
cd "$folder"

fail() {
    echo "FAIL: $*"
    exit 1
}

ip netns add $a
ip netns add $b
ip -n $a link add ccs type veth peer name ccs netns $b
ip -n $a addr add 10.78.0.1/24 dev ccs
ip -n $b addr add 10.78.0.2/24 dev ccs
for host in $a $b; do
    ip -n $host link set lo up
    ip -n $host link set ccs up
    ip netns exec $host bash -c 'echo 5 >/proc/sys/net/ipv4/tcp_retries2' # mpirun gives up after seconds, not minutes
done
link() { # link up|down
    ip -n $a link set ccs "$1"
}
cat >agent <<AGENT
#!/bin/bash
# agent ADDRESS COMMAND...: in place of ssh
shift
exec ip netns exec $b unshare -u bash -c 'hostname $b; eval "\$0"' "\$*"
AGENT
chmod +x agent

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
job() { # job ARGUMENT...: by mpirun on host a
    # shellcheck disable=SC2016 # expanded by the inner shell
    exec ip netns exec $a unshare -u bash -c 'hostname $0; exec "$@"' $a \
        mpirun --mca btl tcp,self --mca btl_tcp_if_include 10.78.0.0/24 --mca oob_tcp_if_include 10.78.0.0/24 \
        --mca plm_rsh_agent "$folder/agent" --host 10.78.0.1:2,10.78.0.2:2 --bind-to none -n 4 \
        "$BIN/ccstream-train" -q "$@" </dev/null
}
"$TESTBIN/make_scenes" train 480 3 32 train.tar
"$BIN/ccpack" -q -o data train.tar
"$BIN/ccpack" tokenizer data --vocab-size 100 >/dev/null
options="--data data --image-tower resnet10t --text-tower tiny --image-size 8 --stem small --max-tokens 8 --batch-size 24
    --micro-batch 2 --lr 0.0002 --tau 0.05 --zeta-freeze-epochs 0 --seed 7 --threads 1 --loader-threads 1"
timeout=10

start() { # start RUN OPTION...: in the background, until its first step
    rm -rf run
    (job $options --rank-timeout $timeout --out run "$@") 2>err.txt &
    launcher=$!
    for _ in $(seq 300); do
        [ -s run/metrics.jsonl ] && break
        sleep 0.1
    done
    [ -s run/metrics.jsonl ] || fail "does not start: $(cat err.txt)"
    pids=$(for rank in 0 1 2 3; do pid_of $rank; done)
}
pid_of() { # pid_of RANK
    grep -o '"pid":[0-9]*' "run/ranks/$1.json" | cut -d: -f2
}
ends() { # ends WHAT SECONDS: all ranks, and mpirun 30 s later at most
    local what=$1 allowed=$2 began=$SECONDS left pid
    while :; do
        left=0
        for pid in $pids; do
            [ ! -d "/proc/$pid" ] || left=$((left + 1))
        done
        [ $left -gt 0 ] || break
        [ $((SECONDS - began)) -le "$allowed" ] || fail "$what: $left ranks are left after $allowed s: $(cat err.txt)"
        sleep 0.2
    done
    echo "$what: all ranks ended after $((SECONDS - began)) s"
    while kill -0 $launcher 2>/dev/null && [ $((SECONDS - began)) -le $((allowed + 30)) ]; do
        sleep 0.2
    done
    ! kill -0 $launcher 2>/dev/null || fail "$what: mpirun is left after $((allowed + 30)) s"
    echo "    mpirun after $((SECONDS - began)) s"
    code=0
    wait $launcher || code=$?
}
named() { # named WHAT PATTERN: what every rank that is left says
    cat run/ranks/*.json | grep -q "$2" || fail "$1: $(cat err.txt run/ranks/*.json)"
    [ $code != 0 ] || fail "$1: exit code 0"
}

"$BIN/ccstream-train" -q $options --epochs 4 --out one
start --epochs 4
link down
sleep 4
link up
ends "the link down for 4 s of a timeout of $timeout s" 60
[ $code = 0 ] || fail "exit code $code: $(cat err.txt)"
cmp one/last run/last || fail "two hosts end in other bytes than one process"

start --epochs 5000
kill -USR1 $launcher
ends "SIGUSR1 to mpirun" 20
[ $code = 0 ] && [ -e run/last ] || fail "SIGUSR1: exit code $code: $(cat err.txt)"

start --epochs 5000
kill -KILL "$(pid_of 3)"
ends "a rank of the other host is killed" 38
named "a rank of the other host is killed" "rank 3 (host $b, pid [0-9]*) is gone"

start --epochs 5000
for pid in $(ip netns pids $b); do
    kill -STOP "$pid" 2>/dev/null || true
done
sleep $((timeout + 20))
for pid in $(pid_of 0) $(pid_of 1); do
    [ ! -d "/proc/$pid" ] || fail "a frozen host: process $pid is left: $(cat err.txt)"
done
for pid in $(ip netns pids $b); do
    kill -KILL "$pid" 2>/dev/null || true
done
ends "a frozen host" 1
named "a frozen host" "rank [23] (host $b, pid [0-9]*) has not answered for 1[0-9] s"

# Within the timeout and 18 s, because no rank saves in the first 20 steps.
start --epochs 5000
link down
ends "the link stays down" $((timeout + 18))
named "the link stays down" "network between the hosts, such as ccs-\|rank [0-3] (host ccs-"
grep -ho '"reason":"[^"]*"' run/ranks/*.json | sort | uniq -c
echo "0 failed"
