#!/bin/bash
# ccpack fetch against a server that goes wrong: every row is in a shard or in the ledger with its reason;
# kills and resumes end with the same bytes; retries fill holes; robots.txt and opt-outs are obeyed.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

"$TESTBIN/make_scenes" val 40 1 48 scenes.tar >/dev/null
mkdir www && tar xf scenes.tar -C www
printf 'User-agent: ccstream\nDisallow: /*row=7&x\n\nUser-agent: *\nDisallow: /\n' >www/robots.txt
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www --seed 1; }
read -r port <&"${SERVER[0]}"
trap 'kill "$SERVER_PID" 2>/dev/null' EXIT
python3 "$SRC/tests/net/fetch_list.py" www "$port" 300 0.3 >faults.txt
fast="--allow-private --rate-per-host 0 --per-host 32 --attempts 1 --shard-samples 50 --resize short:32 --phash"

# An undisturbed run.
expect 0 "$BIN/ccpack" fetch --json -o whole $fast list.tsv
has err.txt "rows rejected"
has err.txt "by host: 127.0.0.1 "
has err.txt "http-404: gone"
bad=$(wc -l <faults.txt)
[ "$(field out.txt fetched)" = $((300 - bad)) ] || fail "$(cat out.txt) with $bad bad rows"
expect 0 "$BIN/ccdump" verify whole
[ -z "$(ls whole/fetch/spool)" ] || fail "spooled images are left"
lines whole/fetch/ledger.jsonl 300
while read -r row reason; do
    grep -q "\"row\":$row,\"state\":\"[a-z]*\",\"reason\":\"$reason\"" whole/fetch/ledger.jsonl ||
        fail "row $row: not $reason but $(grep "\"row\":$row," whole/fetch/ledger.jsonl)"
    has whole/rejects.jsonl "\"row\":$row,"
done <faults.txt
expect 0 "$BIN/ccdump" show whole --id 299
has out.txt "caption 299"
has out.txt "row=299"
has out.txt "phash: "

# Killed again and again, then resumed: the same bytes, and nothing that was done is requested again.
python3 - "$port" <<'PYTHON'
import sys, urllib.request
urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/stats?reset").read()
PYTHON
for seconds in 0.05 0.1 0.15 0.2; do
    "$BIN/ccpack" fetch -q -o killed --resume $fast -c 8 list.tsv 2>killed.txt &
    pid=$!
    sleep "$seconds"
    kill -KILL $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true # until it is gone: timeout(1) would not
done
expect 0 "$BIN/ccpack" fetch -o killed --resume $fast -c 8 list.tsv
for file in dataset.json rejects.jsonl shard-000000.tar.zst shard-000003.cci; do
    cmp "whole/$file" "killed/$file" || fail "$file of a killed run differs"
