#!/bin/bash
# ccpack fetch beside img2dataset, one after the other on the same list: the images come from nginx on the
# loopback interface and go into tars, as they are (where ccpack still checks every one, and img2dataset none)
# or as new JPEGs of quality 95 whose shorter side is at most SIDE pixels.
#
#   tests/bench/peers/run_fetch.sh BIN WORK TAR...
#
# BIN contains ccpack (a release build). WORK is a folder for the unpacked JPEG files and the Python environment;
# existing ones are used again. Every 50th URL does not exist. Needs nginx. By hand, about three minutes on an
# otherwise idle machine; processor seconds (user and system, of the program and its processes) can be compared
# on a busy one, too, best with WORK on a tmpfs: what ext4 takes for a new file depends on what was removed before.
# The last column leaves out what a list of one row takes, such as Python's imports.
#   WORKERS=2 ROWS=2000 SIDE=256 REPEATS=3
set -eu
[ $# -ge 3 ] || { sed -n '2,14p' "$0"; exit 64; }
command -v nginx >/dev/null || { echo "run_fetch: nginx is not installed: apt-get install nginx-light" >&2; exit 69; }
bin=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
shift 2
: "${WORKERS:=$(nproc)}" "${ROWS:=2000}" "${SIDE:=256}" "${REPEATS:=3}"
"$(dirname "$0")/install.sh" "$work" img2dataset
peer=$work/venv/img2dataset/bin/img2dataset
if [ ! -d "$work/jpg" ]; then
    mkdir "$work/jpg.tmp"
    for tar in "$@"; do
        tar -xf "$tar" -C "$work/jpg.tmp" --wildcards --transform 's,.*/,,' '*.jpg'
    done
    mv "$work/jpg.tmp" "$work/jpg"
fi

run=$(mktemp -d "$work/run.XXXXXX")
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$run"' EXIT
cd "$run"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >nginx.conf <<CONF
$([ "$(id -u)" != 0 ] || echo 'user root;')
daemon off;
pid $run/nginx.pid;
error_log $run/error.txt;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 1000000;
    client_body_temp_path $run/temp; proxy_temp_path $run/temp; fastcgi_temp_path $run/temp;
    uwsgi_temp_path $run/temp; scgi_temp_path $run/temp;
    server { listen 127.0.0.1:$port backlog=4096; root $work/jpg; }
}
CONF
nginx -c "$run/nginx.conf" 2>/dev/null &
server=$!
python3 - "$work/jpg" "$port" "$ROWS" <<'PYTHON'
import os, sys
names, port, rows = sorted(os.listdir(sys.argv[1])), sys.argv[2], int(sys.argv[3])
for file, count in (("all.tsv", rows), ("one.tsv", 1)):
    with open(file, "w", encoding="utf-8") as out:
        out.write("caption\turl\n")
        for row in range(count):
            name = "missing.jpg" if row % 50 == 49 else names[row % len(names)]
            out.write(f"caption {row}\thttp://127.0.0.1:{port}/{name}?row={row}\n")
PYTHON

ours() { # ours HOW LIST: prints how many images were packed
    local shape=()
    [ "$1" = none ] || shape=(--resize "short:$SIDE" --quality 95)
    rm -rf out
    "$bin/ccpack" fetch -q --json -o out --container tar --allow-private --no-robots --rate-per-host 0 --per-host 64 -c 64 \
        --attempts 1 --jobs "$WORKERS" "${shape[@]}" "$2" | sed 's/.*"samples":\([0-9]*\).*/\1/'
}
theirs() {
    local shape=(--resize_mode no --disable_all_reencoding True)
    [ "$1" = none ] || shape=(--image_size "$SIDE" --resize_mode keep_ratio --resize_only_if_bigger True --encode_quality 95)
    rm -rf out
    NO_ALBUMENTATIONS_UPDATE=1 "$peer" --url_list "$run/$2" --input_format tsv --url_col url --caption_col caption \
        --output_format webdataset --output_folder "$run/out" --processes_count "$WORKERS" --thread_count 32 --retries 0 \
        "${shape[@]}" --extract_exif False --compute_hash None --number_sample_per_shard 1000 --enable_wandb False >peer.txt 2>&1
    cat out/*_stats.json | sed -n 's/.*"successes": \([0-9]*\).*/\1/p' | awk '{ s += $1 } END { print s + 0 }'
}
measure() { # measure PROGRAM HOW LIST: adds "PROGRAM HOW LIST images seconds processor-seconds" to times.txt
    local TIMEFORMAT='%R %U %S'
    { time "$@" >count.txt; } 2>time.txt || { cat peer.txt time.txt >&2; exit 1; }
    echo "$* $(cat count.txt) $(awk 'END { print $1, $2 + $3 }' time.txt)" | tee -a times.txt >&2
}
for program in ours theirs; do measure $program none one.tsv; done # warms the caches
: >times.txt
for _ in $(seq "$REPEATS"); do
    for how in none short; do
        for program in ours theirs; do
            measure $program $how one.tsv
            measure $program $how all.tsv
        done
    done
done

python3 - "$ROWS" "$SIDE" <<'PYTHON'
import statistics, sys
rows = int(sys.argv[1])
seen = {}
for line in open("times.txt", encoding="utf-8"):
    program, how, file, images, seconds, processor = line.split()
    seen.setdefault((program, how, file), []).append((float(seconds), float(processor), int(images)))
print("| program | resize | packed | seconds | images/s | processor seconds | images per processor second | without start-up |")
print("|---|---|---:|---:|---:|---:|---:|---:|")
for how, words in (("none", "none"), ("short", f"short:{sys.argv[2]}")):
    rates = []
    for program, name in (("ours", "`ccpack fetch`"), ("theirs", "img2dataset")):
        seconds, processor, images = (statistics.median(x) for x in zip(*seen[program, how, "all.tsv"]))
        start = statistics.median(x[1] for x in seen[program, how, "one.tsv"])
        rates.append((images / seconds, images / processor, images / (processor - start)))
        print(f"| {name} | {words} | {images:.0f} of {rows} | {seconds:.2f} | {rates[-1][0]:.0f} | {processor:.2f} | {rates[-1][1]:.0f} | {rates[-1][2]:.0f} |")
    print("| ratio | {} | | | {:.1f} | | {:.1f} | {:.1f} |".format(words, *(a / b for a, b in zip(*rates))))
PYTHON
