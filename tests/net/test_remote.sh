#!/bin/bash
# Remote datasets: every program that opens one takes its URL, and has the same samples and
# batches as from the local folder, whatever the server does; a replaced shard is an error.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

"$TESTBIN/make_scenes" train 400 1 48 scenes.tar >/dev/null
expect 0 "$BIN/ccpack" -q -o www/pairs --shard-samples 100 scenes.tar
expect 0 "$BIN/ccpack" tokenizer -q www/pairs --vocab-size 500

serve() { # serve OPTION...: sets port and url
    coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www --seed 1 "$@"; }
    read -r port <&"${SERVER[0]}"
    url=http://127.0.0.1:$port/pairs
}
stop() {
    kill "$SERVER_PID"
    wait "$SERVER_PID" || true
}
trap '[ -z "${SERVER_PID:-}" ] || kill "$SERVER_PID"' EXIT
digest() { # digest DATA OPTION...
    expect 0 "$BIN/ccbench" loader "$@" --size 32 --batch-size 32 --epochs 2 --digest --no-limit --json
    field out.txt digest
}

# Every program, from a server without faults.
serve
for command in info "ls --keys" stats "ls --shards" "find --min-side 10" cat; do
    expect 0 "$BIN/ccdump" $command www/pairs
    sed "s|www/pairs|$url|g" out.txt >local.txt
    expect 0 "$BIN/ccdump" $command "$url"
    cmp out.txt local.txt || fail "ccdump $command differs"
done
expect 0 "$BIN/ccdump" verify --decode "$url"
expect 0 "$BIN/ccdump" show "$url" 7 --image - >image.jpg
small="--task two-views --loss simclr --image-tower tiny --image-size 32 --batch-size 8"
expect 0 "$BIN/ccstream-train" --data "$url" --out run $small --steps 2 --eval-every 0 -q
expect 0 "$BIN/ccstream-train" --resume run --steps 3 --json -q
has out.txt '"resumed_step":2,'
expect 0 "$BIN/ccdump" why run "$url" 5 --encode 0
expect 0 "$BIN/ccstream-eval" embed run --data "$url" --out far-vectors
expect 0 "$BIN/ccstream-eval" embed run --data www/pairs --out near-vectors
cmp far-vectors.images.npy near-vectors.images.npy || fail "other embeddings"

# A report shows samples from the server that its user names, not from one that the run names.
mkdir www/bucket && cp -r www/pairs www/bucket/pairs
expect 0 "$BIN/ccstream-train" --data s3://bucket/pairs --endpoint "http://127.0.0.1:$port" --out there ${small/--loss simclr/--loss sogclr} --steps 2 --eval-every 0 -q
sed -i "s|127.0.0.1:$port|127.0.0.1:1|" there/config.json
expect 0 "$BIN/ccstream-report" -o named.html --endpoint "http://127.0.0.1:$port" there
has named.html 'Extreme samples'
hasnt named.html 'extreme samples are missing'
rm -r www/bucket

local_digest=$(digest www/pairs)
[ "$(digest "$url")" = "$local_digest" ] || fail "other batches"
[ "$(digest "$url" --order block:32:2 --threads 1)" = "$(digest www/pairs --order block:32:2)" ] ||
    fail "other batches in block order"
[ "$(digest --data "$url:0.5" --data www/pairs:0.5)" = "$(digest --data www/pairs:0.5 --data ./www/pairs:0.5)" ] ||
    fail "other batches of a mix"

# A subset of a remote dataset is that of the folder, file by file.
seq 3 7 399 >ids.txt
expect 0 "$BIN/ccpack" subset www/pairs --ids ids.txt --where 'width >= 20' -o near --shard-samples 30
expect 0 "$BIN/ccpack" subset "$url" --ids ids.txt --where 'width >= 20' -o far --shard-samples 30
diff -r near far || fail "other files of a remote subset"
expect 0 "$BIN/ccpack" subset "$url" --where 'key ~ "*7*"' -o far-keys --cache subset-cache
expect 0 "$BIN/ccpack" subset www/pairs --where 'key ~ "*7*"' -o near-keys
diff -r near-keys far-keys || fail "other files of a remote subset by key, through a cache"
expect 64 "$BIN/ccpack" subset www/pairs --ids ids.txt -o s3://bucket/far
has err.txt "aws s3 sync"

# What cannot work says why.
expect 66 "$BIN/ccdump" info "http://127.0.0.1:$port/nothing"
has err.txt "HTTP status 404"
expect 74 "$BIN/ccdump" info http://127.0.0.1:1/pairs
has err.txt "4 attempts"
expect 66 "$BIN/ccpack" remove "$url" --ids which.txt
has err.txt "only local files are read"
expect 64 "$BIN/ccbench" loader "$url" --io-engine io_uring
has err.txt "read local files"

