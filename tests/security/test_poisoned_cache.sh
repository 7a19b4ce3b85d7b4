# A cache in a folder that others may write: somebody else replaces bytes and makes the checksums of the pieces fit them. Nobody gets
# these bytes: images are compared with hashes of the dataset, all else is only read from files of one's own.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
umask 022
"$TESTBIN/make_scenes" train 60 1 48 scenes.tar >/dev/null
expect 0 "$BIN/ccpack" -q -o www/ds --container tar --shard-samples 20 scenes.tar
expect 0 "$BIN/ccpack" tokenizer -q www/ds --vocab-size 80 --cache
serve() {
    coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www; }
    read -r port <&"${SERVER[0]}"
    url=http://127.0.0.1:$port/ds
}
stop() {
    kill "$SERVER_PID"
    wait "$SERVER_PID" || true
    SERVER_PID=
}
trap '[ -z "${SERVER_PID:-}" ] || kill "$SERVER_PID"' EXIT
serve
digest() { # digest DATA OPTION...
    expect 0 "$BIN/ccbench" loader "$@" --size 32 --batch-size 20 --epochs 1 --digest --no-limit --json
    field out.txt digest
}
fill() { # fill CACHE
    local_digest=$(digest www/ds)
    [ "$(digest "$url" --cache "$1")" = "$local_digest" ] || fail "other batches"
    expect 0 "$BIN/ccdump" cat "$url" --cache "$1"
    expect 0 "$BIN/ccdump" info "$url" --cache "$1"
}
hex() { od -An -v -tx1 | tr -d ' \n'; }
forge() { # forge CACHE OLD NEW: texts of one length, or hexadecimal after "hex:"; sets count
    old=$(case $2 in hex:*) echo "${2#hex:}" ;; *) printf %s "$2" | hex ;; esac)
    new=$(case $3 in hex:*) echo "${3#hex:}" ;; *) printf %s "$3" | hex ;; esac)
    count=$(python3 "$SRC/tests/security/forge_cache.py" "$1" "$old" "$new")
    [ "$count" -ge "${4:-1}" ] || fail "$count pieces of $1 had $2"
}
"$BIN/ccdump" cat www/ds >local.tar
"$BIN/ccdump" show www/ds 7 --image - >image.jpg
image=$(tail -c 60 image.jpg | head -c 40 | hex)

# Images: found by the dataset's hashes and fetched again, whoever wrote the piece.
mkdir -m 777 shared
local_digest=$(digest www/ds)
[ "$(digest "$url" --cache shared)" = "$local_digest" ] || fail "other batches"
forge shared "hex:$image" "hex:$(printf '%080d' 0)"
[ "$(digest "$url" --cache shared)" = "$local_digest" ] || fail "an image of the forger was delivered"
[ "$(digest "$url" --cache shared)" = "$local_digest" ] || fail "an image of the forger was delivered"

# A cache of one's own is shared by all that read it: pieces are there once.
mkdir -m 700 mine
mkdir -m 777 others
fill mine
fill others
[ "$(find mine -name '*-0' | wc -l)" -lt "$(find others -name '*-0' | wc -l)" ] || fail "a piece is twice in a cache of one's own"

# The rest needs another user, who replaces manifest, index, tokenizer and captions; with and without the server.
[ "$(id -u)" = 0 ] || { echo "files of another user were not tried: not root"; exit 0; }
poison() {
    umask 000
    rm -rf shared
    mkdir -m 777 shared
    fill shared
    forge shared '"created_by":"ccpack' '"created_by":"forger'
    forge shared "hex:$image" "hex:$(printf '%080d' 0)"
    forge shared "hex:$(tail -c 40 www/ds/tokenizer.model | head -c 12 | hex)" "hex:$(printf '%024d' 0)"
    forge shared "hex:$(tail -c 200 www/ds/tokens.cct | head -c 8 | hex)" "hex:$(printf '%016d' 0)"
    chown -R 65534 shared
}
poison
expect 0 "$BIN/ccdump" cat "$url" --cache shared
cmp out.txt local.tar || fail "ccdump cat gives bytes of the forger"
poison
[ "$(digest "$url" --cache shared)" = "$local_digest" ] || fail "ccbench gets bytes of the forger"
poison
expect 0 "$BIN/ccdump" verify "$url" --cache shared
expect 0 "$BIN/ccdump" show "$url" 7 --image - --cache shared
cmp out.txt image.jpg || fail "ccdump show gives an image of the forger"
poison
stop
expect 74 "$BIN/ccdump" info "$url" --cache shared
hasnt out.txt forger

# Without a server one's own manifest does, also beside the forger's.
serve
rm -rf shared
mkdir -m 777 shared
fill shared
stop
expect 0 "$BIN/ccdump" info "$url" --cache shared
has out.txt "ccpack"