done
python3 - "$port" <<'PYTHON' || fail "requests were repeated"
import json, sys, urllib.request
stats = json.load(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/stats"))
asked = {}
for request in stats["last"]:
    if "row=" in request["target"] and "fault" not in request["target"]:
        asked[request["target"]] = asked.get(request["target"], 0) + 1
again = sum(n - 1 for n in asked.values())
print(again, "requests were repeated")
sys.exit(again > 4 * 8)  # those that were running when it was killed
PYTHON
expect 0 "$BIN/ccpack" fetch -o killed --resume $fast list.tsv
has err.txt "finished already"

# Ctrl-C leaves what there is as a partial dataset, which a resumed run completes.
sed -e 's/&fault=[^&]*$//' -e 's/$/\&fault=latency:10/' list.tsv >slow.tsv
"$BIN/ccpack" fetch -o stopped $fast -c 1 slow.tsv 2>err.txt &
pid=$!
until [ "$(cat stopped/fetch/ledger.jsonl 2>/dev/null | wc -l)" -gt 60 ]; do sleep 0.02; done
kill -INT $pid
code=0
wait $pid || code=$?
[ "$code" = 130 ] || fail "exit code $code after Ctrl-C"
has err.txt "valid, partial dataset"
expect 0 "$BIN/ccdump" verify stopped
expect 0 "$BIN/ccpack" fetch --json -o stopped --resume $fast slow.tsv
[ "$(field out.txt samples)" = 300 ] && [ "$(field out.txt requests)" -le 240 ] || fail "$(cat out.txt)"

# Files of the spool are reused once their images are in a shard: one row at a time gives the same bytes.
for connections in 32 1; do
    expect 0 $last "$BIN/ccpack" fetch -o few-$connections $fast --resize none --shard-samples 5 -c $connections list.tsv
done
expect 0 diff -r -x fetch few-32 few-1

# A retry fills holes and changes no id.
sed -e 's/&fault=[^&]*$//' list.tsv >cured.tsv
grep -c 'http-404' faults.txt >count.txt
expect 0 "$BIN/ccpack" fetch --json -o whole $fast --retry 4xx cured.tsv
[ "$(field out.txt fetched)" = "$(cat count.txt)" ] || fail "$(cat out.txt): not all 404 were fetched"
expect 0 "$BIN/ccdump" verify whole
row=$(awk '$2 == "http-404" { print $1; exit }' faults.txt)
expect 0 "$BIN/ccdump" show whole --id "$row"
has out.txt "caption $row"
expect 0 "$BIN/ccpack" fetch -o whole $fast --retry 4xx cured.tsv
has err.txt "nothing to retry"
"$BIN/ccpack" fetch -q -o whole --resume $fast --retry failed cured.tsv 2>killed.txt &
pid=$!
sleep 0.05
kill -KILL $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
expect 0 "$BIN/ccpack" fetch --json -o whole --resume $fast --retry failed cured.tsv
expect 0 "$BIN/ccpack" fetch -o whole $fast --retry excluded,failed cured.tsv
[ "$("$BIN/ccdump" info --json whole | sed 's/.*"samples":\([0-9]*\).*/\1/')" = 300 ] ||
    fail "not all rows are there after retries"

# Opt-outs by host, URL and hash; robots.txt; private addresses; a second image with the same bytes.
printf 'caption\turl\n' >small.tsv
for row in 0 1 2 3 4 7; do
    printf 'c %s\thttp://127.0.0.1:%s/%s?row=%s&x\n' "$row" "$port" "$(ls www | grep jpg | sed -n "$((row % 3 + 1))p")" "$row"
done >>small.tsv
printf 'c\thttp://localhost:%s/%s\n' "$port" "$(ls www | grep -m1 jpg)" >>small.tsv
first=$(ls www | grep -m1 jpg)
printf '# not these\nlocalhost\nhttp://127.0.0.1:%s/%s?row=0&x\n' "$port" "$first" >opt-out.txt
expect 0 "$BIN/ccpack" fetch --json -o small --allow-private --rate-per-host 0 --opt-out opt-out.txt --dedup exact small.tsv
has out.txt '"reasons":{"opt-out":2,"robots":1}'
has err.txt "1 duplicate"
hash=$(sed -n 's/.*"row":1,.*"xxh64":"\([0-9a-f]*\)".*/\1/p' small/fetch/ledger.jsonl)
echo "$hash" >>opt-out.txt
expect 0 "$BIN/ccpack" fetch --json -o small --overwrite --allow-private --no-robots --opt-out opt-out.txt small.tsv
has out.txt '"reasons":{"opt-out":5}'
expect 65 "$BIN/ccpack" fetch -o public small.tsv
has err.txt "7 private"
[ "$(grep -c -- --allow-private err.txt)" = 1 ] || fail "one line does not name --allow-private"
expect 0 "$BIN/ccpack" fetch -o public --overwrite --allow-private --no-robots small.tsv
! grep -q private err.txt || fail "$(cat err.txt)"

# --no-robots ignores X-Robots-Tag too.
printf 'caption\turl\tlicense\nc\thttp://127.0.0.1:%s/%s?row=0&fault=noai\tby\nd\thttp://127.0.0.1:%s/%s?row=1\tcc0\n' "$port" "$first" "$port" "$first" >tagged.tsv
expect 0 "$BIN/ccpack" fetch --json -o tagged --allow-private tagged.tsv
has out.txt '"reasons":{"noai":1}'
has err.txt "tagged.tsv: kept as metadata: 'license'"
"$BIN/ccdump" show tagged 1 --json | grep -q '"url":"http[^"]*row=1","license":"cc0"' || fail "the list's columns are not kept: $("$BIN/ccdump" show tagged 1 --json)"
expect 0 "$BIN/ccpack" fetch --json -o untagged --allow-private --no-robots tagged.tsv
[ "$(field out.txt samples)" = 2 ] || fail "$(cat out.txt): --no-robots obeys X-Robots-Tag"

# A retry reads the list as it was read, and packs as was packed.
second=$(ls www | grep jpg | sed -n 2p)
{
    printf 'caption\ttitle\turl\n'
    printf 'c 0\tt 0\thttp://127.0.0.1:%s/%s?row=0\n' "$port" "$first"
    printf 'c 1\tt 1\thttp://127.0.0.1:%s/%s?row=1&fault=404\n' "$port" "$first"
    printf 'c 2\tt 2\thttp://127.0.0.1:%s/%s?row=2&fault=404\n' "$port" "$second"
} >titles.tsv
sed 's/&fault=404//' titles.tsv >titles-cured.tsv
echo example.org >opt-out.txt
expect 0 "$BIN/ccpack" fetch -o titles --allow-private --caption-column title --dedup exact --max-size 1MiB --opt-out opt-out.txt titles.tsv
expect 65 "$BIN/ccpack" fetch -o titles --allow-private --retry 4xx titles-cured.tsv
has err.txt "opt-out was FILE, is not given; add --opt-out FILE"
expect 65 "$BIN/ccpack" fetch -o titles --allow-private --retry 4xx --opt-out opt-out.txt --caption-column caption titles-cured.tsv
has err.txt "caption-column was title, is caption; add --caption-column title"
expect 0 "$BIN/ccpack" fetch -o titles --allow-private --retry 4xx --opt-out opt-out.txt titles-cured.tsv
has err.txt "as the dataset in titles: --dedup exact --caption-column title --max-size 1048576"
has err.txt "1 duplicate"
"$BIN/ccdump" show titles --id 2 | grep -q "t 2" || fail "a retried row has another caption: $("$BIN/ccdump" show titles --id 2)"

# The line of progress names the host that is waited for, and why.
for row in $(seq 12); do
    printf 'http://127.0.0.1:%s/%s?row=%s\n' "$port" "$first" "$row"
done >one-host.txt
if script -qec true /dev/null >typed.txt 2>&1 </dev/null; then # a machine may have no terminals to give
    script -qec "stty cols 160; '$BIN/ccpack' fetch -o one-host --allow-private one-host.txt" /dev/null >shown.txt || fail "$(cat shown.txt)"
    has shown.txt "waiting for 127.0.0.1, 5 requests/s (--rate-per-host)"
fi

# Mistakes.
expect 65 "$BIN/ccpack" -o files small.tsv
has err.txt "ccpack fetch"
expect 64 "$BIN/ccpack" fetch -o whole --retry tomorrow list.tsv
expect 66 "$BIN/ccpack" fetch -o new none.tsv
expect 73 "$BIN/ccpack" fetch -o whole list.tsv
has err.txt "--append those of another list"
echo 'not a host or url /' >wrong.txt
expect 65 "$BIN/ccpack" fetch -o new --opt-out wrong.txt list.tsv
has err.txt "line 1"
expect 64 "$BIN/ccpack" fetch -o new list.tsv small.tsv
has err.txt "--append adds this one afterwards"

# A server that fails to answer for robots.txt is not asked for anything else.
for fault in 503 reset; do
    exec 3< <(exec python3 "$SRC/tests/net/fault_server.py" www --robots-fault $fault)
    read -r other <&3
    sed "s/:$port/:$other/" small.tsv >moved.tsv
    expect 65 "$BIN/ccpack" fetch -o unreachable-$fault --allow-private moved.tsv
    has err.txt "7 robots-unreachable"
done