# A shard that is replaced ends the run with its name.
"$BIN/ccbench" loader "$url" --no-limit --size 32 --batch-size 16 --epochs 100 --consumer-ms 20 >out.txt 2>err.txt &
pid=$!
while sleep 0.5 && kill -0 $pid 2>/dev/null; do # however late it opens the dataset
    touch www/pairs/shard-000002.tar.zst
done
code=0
wait $pid || code=$?
[ "$code" = 65 ] || fail "exit code $code after a shard was replaced"
has err.txt "shard-000002.tar.zst: was replaced at the server"
stop

# Half of the requests go wrong in every way that may pass.
serve --faults reset=0.06,half=0.06,reset_body=0.06,503:0=0.06,429:0=0.04,empty=0.06,short_length=0.04,no_range=0.04,wrong_range=0.03,garbage=0.03,half_chunked=0.02,lying_range=0.02
[ "$(digest "$url")" = "$local_digest" ] || fail "other batches with faults"
stop

# What an S3 server says of its refusal is shown, with what to do.
unset AWS_PROFILE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_CONFIG_FILE=/dev/null
while read -r reason status advice; do
    serve --faults "s3_error:$reason=1"
    expect 66 "$BIN/ccdump" info --endpoint "http://127.0.0.1:$port" s3://www/pairs
    has err.txt "attempt: HTTP status $status, $reason: A message & $reason; $advice"
    expect 66 "$BIN/ccdump" info "$url"
    has err.txt "$reason: A message & $reason"
    stop
done <<'CODES'
NoSuchKey 404 check the location
AccessDenied 403 these keys
SignatureDoesNotMatch 403 check AWS_SECRET_ACCESS_KEY
CODES

# With a cache: the same batches; then again without a request for a shard; then without a server.
requests() { # requests NAME: how many there were for paths that contain NAME
    python3 - "$port" "$1" <<'PYTHON'
import json, sys, urllib.request
paths = json.load(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/stats"))["paths"]
print(sum(n for path, n in paths.items() if sys.argv[2] in path))
PYTHON
}
cache="--cache cache --cache-size 256MiB"
serve --port "$port" --faults reset=0.1,half=0.1,503:0=0.1,lying_range=0.05
[ "$(digest "$url" $cache)" = "$local_digest" ] || fail "other batches with a cold cache"
stop
serve --port "$port"
[ "$(digest "$url" $cache --order block:32:2)" = "$(digest www/pairs --order block:32:2)" ] ||
    fail "other batches with a warm cache"
[ "$(requests shard-)" = 0 ] && [ "$(requests dataset.json)" -gt 0 ] || fail "cached pieces were requested"
for piece in cache/ccstream-cache-1/*/*-0; do
    printf damage | dd of="$piece" bs=1 seek=20000 conv=notrunc status=none
done
[ "$(digest "$url" $cache)" = "$local_digest" ] || fail "other batches with a damaged cache"
expect 0 "$BIN/ccdump" verify "$url" $cache
for seconds in 0.02 0.05 0.1 0.2; do
    timeout -s KILL "$seconds" "$BIN/ccbench" loader "$url" --size 32 --cache killed --epochs 9 --no-limit >out.txt || true
done
[ "$(digest "$url" --cache killed)" = "$local_digest" ] || fail "other batches after kills"
# A disk that takes no piece whole: they stay in memory while they are used, and nothing is left of them.
full_digest=$(trap '' XFSZ; ulimit -f 64; digest "$url" --cache full --order block:32:2)
has err.txt "cannot be written; continuing without it: File too large"
[ "$full_digest" = "$(digest www/pairs --order block:32:2)" ] || fail "other batches with a full disk"
left=$(find full -type f -name '*-[0-9]*')
[ -z "$left" ] || fail "pieces in a cache that cannot be written: $left"
stop
[ "$(digest "$url" $cache)" = "$local_digest" ] || fail "other batches without a server"
expect 0 "$BIN/ccdump" verify "$url" $cache
has err.txt "continuing from the cache"
rm cache/ccstream-cache-1/*/*-0
expect 74 "$BIN/ccbench" loader "$url" --no-limit $cache
has err.txt "cannot be read ("
has err.txt ", which the cache does not have), "
has err.txt "attempts"

# A server without ranges is given up at once, with what to do.
(cd www && exec python3 -u -m http.server --bind 127.0.0.1 0 >../plain.txt 2>&1) &
plain=$!
trap 'kill $plain; [ -z "${SERVER_PID:-}" ] || kill "$SERVER_PID" 2>/dev/null || true' EXIT
until port=$(sed -n 's/.* port \([0-9]*\).*/\1/p' plain.txt) && [ -n "$port" ]; do sleep 0.1; done
expect 74 timeout 10 "$BIN/ccdump" info "http://127.0.0.1:$port/pairs"
has err.txt "the server ignores ranges; use one that has them"

# One that fails for long is waited for, and a line says so.
serve --faults 503=1
expect 124 timeout 6 "$BIN/ccdump" info "$url"
has err.txt "waiting for the server since"
has err.txt "HTTP status 503"
stop
