#!/bin/bash
# bench_hub.sh BIN TESTBIN [ROUNDS]: what packing from a hub costs, against the small hub on the loopback interface
# (tests/support/hub_server.py). Packs 20 tars from it and from curl's pipe, ROUNDS (5) times each, in turn and in changing order:
# processor and wall seconds of ccpack, and of curl and ccpack; requests to /resolve/. Then opens 2,176 shards with 50 ms of
# latency.
set -eu
SRC=$(cd "$(dirname "$0")/../.." && pwd)
BIN=$(realpath "$1") TESTBIN=$(realpath "$2") rounds=${3:-5}
work=$(mktemp -d)
cd "$work"
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT
mkdir tars
"$TESTBIN/make_scenes" train 1500 1 256 tars/00.tar >/dev/null
for i in $(seq -w 1 19); do cp tars/00.tar "tars/$i.tar"; done
start() { # start FOLDER OPTION...
    exec 3< <(exec python3 "$SRC/tests/support/hub_server.py" "$@")
    server=$!
    read -r hub storage <&3
    export HF_ENDPOINT=http://127.0.0.1:$hub
}
count() { python3 -c "import json,urllib.request as u; print(json.load(u.urlopen('$HF_ENDPOINT/stats'))['resolve'])"; }
TIMEFORMAT='%U %S %R'
cpu() { # cpu COMMAND...: its processor seconds, with those of its children, and wall seconds
    { time "$@" >log.txt 2>&1; } 2>&1 | awk '{ printf "%.2f %.2f", $1 + $2, $3 }'
}
from_hub() { rm -rf a && "$BIN/ccpack" -q -j 1 -o a --allow-duplicates 'hf://datasets/owner/name/*.tar'; }
from_curl() {
    rm -rf b
    for i in $(seq -w 0 19); do echo "url = $HF_ENDPOINT/datasets/owner/name/resolve/main/$i.tar"; done >urls.txt
    curl -sfL -K urls.txt | "$BIN/ccpack" -q -j 1 -o b -
}
start tars
du -sm tars
for round in $(seq "$rounds"); do
    before=$(count)
    [ $((round % 2)) = 0 ] || a=$(cpu from_hub)
    b=$(cpu from_curl)
    [ $((round % 2)) = 1 ] || a=$(cpu from_hub)
    echo "$a $b" >>rounds.txt
    echo "round $round: ccpack ${a% *} s, curl and ccpack ${b% *} s of processor time; ${a#* } and ${b#* } s; $(($(count) - before)) requests to /resolve/ for twice 20 tars"
done
for column in 1 2; do # the median of what a round gives
    awk -v c=$column '{ print $(c + 2) / $c }' rounds.txt | sort -n | awk '{ r[NR] = $1 } END { printf "%.2f of curl in %s\n", NR % 2 ? r[(NR + 1) / 2] : (r[NR / 2] + r[NR / 2 + 1]) / 2, '$column' == 1 ? "processor time" : "wall time" }'
done
fingerprint() { "$BIN/ccdump" info --json "$1" | grep -o '"fingerprint":"[^"]*"' | head -1; }
[ "$(fingerprint a)" = "$(fingerprint b)" ]
kill "$server"

"$TESTBIN/make_scenes" val 2176 1 16 many.tar >/dev/null
"$BIN/ccpack" -q -o many --shard-samples 1 many.tar
start many --page 1000 --latency 50
time "$BIN/ccdump" info --json hf://datasets/owner/name >/dev/null
python3 -c "import urllib.request as u; print(u.urlopen('$HF_ENDPOINT/stats').read().decode())"
