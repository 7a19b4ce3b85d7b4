#!/bin/bash
# A cache is its owner's alone, unless others may write its folder.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
umask 022
"$TESTBIN/make_scenes" train 40 1 32 scenes.tar >/dev/null
expect 0 "$BIN/ccpack" -q -o www/ds scenes.tar
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www; }
read -r port <&"${SERVER[0]}"
trap 'kill "$SERVER_PID"' EXIT
modes() { # modes CACHE: of its files
    find "$1" -type f -printf '%m\n' | sort -u | tr '\n' ' '
}
mkdir mine shared
chmod 1777 shared
for cache in new mine shared; do
    expect 0 "$BIN/ccdump" verify "http://127.0.0.1:$port/ds" --cache "$cache"
done
[ "$(stat -c %a new)" = 700 ] || fail "a new cache has mode $(stat -c %a new)"
[ "$(modes new)" = "600 " ] && [ "$(modes mine)" = "600 " ] || fail "pieces of one's own have modes $(modes new)$(modes mine)"
[ "$(modes shared)" = "644 " ] || fail "shared pieces have modes $(modes shared)"
