#!/bin/bash
# A hub that counts requests: each file of a dataset is asked for once, and again when its signed address ends;
# the token stays at the hub; quotas are waited for; the storage's ETags do not matter.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

"$TESTBIN/make_scenes" val 60 1 48 scenes.tar >/dev/null
"$BIN/ccpack" -q -o data --shard-samples 20 scenes.tar
"$BIN/ccdump" cat data >local.tar
mkdir -p secrets
secret=hf_$(head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n')
export HF_TOKEN=$secret
start() { # start OPTION...: a hub; sets HF_ENDPOINT
    exec 3< <(exec python3 "$SRC/tests/support/hub_server.py" data "$@")
    server=$!
    read -r hub storage <&3
    export HF_ENDPOINT=http://127.0.0.1:$hub
}
stats() { python3 -c "import json,urllib.request as u; print(json.load(u.urlopen('$HF_ENDPOINT/stats'))['$1'])"; }
trap 'kill "$server" 2>/dev/null' EXIT

# Every picture, range by range: 1 manifest and 3 shards with their indexes are 7 files; optional files that are not
# there cost a request each.
start --token "$secret" --edges
expect 0 "$BIN/ccdump" cat hf://datasets/owner/name
cmp out.txt local.tar || fail "other bytes than the local dataset"
files=$(stats resolve)
[ "$files" -le 12 ] || fail "$files requests to /resolve/ for 7 files"
expect 0 "$BIN/ccdump" verify hf://datasets/owner/name
[ "$(stats leaks)" = 0 ] || fail "the token went to the storage"
[ "$(stats storage)" -gt 7 ] || fail "not read by ranges"
expect 66 env HF_TOKEN=wrong "$BIN/ccdump" info hf://datasets/owner/name
has err.txt "403"
expect 66 env -u HF_TOKEN HF_HOME="$PWD/none" "$BIN/ccdump" info hf://datasets/owner/name
has err.txt "401"

# The token is in no file, cache, page, log or message of a training from there, nor on a command line of it or its children.
env -u CCSTREAM_REPORT "$BIN/ccstream-train" --data hf://datasets/owner/name --out run --cache cache --task two-views --loss simclr --image-tower tiny \
    --image-size 32 --batch-size 8 --steps 3 --eval-every 0 --json --report >train.txt 2>&1 &
pid=$!
for i in $(seq 2000); do
    tr '\0' '\n' <"/proc/$pid/cmdline" >>commands.txt 2>>gone.txt || break
    for child in $(cat "/proc/$pid/task/"*/children 2>>gone.txt); do tr '\0' '\n' <"/proc/$child/cmdline" >>commands.txt 2>>gone.txt || true; done
    kill -0 $pid 2>>gone.txt || break
    sleep 0.02
done
wait $pid || fail "training from the hub: $(cat train.txt)"
has commands.txt ccstream-train
[ -s run/report.html ] || fail "no page of the run"
expect 0 "$BIN/ccdump" show hf://datasets/owner/name 0 --html sample.html
expect 0 "$BIN/ccpack" subset hf://datasets/owner/name --where 'id < 5' -o near
[ "$(stats leaks)" = 0 ] || fail "the token went to the storage"
! grep -rqF "$secret" . || fail "the token is in a file or message: $(grep -rlF "$secret" .)"
kill $server

# Addresses that end while they are used are renewed; a quota is waited for.
start --uses 4 --limit 8
expect 0 "$BIN/ccdump" cat hf://datasets/owner/name
cmp out.txt local.tar || fail "other bytes with addresses that end"
[ "$(stats ended)" -gt 0 ] || fail "no address ended"
[ "$(stats limited)" -gt 0 ] || fail "no request was limited"
kill $server

# A dataset opens with its manifest, its server's list and the indexes: no shard is asked for. Without a list each is.
"$BIN/ccpack" -q -o many --shard-samples 4 scenes.tar
shards=$(ls many/*.tar.zst | wc -l)
start_many() { # start_many OPTION...
    exec 3< <(exec python3 "$SRC/tests/support/hub_server.py" many "$@")
    server=$!
    read -r hub storage <&3
    export HF_ENDPOINT=http://127.0.0.1:$hub AWS_ENDPOINT_URL_S3=http://127.0.0.1:$storage
}
opened() { # opened LOCATION COUNT: its requests of this kind (a probe of optional files included)
    before=$(stats "$2")
    expect 0 "$BIN/ccdump" info --json "$1"
    [ "$(field out.txt fingerprint)" = "$(field many/dataset.json fingerprint)" ] || fail "$1: another dataset"
    requests=$(($(stats "$2") - before))
}
start_many --page 20 --edges
opened hf://datasets/owner/name resolve
[ "$requests" -le $((shards + 2)) ] || fail "$requests requests to /resolve/ to open $shards shards"
[ "$(stats tree)" = 2 ] || fail "$(stats tree) pages of the list"
opened s3://bucket storage
[ "$requests" -le $((shards + 2 + 2)) ] || fail "$requests requests to open $shards shards of a bucket"
expect 0 "$BIN/ccdump" cat hf://datasets/owner/name
mv out.txt hub.tar
expect 0 "$BIN/ccdump" cat s3://bucket
cmp out.txt hub.tar || fail "other bytes from a bucket"
"$BIN/ccdump" cat many | cmp - hub.tar || fail "other bytes than the local dataset"
mv many/shard-000003.tar.zst away
expect_message 66 "shard-000003.tar.zst" "$BIN/ccdump" info hf://datasets/owner/name
mv away many/shard-000003.tar.zst
kill $server
start_many --list none
opened hf://datasets/owner/name resolve
[ "$requests" -gt $((2 * shards)) ] || fail "the shards are not asked for"
