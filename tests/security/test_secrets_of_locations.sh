#!/bin/bash
# User names, passwords and queries of locations are in no page, log, message, listing or process list; config.json, which
# --resume needs, is its owner's alone where it holds one.
. "$SRC/tests/support/cli.sh"
unset CCSTREAM_REPORT
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
umask 022
"$TESTBIN/make_scenes" train 200 1 32 scenes.tar >/dev/null
expect 0 "$BIN/ccpack" -q -o www/ds scenes.tar
expect 0 "$BIN/ccpack" tokenizer -q www/ds --vocab-size 500
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www; }
read -r port <&"${SERVER[0]}"
trap 'kill "$SERVER_PID"' EXIT
url="http://USERNAME:PASSWD@127.0.0.1:$port/ds?X-Amz-Signature=SIGSECRET&sig=a'b"
clean() { # clean FILE...: without the secrets
    grep -lE 'USERNAME|PASSWD|SIGSECRET' "$@" && fail "secrets in $*" || true
}
small="--task two-views --image-tower tiny --image-size 32 --batch-size 8 --eval-every 0 --loss sogclr"
expect 0 "$BIN/ccstream-train" --data "$url" --out run $small --steps 2 --report --json --cache cache
clean out.txt err.txt run/report.html run/sessions.jsonl run/metrics.jsonl
[ "$(stat -c %a run/config.json)" = 600 ] || fail "config.json has mode $(stat -c %a run/config.json)"
! grep -rqE 'USERNAME|PASSWD|SIGSECRET' cache || fail "secrets in the cache"
expect 0 "$BIN/ccstream-train" --resume run --steps 3 -q
[ "$(stat -c %a run/config.json)" = 600 ] || fail "config.json after --resume"
clean out.txt err.txt run/sessions.jsonl
expect 0 "$BIN/ccstream-report" run -o page.html
clean out.txt err.txt page.html
expect 0 "$BIN/ccstream-report" run -o page.html --force --data "$url"
clean out.txt err.txt page.html
# Files of older builds, whose launches have them.
sed -i "s#\"directory\":\"#\"directory\":\"$(printf %s "$url" | sed 's/[&#]/\\&/g')#" run/sessions.jsonl
expect 0 "$BIN/ccstream-report" run -o page.html --force
clean page.html
expect 0 "$BIN/ccstream-train" --data www/ds --out plain $small --steps 1 -q
[ "$(stat -c %a plain/config.json)" = 644 ] || fail "config.json without secrets has mode $(stat -c %a plain/config.json)"

for command in info "info --json" verify "verify --json" stats "stats --json" "ls --keys" "ls --shards" find duplicates "order --step 0" \
    "stats --html stats.html --force"; do
    set -- $command
    program=$1
    shift
    "$BIN/ccdump" "$program" "$url" "$@" >out.txt 2>err.txt || true
    clean out.txt err.txt
done
clean stats.html
expect 0 "$BIN/ccdump" why run "$url" 1 --html why.html
clean out.txt err.txt why.html
expect 0 "$BIN/ccstream-eval" embed run --data "$url" --out vectors --json
clean out.txt err.txt vectors*
expect 0 "$BIN/ccbench" loader "$url" --json --no-limit --epochs 1 --size 32
clean out.txt err.txt
expect 0 "$BIN/ccpack" subset "$url" --where 'width > 1' -o subset --json
clean out.txt err.txt subset/dataset.json
# Failures.
for wrong in "${url/\/ds/\/none}" "${url/$port/1}" "ftp${url#http}" "${url/127/256}" "$url#fragment" "${url/\/ds/\/ds.tar}"; do
    for program in "ccdump info" "ccdump verify" "ccstream-train --out new $small --data" "ccbench loader" "ccpack -o packed"; do
        set -- $program
        name=$1
        shift
        "$BIN/$name" "$@" "$wrong" >out.txt 2>err.txt && fail "$program $wrong" || true
        clean out.txt err.txt
    done
done
rm -r www/ds/*.cci
expect 0 "$BIN/ccdump" info "$url"
dd if=/dev/urandom of="$(ls www/ds/*.tar.zst | head -1)" bs=1k seek=20 count=8 conv=notrunc status=none
"$BIN/ccdump" verify "$url" >out.txt 2>err.txt && fail "a damaged shard is whole" || true
clean out.txt err.txt

# ps.
"$BIN/ccbench" loader www/ds "$url" --no-limit --epochs 1000 --size 32 >out.txt 2>err.txt &
pid=$!
sleep 1
tr '\0' '\n' <"/proc/$pid/cmdline" >ps.txt
kill $pid
has ps.txt "http://127.0.0.1:$port/ds?..."
clean ps.txt
