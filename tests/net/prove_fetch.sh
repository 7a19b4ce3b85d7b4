#!/bin/bash
# By hand: ccpack fetch under thousands of faults, and killed a hundred times.
#
#   tests/net/prove_fetch.sh BIN IMAGES [ROWS] [KILLS]     BIN: folder of the programs; IMAGES: of .jpg files
#
# Faults: half of the requests go wrong at random. Every row must then be a sample with exactly the bytes of
# its image, or be in rejects.jsonl with the reason of the ledger. Kills: runs are killed at random times and
# resumed until they end; all files must be those of an undisturbed run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd)
images=$(cd "$2" && pwd)
rows=${3:-25000}
kills=${4:-100}
work=$(mktemp -d "${TMPDIR:-/tmp}/prove-fetch.XXXXXX")
trap 'kill "${SERVER_PID:-$$}" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
fast="--allow-private --no-robots --rate-per-host 0 --per-host 64 -c 64 --quiet"

serve() { # serve OPTION...: sets port
    [ -z "${SERVER_PID:-}" ] || { kill "$SERVER_PID"; wait "$SERVER_PID" || true; }
    coproc SERVER { exec python3 "$here/fault_server.py" "$images" --seed 7 "$@"; }
    read -r port <&"${SERVER[0]}"
}

serve --faults reset=0.06,half=0.06,reset_body=0.05,503:0=0.05,429:1=0.03,404=0.05,empty=0.03,html=0.03,garbage=0.02,long_length=0.03,half_chunked=0.03,redirect_loop=0.02,huge_headers=0.01,bad_gzip=0.02,latency:20=0.05
python3 "$here/fetch_list.py" "$images" "$port" "$rows" >/dev/null
"$bin/ccpack" fetch --json -o faulty $fast list.tsv >summary.json
"$bin/ccdump" verify faulty
python3 - "$port" "$images" <<'PYTHON'
import glob, hashlib, io, json, subprocess, sys, tarfile, urllib.request
port, folder = sys.argv[1:]
stats = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/stats"))
expected = []
for line in open("list.tsv", encoding="utf-8"):
    name = line.split("\t")[1].split("/")[-1].split("?")[0]
    expected.append(hashlib.sha256(open(f"{folder}/{name}", "rb").read()).digest())
seen = {}
for shard in sorted(glob.glob("faulty/*.tar.zst")):
    text = subprocess.run(["zstd", "-dcq", shard], capture_output=True, check=True).stdout
    for member in (tar := tarfile.open(fileobj=io.BytesIO(text))):
        key, extension = member.name.split(".", 1)
        if extension == "jpg":
            row = int(key)
            assert row not in seen, f"row {row} twice"
            seen[row] = True
            assert hashlib.sha256(tar.extractfile(member).read()).digest() == expected[row], f"row {row}: other bytes"
ledger = {}
for line in open("faulty/fetch/ledger.jsonl", encoding="utf-8"):
    entry = json.loads(line)["line"]
    assert entry["row"] not in ledger, f"row {entry['row']} twice in the ledger"
    ledger[entry["row"]] = entry
rejects = {}
for line in open("faulty/rejects.jsonl", encoding="utf-8"):
    entry = json.loads(line)
    rejects[entry["row"]] = entry["detail"]
for row in range(len(expected)):
    assert (row in seen) != (row in rejects), f"row {row} is lost or doubled"
    assert ledger[row]["state"] == "fetched" or rejects[row] == ledger[row]["reason"], f"row {row}"
faults = sum(stats["faults"].values())
print(f"faults: {len(expected)} rows, {stats['requests']} requests, {faults} faults, {len(seen)} samples with the right "
      f"bytes, {len(rejects)} rows rejected with their reasons, none lost, doubled or mixed up")
print("  ", ", ".join(f"{n} {name}" for name, n in sorted(stats["faults"].items())))
PYTHON

serve
python3 "$here/fetch_list.py" "$images" "$port" 3000 0.2 >/dev/null
shape="--attempts 1 --shard-samples 400 --resize short:64 -c 8"
"$bin/ccpack" fetch -o whole $fast $shape list.tsv
rounds=0 done=0
while [ "$done" -lt "$kills" ]; do
    rounds=$((rounds + 1))
    rm -rf killed
    while :; do
        code=0
        "$bin/ccpack" fetch -o killed --resume $fast $shape list.tsv 2>err.txt &
        pid=$!
        sleep "0.$((RANDOM % 9))$((RANDOM % 10))5"
        kill -KILL $pid || true
        wait $pid || code=$? # until it is gone, which timeout(1) does not wait for
        [ "$code" != 0 ] || break
        [ "$code" = 137 ] || { cat err.txt; echo "exit code $code"; exit 1; }
        done=$((done + 1))
    done
    for file in dataset.json rejects.jsonl $(cd whole && ls | grep '^shard-'); do
        cmp "whole/$file" "killed/$file"
    done
    [ "$(ls whole)" = "$(ls killed)" ]
done 2>/dev/null
echo "kills: $done kills in $rounds runs of 3,000 rows: every file of the dataset has the bytes of an undisturbed run"
