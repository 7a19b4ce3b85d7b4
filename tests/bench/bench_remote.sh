#!/bin/bash
# The loader on a remote dataset: bench_remote.sh DIR [ROUNDS]
#
# nginx on the loopback interface serves DIR. In turns: the local folder, single requests, a cold cache, the same cache
# warm, and what limits a cold one: `curl --parallel` of the same pieces of 8 MiB to files, as pairs per second, and the
# local folder while that goes on beside it. Of ROUNDS (3) the median; batches of all are compared by their digest. Wants
# an idle machine, and twice the size of DIR in TMPDIR. BIN names the folder of ccbench; MORE further options of the loader.
set -eu -o pipefail
dir=$(cd "$1" && pwd)
rounds=${2:-3}
bin=$(cd "${BIN:-build/release/bin}" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/bench-remote.XXXXXX")
port=8643
url=http://127.0.0.1:$port/data
trap 'kill "$(cat "$work/nginx.pid")"; rm -rf "$work"' EXIT
mkdir "$work/root"
ln -s "$dir" "$work/root/data"
cat >"$work/nginx.conf" <<CONF
$([ "$(id -u)" != 0 ] || echo "user root;")
pid $work/nginx.pid; error_log $work/error.log; worker_processes 1;
events {}
http {
    access_log off; sendfile on; keepalive_requests 1000000;
    client_body_temp_path $work/1; proxy_temp_path $work/2; fastcgi_temp_path $work/3; uwsgi_temp_path $work/4; scgi_temp_path $work/5;
    server { listen 127.0.0.1:$port; root $work/root; }
}
CONF
nginx -c "$work/nginx.conf" -e "$work/error.log"
cat "$dir"/* >/dev/null # into the page cache

# Ranges of all shards, as curl's configuration.
for shard in "$dir"/shard-*.tar*; do
    case $shard in *.cci) continue ;; esac
    size=$(stat -c %s "$shard")
    for ((at = 0; at < size; at += 8388608)); do
        printf 'next\nurl = "%s/%s"\nrange = "%d-%d"\noutput = "%s/pieces/%s-%d"\n' "$url" "$(basename "$shard")" $at \
            $((at + 8388607)) "$work" "$(basename "$shard")" $at
    done
done | sed 1d >"$work/pieces.txt"

loader() { # loader NAME DATA OPTION...
    name=$1
    shift
    "$bin/ccbench" loader "$@" --order block:512:4 --batch-size 64 --digest --no-limit --json ${MORE:-} | sed "s/^/$name /"
}
pieces=(curl -sS --parallel --parallel-max 8 --config "$work/pieces.txt")
for _ in $(seq "$rounds"); do
    loader local "$dir"
    loader requests "$url"
    rm -rf "$work/cache"
    loader cold "$url" --cache "$work/cache" --cache-size 1TiB
    loader warm "$url" --cache "$work/cache" --cache-size 1TiB
    rm -rf "$work/pieces" && mkdir "$work/pieces"
    "${pieces[@]}" &
    loader beside "$dir"
    wait $!
    rm -rf "$work/pieces" && mkdir "$work/pieces"
    begin=$(date +%s%N)
    "${pieces[@]}"
    echo "curl $(($(date +%s%N) - begin))"
done | python3 -c '
import json, statistics, sys
rates, cpu, digests, pairs = {}, {}, set(), 0
for line in sys.stdin:
    name, text = line.split(" ", 1)
    if name == "curl":
        rates.setdefault(name, []).append(pairs / (int(text) / 1e9))
        continue
    r = json.loads(text)
    pairs = r["pairs"]
    digests.add(r["digest"])
    rates.setdefault(name, []).append(r["pairs_per_s"])
    cpu.setdefault(name, []).append(r["cpu_s"])
local = statistics.median(rates["local"])
for name, values in rates.items():
    seconds = "%8.2f" % statistics.median(cpu[name]) if name in cpu else "        "
    print("%-10s %8.0f pairs/s %7.3f of local %s s of CPU" % (name, statistics.median(values), statistics.median(values) / local, seconds))
print("batches are equal" if len(digests) == 1 else "batches DIFFER: %s" % digests)'
