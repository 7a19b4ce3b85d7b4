#!/bin/bash
# prove_index.sh BIN TESTBIN [FAULTS [KILLS]]: by hand. Packs, indexes and loads tars of a server that fails at random until
# there were FAULTS (10,000) faults, and kills ccpack, ccpack index and ccpack fetch KILLS (100) times each at a random moment
# and resumes them. Every dataset must be that of the local tars, every epoch's batches too; nothing may take longer than two
# minutes. Prints the counts.
set -eu
SRC=$(cd "$(dirname "$0")/../.." && pwd)
BIN=$(realpath "$1") TESTBIN=$(realpath "$2") faults=${3:-10000} kills=${4:-100}
work=$(mktemp -d)
cd "$work"
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
mkdir tars
for i in 0 1 2 3; do "$TESTBIN/make_scenes" train 40 1 64 tars/$i.tar >/dev/null; done
cp -r tars local
"$BIN/ccpack" index -q local/{0..3}.tar
"$BIN/ccpack" -q -o packed --allow-duplicates local/{0..3}.tar
fingerprint() { sed -n 's/.*"fingerprint":"\([0-9a-f]*\)","*$/\1/p; s/.*"fingerprint":"\([0-9a-f]*\)",$/\1/p' "$1/dataset.json" | head -1; }
digest() { timeout 120 "$BIN/ccbench" loader "$@" --size 32 --batch-size 32 --digest --no-limit --json | sed -n 's/.*"digest":"\([^"]*\)".*/\1/p'; }
want=$(digest local)
start() { # start OPTION...
    exec 3< <(exec python3 "$SRC/tests/net/fault_server.py" tars "$@")
    server=$!
    read -r port <&3
    web=http://127.0.0.1:$port
}
stop() { kill "$server" && server=; }
count() { python3 -c "import json,urllib.request as u; print(sum(json.load(u.urlopen('$web/stats'))['faults'].values()))"; }
wrong() { echo "WRONG: $*, after ${done:-0} faults in ${rounds:-0} rounds"; exit 1; }
same() { # same DIR
    for i in 0 1 2 3; do cmp -s "$1/$i.cci" local/$i.cci || wrong "index $i of $1"; done
    [ "$(fingerprint "$1")" = "$(fingerprint local)" ] || wrong "samples of $1"
}

mix=reset_body=0.07,half=0.07,reset=0.06,empty=0.04,short_length=0.06,wrong_range=0.04,503:0=0.04,429:0=0.02,no_length=0.03
done=0 seed=0 rounds=0
while [ "$done" -lt "$faults" ]; do
    start --seed $((seed += 1)) --faults $mix
    rm -rf a b
    timeout 120 "$BIN/ccpack" -q -o a --allow-duplicates "$web/{0..3}.tar" || wrong "pack ends with $? (seed $seed)"
    [ "$(fingerprint a)" = "$(fingerprint packed)" ] || wrong "packed rows (seed $seed)"
    timeout 120 "$BIN/ccpack" index -q -o b "$web/{0..3}.tar" || wrong "index ends with $? (seed $seed)"
    same b
    [ "$(digest b --allow-private)" = "$want" ] || wrong "batches (seed $seed)"
    done=$((done + $(count))) rounds=$((rounds + 1))
    stop
done
echo "$done faults in $rounds rounds of pack, index and load: 0 wrong or lost rows, 0 hangs"

# RANDOM is seeded: a failure can be repeated.
RANDOM=1
mkdir -p tars/www && tar -xf tars/0.tar -C tars/www
start --faults latency:10=0.5
for f in tars/www/*.txt; do
    n=$(basename "${f%.txt}")
    printf '%s\t%s/www/%s\n' "$(head -1 "$f")" "$web" "$(basename "$(ls tars/www/"$n".[jp]*g)")"
done >list.tsv
"$BIN/ccpack" fetch -q -o whole --allow-private --rate-per-host 0 --per-host 4 list.tsv
killed() { # killed DIR COMMAND...: kills it after a random time, until it ends by itself; counts the kills
    while [ "$kill_count" -lt "$kills" ]; do
        "${@:2}" --resume 2>/dev/null &
        pid=$!
        sleep "$((RANDOM % 2)).$(printf %03d $((RANDOM % 1000)))"
        kill -KILL $pid 2>/dev/null && kill_count=$((kill_count + 1))
        wait $pid 2>/dev/null && return
        true
    done
    timeout 120 "${@:2}" --resume || wrong "${*:2} --resume"
}
for what in pack index fetch; do
    kill_count=0 runs=0
    while [ "$kill_count" -lt "$kills" ]; do
        rm -rf c d
        case $what in
        pack) killed c "$BIN/ccpack" -q -j 1 -o c --allow-duplicates --shard-samples 30 "$web/{0..3}.tar"
            [ "$(fingerprint c)" = "$(fingerprint packed)" ] || wrong "packed rows after kills" ;;
        index) killed c "$BIN/ccpack" index -q -j 1 -o c "$web/{0..3}.tar"
            same c ;;
        fetch) killed d "$BIN/ccpack" fetch -q -o d --allow-private --rate-per-host 0 --per-host 4 list.tsv
            [ "$(fingerprint d)" = "$(fingerprint whole)" ] || wrong "fetched rows after kills" ;;
        esac
        runs=$((runs + 1))
    done
    echo "$what: $kill_count kills in $runs runs: 0 differences"
done
