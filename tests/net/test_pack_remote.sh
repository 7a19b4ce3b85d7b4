#!/bin/bash
# ccpack -o DIR of remote tars: the dataset of local tars; a connection that breaks, a quota, a kill, a tar that
# changes, addresses that end, tokens, private addresses, servers without ranges.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

mkdir tars
for i in 0 1 2; do
    "$TESTBIN/make_scenes" val 40 1 200 tars/$i.tar >/dev/null
done
mkdir extra && head -c 18000000 /dev/urandom >extra/big.bin # a tar of several pieces
(cd extra && tar rf ../tars/2.tar big.bin)
gzip -c tars/1.tar >tars/3.tar.gz
summary() { "$BIN/ccdump" info --json "$1" | grep -o '"fingerprint":"[^"]*"'; }
start() { # start SERVER FOLDER OPTION...: prints its port first
    exec 3< <(exec python3 "$SRC/tests/$1" "${@:2}")
    server=$!
    read -r port storage <&3
}
trap 'kill "$server" 2>/dev/null' EXIT
expect 0 "$BIN/ccpack" -q -o local --allow-duplicates --shard-samples 30 tars/{0,1,2}.tar tars/3.tar.gz

# A hub with a token, storage servers whose ETags differ, addresses that end and a quota.
secret=hf_$(head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n')
export HF_TOKEN=$secret
start support/hub_server.py tars --token "$secret" --edges --seconds 0.5 --limit 8
export HF_ENDPOINT=http://127.0.0.1:$port
hub=hf://datasets/owner/name
stats() { python3 -c "import json,urllib.request as u; print(json.load(u.urlopen('$HF_ENDPOINT/stats'))['$1'])"; }
expect 0 "$BIN/ccpack" -q -o remote --allow-duplicates --shard-samples 30 $hub/{0,1,2}.tar $hub/3.tar.gz
[ "$(summary remote)" = "$(summary local)" ] || fail "another dataset than of local tars"
[ "$(stats leaks)" = 0 ] || fail "the token went to the storage"
expect 66 env HF_TOKEN=wrong "$BIN/ccpack" -o new $hub/0.tar
has err.txt "denies you access"
expect 66 env -u HF_TOKEN HF_HOME="$PWD/none" "$BIN/ccpack" -o new $hub/0.tar
has err.txt "HF_TOKEN"
expect 66 "$BIN/ccpack" -o new $hub/9.tar
has err.txt "404"

# Names by braces, and by the hub's list in pages: then the commit that main is now, for all files.
expect 0 "$BIN/ccpack" -q -o braces --allow-duplicates --shard-samples 30 "$hub/{0..2}.{tar}" $hub/3.tar.gz
[ "$(summary braces)" = "$(summary local)" ] || fail "other tars by braces"
before=$(stats moving)
expect 0 "$BIN/ccpack" -q -o globbed --allow-duplicates --shard-samples 30 "$hub/[0-2].tar" "$hub/*.tar.gz"
[ "$(summary globbed)" = "$(summary local)" ] || fail "other tars by the hub's list"
[ "$(stats moving)" = "$before" ] || fail "files were not read at one commit"
[ "$(stats tree)" -gt 2 ] || fail "the list has one page"
expect 66 "$BIN/ccpack" -o new "$hub/none/*.tar"
has err.txt "no file there has such a name"
expect 0 env AWS_ENDPOINT_URL_S3=http://127.0.0.1:$storage AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b \
    "$BIN/ccpack" -q -o bucket --allow-duplicates --shard-samples 30 's3://bucket/*.tar' 's3://bucket/3*'
[ "$(summary bucket)" = "$(summary local)" ] || fail "other tars by a bucket's list"
expect 0 env -u AWS_ENDPOINT_URL_S3 "$BIN/ccpack" -q -o named --allow-duplicates --shard-samples 30 --endpoint http://127.0.0.1:$storage 's3://bucket/*.tar' \
    's3://bucket/3*'
[ "$(summary named)" = "$(summary local)" ] || fail "other tars by --endpoint"
! grep -rqF "$secret" . || fail "the token is in a file or message: $(grep -rlF "$secret" .)"

# A look into a tar reads its beginning.
expect 0 "$BIN/ccdump" ls $hub/2.tar --count 3
lines out.txt 3
before=$(stats storage)
expect 0 "$BIN/ccdump" show $hub/2.tar 0 --json
[ $(($(stats storage) - before)) -le 4 ] || fail "all of the tar was read"

# A plan of it: the sizes of the list, what the beginnings hold, nothing left behind.
mkdir temporary
expect 0 env TMPDIR="$PWD/temporary" "$BIN/ccpack" plan --json --resize short:64 "$hub/[0-2].tar"
[ "$(field out.txt tars)" = 3 ] || fail "the plan has other tars"
[ "$(field out.txt bytes)" = "$(cat tars/[0-2].tar | wc -c)" ] || fail "the plan has other bytes"
[ "$(field out.txt bytes_estimated)" = false ] || fail "the list has the sizes"
[ "$(field out.txt samples)" -ge 100 ] || fail "$(field out.txt samples) samples are estimated, not 120"
[ "$(field out.txt captions_per_sample)" = 1 ] || fail "another number of captions"
[ -z "$(ls temporary)" ] || fail "the plan left files"

# What a killed one leaves is removed by the next, and not what another is using.
TMPDIR="$PWD/temporary" "$BIN/ccpack" plan -q "$hub/[0-2].tar" >plan.txt 2>&1 &
pid=$!
for i in $(seq 1000); do [ -n "$(ls temporary)" ] && break; sleep 0.002; done
kill -KILL $pid
wait $pid 2>/dev/null || true
mkdir -p temporary/ccstream-temporary-killed/0 temporary/ccstream-temporary-used
echo left >temporary/ccstream-temporary-killed/0/shard-000000.cci
touch -d '5 minutes ago' temporary/*
exec 8<temporary/ccstream-temporary-used
flock 8
expect 0 env TMPDIR="$PWD/temporary" "$BIN/ccpack" plan --json $hub/0.tar
[ "$(ls temporary)" = ccstream-temporary-used ] || fail "temporary folders: $(ls temporary)"
exec 8<&-
expect 65 "$BIN/ccpack" plan $hub/3.tar.gz
has err.txt "is compressed"
expect 64 "$BIN/ccpack" plan tars/0.tar
expect 66 "$BIN/ccpack" plan $hub/9.tar

# Killed, then resumed: tars that were packed are not read again.
"$BIN/ccpack" -q -o killed --allow-duplicates --shard-samples 30 $hub/{0,1,2}.tar $hub/3.tar.gz 2>killed.txt &
pid=$!
for i in $(seq 500); do [ -e killed/shard-000001.cci ] && break; sleep 0.01; done
kill -KILL $pid
wait $pid 2>/dev/null || true
expect 0 "$BIN/ccpack" -q -o killed --allow-duplicates --shard-samples 30 --resume $hub/{0,1,2}.tar $hub/3.tar.gz
cmp killed/dataset.json remote/dataset.json || fail "a killed run differs"
expect 0 "$BIN/ccpack" -o killed --allow-duplicates --shard-samples 30 --resume $hub/{0,1,2}.tar $hub/3.tar.gz
has err.txt "finished already"
[ "$(stats limited)" -gt 0 ] || fail "no request was limited"

# Parts are whole tars, so that none is counted first: with ids by key, since ids by row need the counts.
expect 64 "$BIN/ccpack" -o new --part 1/2 $hub/0.tar
has err.txt "--ids key"
python3 - tars keyed <<'PYTHON'
import os, sys, tarfile
os.mkdir(sys.argv[2])
for i in range(3): # keys that are unique over all tars, as those of img2dataset are
    with tarfile.open(f"{sys.argv[1]}/{i}.tar") as a, tarfile.open(f"{sys.argv[2]}/{i}.tar", "w") as b:
        for m in a:
            body = a.extractfile(m)
            m.name = f"{i}{m.name}"
            if not m.name.endswith(".bin"):
                b.addfile(m, body)
PYTHON
kill $server
start support/hub_server.py keyed --token "$secret"
export HF_ENDPOINT=http://127.0.0.1:$port
expect 0 "$BIN/ccpack" -q -o keyed-whole --ids key --shard-samples 30 $hub/{0,1,2}.tar
before=$(stats bytes)
expect 0 "$BIN/ccpack" -q -o keyed-1 --ids key --shard-samples 30 --part 1/2 $hub/{0,1,2}.tar
"$BIN/ccpack" -q -j 1 -o keyed-2 --ids key --shard-samples 30 --part 2/2 $hub/{0,1,2}.tar 2>killed.txt &
pid=$!
for i in $(seq 500); do [ -e keyed-2/shard-000000.cci ] && break; sleep 0.01; done
kill -KILL $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
expect 0 "$BIN/ccpack" -q -o keyed-2 --ids key --shard-samples 30 --part 2/2 --resume $hub/{0,1,2}.tar
expect 0 "$BIN/ccpack" merge -q -o keyed-merged keyed-1 keyed-2
[ "$(summary keyed-merged)" = "$(summary keyed-whole)" ] || fail "the parts are another dataset"
grep -o '"sources":.*' keyed-merged/dataset.json >there.txt
grep -o '"sources":.*' keyed-whole/dataset.json >here.txt
[ "$(grep -o '"name":"[^"]*","rows":[0-9]*,"bytes":[0-9]*,"sample_hash":"[^"]*"' there.txt)" = \
    "$(grep -o '"name":"[^"]*","rows":[0-9]*,"bytes":[0-9]*,"sample_hash":"[^"]*"' here.txt)" ] || fail "the parts have other sources"
kill $server

# Killed within a tar: what is in finished shards is not read again; neither samples nor counts differ.
mkdir large
python3 - tars/0.tar large/0.tar <<'PYTHON'
import io, os, sys, tarfile
with tarfile.open(sys.argv[1]) as a, tarfile.open(sys.argv[2], "w") as b:
    for m in a:
        b.addfile(m, a.extractfile(m))
        if m.name.endswith((".jpg", ".png")): # files that are not used, so that the tar has several pieces
            extra = tarfile.TarInfo(os.path.splitext(m.name)[0] + ".bin")
            extra.size = 700_000
            b.addfile(extra, io.BytesIO(os.urandom(extra.size)))
PYTHON
start support/hub_server.py large --token "$secret" --latency 30
export HF_ENDPOINT=http://127.0.0.1:$port
expect 0 "$BIN/ccpack" -q -o large-whole --json --shard-samples 2 $hub/0.tar
"$BIN/ccpack" -q -j 1 -o large-killed --shard-samples 2 $hub/0.tar 2>killed.txt &
pid=$!
for i in $(seq 1000); do [ -e large-killed/shard-000005.cci ] && break; sleep 0.005; done
kill -KILL $pid
wait $pid 2>/dev/null || true
offset=$(grep -o '"offset":[0-9]*' large-killed/pack.journal | tail -1 | grep -o '[0-9]*$')
[ "$offset" -gt 2000000 ] || fail "killed at byte $offset"
size=$(stat -c %s large/0.tar)
mv out.txt whole.txt
before=$(stats bytes)
expect 0 "$BIN/ccpack" -q -o large-killed --json --shard-samples 2 --resume $hub/0.tar
[ $(($(stats bytes) - before)) -le $((size - offset + 8)) ] || fail "$(($(stats bytes) - before)) bytes were read from byte $offset of $size on"
cmp large-killed/dataset.json large-whole/dataset.json || fail "a run that was killed within a tar differs"
[ "$(grep -o '"ignored_by":{[^}]*}' out.txt)" = "$(grep -o '"ignored_by":{[^}]*}' whole.txt)" ] || fail "other counts after a kill"
kill $server

# main moves while it is read: all files are of the commit that it was, also when the run is resumed.
mkdir moved
for i in 0 1 2; do "$TESTBIN/make_scenes" train 40 1 200 moved/$i.tar >/dev/null; done
gzip -c moved/1.tar >moved/3.tar.gz
start support/hub_server.py tars --token "$secret" --moved moved
export HF_ENDPOINT=http://127.0.0.1:$port
"$BIN/ccpack" -q -j 1 -o main --allow-duplicates --shard-samples 30 $hub/{0,1,2}.tar $hub/3.tar.gz 2>killed.txt &
pid=$!
for i in $(seq 500); do [ -e main/shard-000000.cci ] && break; sleep 0.01; done
kill -KILL $pid
wait $pid 2>/dev/null || true
expect 0 "$BIN/ccpack" -q -o main --allow-duplicates --shard-samples 30 --resume $hub/{0,1,2}.tar $hub/3.tar.gz
[ "$(summary main)" = "$(summary local)" ] || fail "files of two commits are mixed"
expect 0 "$BIN/ccpack" -q -o later --allow-duplicates --shard-samples 30 $hub/{0,1,2}.tar $hub/3.tar.gz
[ "$(summary later)" != "$(summary local)" ] || fail "main has not moved"
kill $server

# A web server that fails.
start net/fault_server.py tars --seed 3
web=http://127.0.0.1:$port
expect 0 "$BIN/ccpack" -q -o web --allow-duplicates --shard-samples 30 $web/{0,1,2}.tar $web/3.tar.gz
[ "$(summary web)" = "$(summary local)" ] || fail "another dataset from a web server"
expect 64 "$BIN/ccpack" -o new "$web/0.tar?fault=404.tar"
has err.txt "may be secrets"
kill $server
start net/fault_server.py tars --seed 3 --faults reset_body=0.15,half=0.15,reset=0.1,503:0=0.1,short_length=0.1,wrong_range=0.1
web=http://127.0.0.1:$port
expect 0 "$BIN/ccpack" -q -o faulty --allow-duplicates --shard-samples 30 $web/{0,1,2}.tar $web/3.tar.gz
[ "$(summary faulty)" = "$(summary local)" ] || fail "rows are lost or other ones after faults"
kill $server
start net/fault_server.py tars --faults new_etag=1
expect 65 "$BIN/ccpack" -q -o changed http://127.0.0.1:$port/2.tar
has err.txt "was replaced at the server while it was read"
kill $server
start net/fault_server.py tars --faults no_range=1
expect 74 "$BIN/ccpack" -q -o new http://127.0.0.1:$port/2.tar
has err.txt "curl -sL URL | ccpack -o DIR -"
kill $server
start net/fault_server.py tars --faults redirect_private=1
expect_message 74 "private\|not followed" "$BIN/ccpack" -q -o new http://127.0.0.1:$port/2.tar
