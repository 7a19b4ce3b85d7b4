#!/bin/bash
# By hand: remote loading under thousands of faults, and training with a cache that is killed a hundred times.
#
#   tests/net/prove_remote.sh BIN DATASET [FAULTS] [KILLS]     BIN: folder of the programs; DATASET: of some thousand images
#
# Faults: requests go wrong at random until there were so many; batches must be those of the folder, every sample once an
# epoch. Kills: a run with a cache, on a server that goes wrong too, is killed at random times and resumed until it ends;
# its checkpoint must be that of an undisturbed run from the folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd)
data=$(cd "$2" && pwd)
faults=${3:-10000}
kills=${4:-100}
work=$(mktemp -d "${TMPDIR:-/tmp}/prove-remote.XXXXXX")
trap '[ -z "${SERVER_PID:-}" ] || kill "$SERVER_PID"; rm -rf "$work"' EXIT
cd "$work"
ln -s "$data" data

serve() { # serve OPTION...: sets port
    [ -z "${SERVER_PID:-}" ] || { kill "$SERVER_PID"; wait "$SERVER_PID" || true; }
    coproc SERVER { exec python3 "$here/fault_server.py" . --seed 7 "$@"; }
    read -r port <&"${SERVER[0]}"
}
stats() { # stats EXPRESSION of s
    python3 -c "import json, sys, urllib.request
s = json.load(urllib.request.urlopen('http://127.0.0.1:$port/stats')); print($1)"
}
loader() { # loader DATA OPTION...: digest and number of pairs; the ids go to ids.json
    "$bin/ccbench" loader "$@" --size 32 --batch-size 64 --digest --no-limit --json --dump-ids ids.json --force |
        sed 's/.*"pairs":\([0-9]*\),.*"digest":"\([0-9a-f]*\)".*/\2 \1/'
}

all=reset=0.06,half=0.06,reset_body=0.05,503:0=0.05,429:0=0.05,empty=0.03,html=0.03,garbage=0.02,long_length=0.03,short_length=0.03
all=$all,no_range=0.03,wrong_range=0.03,half_chunked=0.02,lying_range=0.02,wrong_byte=0.01,huge_headers=0.01,latency:20=0.03
serve --faults "$all"
epochs=0
injected=0
while [ "$injected" -lt "$faults" ]; do
    for order in global block:256:4; do
        local=$(loader data --order $order --from "$epochs:0")
        cp ids.json local.json
        remote=$(loader "http://127.0.0.1:$port/data" --order $order --from "$epochs:0")
        [ "$local" = "$remote" ] && cmp -s ids.json local.json || { echo "epoch $epochs, $order: $local but $remote"; exit 1; }
    done
    epochs=$((epochs + 1))
    injected=$(stats 'sum(s["faults"].values())')
done
echo "$injected faults of $(stats 'len(s["faults"])') kinds in $(stats 's["requests"]') requests:" \
    "$((2 * epochs)) epochs have the ids and bytes of the folder"

train="--task two-views --loss sogclr --image-tower resnet10t --image-size 32 --batch-size 64 --epochs 100 --order block:256:4
    --checkpoint-every 5 --keep-checkpoints 1 --threads 1 -q"
"$bin/ccstream-train" --data data --out whole --steps 120 $train
serve --faults reset=0.1,half=0.1,503:0=0.1
url=http://127.0.0.1:$port/data
killed=0
runs=0
RANDOM=7
while [ $killed -lt "$kills" ]; do
    rm -rf run cache
    runs=$((runs + 1))
    while :; do
        how="--data $url --out run $train --cache cache"
        [ ! -e run/config.json ] || how="--resume run -q"
        code=0
        timeout -s KILL "$((RANDOM % 4)).$((RANDOM % 10))" "$bin/ccstream-train" $how --steps 120 2>err.txt || code=$?
        [ $code = 0 ] && break
        [ $code = 137 ] || { cat err.txt; exit 1; }
        killed=$((killed + 1))
        [ $killed -lt "$kills" ] || { "$bin/ccstream-train" --resume run -q --steps 120; break; }
    done
    cmp run/last whole/last || { echo "a killed run ends in other bytes"; exit 1; }
done
echo "$killed kills in $runs runs: every checkpoint is that of the undisturbed run"
