#!/bin/bash
# ccpack index -o DIR of remote tars: the indexes, order and batches of local tars; a kill, a tar that changes, a
# folder that is published, whose tars are where its manifest says and nowhere private.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

mkdir tars
for i in 0 1 2 3; do
    "$TESTBIN/make_scenes" train 12 1 48 tars/$i.tar >/dev/null
done
mkdir extra && echo "no caption" >extra/x.jpg && (cd extra && tar rf ../tars/1.tar x.jpg)
cp -r tars local
expect 0 "$BIN/ccpack" index -q local/{0,1,2,3}.tar
start() { # start SERVER FOLDER OPTION...: prints its port first
    exec 3< <(exec python3 "$SRC/tests/$1" "${@:2}")
    server=$!
    read -r port storage <&3
}
trap 'kill "$server" 2>/dev/null' EXIT
digest() { # digest DATA OPTION...
    expect 0 "$BIN/ccbench" loader "$@" --size 32 --batch-size 32 --epochs 2 --digest --no-limit --json
    field out.txt digest
}
same() { # same DIR: it has the indexes, the samples and the rejects of local tars
    for i in 0 1 2 3; do
        cmp "$1/$i.cci" local/$i.cci || fail "$1: another index"
    done
    [ "$(field "$1/dataset.json" fingerprint)" = "$(field local/dataset.json fingerprint)" ] || fail "$1: other samples"
    sed 's|"source":"[^"]*/|"source":"|' "$1/rejects.jsonl" >here.txt
    sed 's|"source":"[^"]*/|"source":"|' local/rejects.jsonl >there.txt
    cmp here.txt there.txt || fail "$1: other rejects"
}

# From a hub, whose storage servers have other ETags each time, by its list, at the commit that main is.
secret=hf_$(head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n')
export HF_TOKEN=$secret
start support/hub_server.py tars --token "$secret" --edges --seconds 1
export HF_ENDPOINT=http://127.0.0.1:$port
expect 64 "$BIN/ccpack" index 'hf://datasets/owner/name/*.tar'
has err.txt "-o DIR"
expect 0 "$BIN/ccpack" index -q -o hub 'hf://datasets/owner/name/*.tar'
same hub
has hub/dataset.json '"base":"hf://datasets/owner/name@cccccccccccccccccccccccccccccccccccccccc"'
expect 0 "$BIN/ccdump" verify hub
expect 0 "$BIN/ccdump" info hub
has out.txt "base:"
[ "$(digest hub)" = "$(digest local)" ] || fail "other batches from the hub"
[ "$(digest hub --cache cache --order block:16:2)" = "$(digest local --order block:16:2)" ] || fail "other batches through a cache"
stats() { python3 -c "import json,urllib.request as u; print(json.load(u.urlopen('$HF_ENDPOINT/stats'))['$1'])"; }
[ "$(stats leaks)" = 0 ] || fail "the token went to the storage"
kill $server # one that has no requests of earlier programs still to answer
start support/hub_server.py tars --token "$secret" --edges
export HF_ENDPOINT=http://127.0.0.1:$port
expect 0 "$BIN/ccdump" info --json hub
expect 0 "$BIN/ccdump" ls hub
[ "$(stats resolve)" = 0 ] || fail "the tars were asked for although nothing of them was needed"
expect 0 "$BIN/ccpack" subset hub --where 'id < 20' -o near
expect 0 "$BIN/ccdump" verify near
[ "$(stats leaks)" = 0 ] || fail "the token went to the storage"
! grep -rqF "$secret" . || fail "the token is in a file or message: $(grep -rlF "$secret" .)"
kill $server

# From a web server that fails: killed after two tars, then resumed; those are not read again.
start net/fault_server.py tars --seed 5 --faults latency:20=0.5,reset_body=0.1,half=0.1,503:0=0.1
web=http://127.0.0.1:$port
"$BIN/ccpack" index -q -j 1 -o killed "$web/{0..3}.tar" 2>killed.txt &
pid=$!
for i in $(seq 1000); do [ -e killed/1.cci.tmp ] || [ -e killed/1.cci ] && break; sleep 0.005; done
kill -KILL $pid
wait $pid 2>/dev/null || true
expect 66 "$BIN/ccdump" info killed
expect 73 "$BIN/ccpack" index -q -o killed "$web/{0..3}.tar"
has err.txt "--resume continues it"
expect 65 "$BIN/ccpack" index -q -o killed --resume "$web/{0..2}.tar"
has err.txt "--resume requires the same options and tars"
mv tars/0.tar away.tar # is not needed any more
expect 0 "$BIN/ccpack" index -q -o killed --resume "$web/{0..3}.tar"
mv away.tar tars/0.tar
same killed
expect 0 "$BIN/ccpack" index -o killed --resume "$web/{0..3}.tar"
has err.txt "finished already"
expect 73 "$BIN/ccpack" index -q -o killed "$web/{0..3}.tar"
expect 0 "$BIN/ccpack" index -q -o killed --overwrite "$web/{0..3}.tar"
same killed
[ "$(ls killed | wc -l)" = 6 ] || fail "files are left in killed: $(ls killed)"
gzip -c tars/0.tar >tars/4.tar
expect 65 "$BIN/ccpack" index -q -o packed "$web/4.tar"
has err.txt "cannot be read in place; pack it"

# Who reads the folder elsewhere did not write where the tars are: private addresses are refused.
[ "$(digest killed --allow-private)" = "$(digest local)" ] || fail "other batches from a web server"
expect_message 74 "allow-private" "$BIN/ccdump" show killed 3
cp -r killed tars/index
expect 0 "$BIN/ccdump" verify "$web/index" --allow-private
[ "$(digest "$web/index" --allow-private)" = "$(digest local)" ] || fail "other batches of a published index"
expect_message 74 "allow-private" "$BIN/ccdump" show "$web/index" 3
sed "s|$web|/etc|" killed/dataset.json >tars/index/dataset.json
expect_message 65 "its base is missing or wrong" "$BIN/ccdump" show "$web/index" 3
sed "s|$web|file:///etc|" killed/dataset.json >tars/index/dataset.json
expect_message 64 "file:///etc" "$BIN/ccdump" show "$web/index" 3

# A tar that changes is refused.
touch -d '1 hour ago' tars/2.tar
expect_message 65 "2.tar: was replaced at the server" "$BIN/ccdump" show killed 30 --allow-private
