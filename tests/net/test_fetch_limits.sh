#!/bin/bash
# ccpack fetch: --max-size while a body arrives, bombs, shapes that are not wanted; and what a run leaves in which
# not one row became a sample.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

"$TESTBIN/make_scenes" val 12 1 96 scenes.tar >/dev/null
mkdir www && tar xf scenes.tar -C www
first=$(cd www && ls | grep -m1 'jpg$')
cp "www/$first" www/large.jpg
truncate -s 256M www/large.jpg # zeros after the image
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www; }
read -r port <&"${SERVER[0]}"
trap 'kill "$SERVER_PID" 2>/dev/null' EXIT
fetch() { # fetch CODE DIR OPTION...: of list.tsv; peak.txt has the KiB of memory that it took
    local want=$1 directory=$2
    shift 2
    expect "$want" python3 -c '
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
open("peak.txt", "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)' "$BIN/ccpack" fetch --json -o "$directory" --allow-private --no-robots --rate-per-host 0 --attempts 1 "$@" list.tsv
}
list() { # list TARGET...: rows of them and of good images, in turns
    for target in "$@"; do
        printf 'c\thttp://127.0.0.1:%s/%s\nc\thttp://127.0.0.1:%s/%s\n' "$port" "$target" "$port" "$first?$((n += 1))"
    done >list.tsv
}
ledger() { # ledger DIR ROW TEXT: the row's line has it
    grep -q "\"row\":$2,.*$3" "$1/fetch/ledger.jsonl" || fail "no $3 for row $2: $(cat "$1/fetch/ledger.jsonl")"
}
rejected() { # rejected DIR ROW REASON DETAIL
    grep "\"row\":$2," "$1/rejects.jsonl" >line.txt || fail "row $2 is not in $1/rejects.jsonl"
    has line.txt "\"reason\":\"$3\""
    has line.txt "$4"
}
n=0

# A body of 256 MiB with its length, without it, without an end; 256 MiB in 0.3 MiB. Each row before and after is
# there, and memory is that of a run of small images.
list "$first?a" "$first?b" "$first?c" "$first?d"
fetch 0 small
[ "$(field out.txt samples)" = 8 ] || fail "$(cat out.txt)"
usual=$(cat peak.txt)
list "large.jpg?length" "large.jpg?fault=chunked" "large.jpg?fault=no_length" "$first?fault=gzip_bomb" "$first?fault=gzip"
fetch 0 large
[ "$(cat peak.txt)" -lt $((usual + 96 * 1024)) ] || fail "took $(cat peak.txt) KiB, and $usual for small images"
[ "$(field out.txt samples) $(field out.txt too_large)" = "6 4" ] || fail "$(cat out.txt)"
[ "$(field out.txt requests)" = 10 ] || fail "$(cat out.txt): a row that is too large was asked for again"
[ "$(sed 's/.*"fetch":{.*"bytes":\([0-9]*\).*/\1/' out.txt)" -le $((3 * (20 << 20) + 6 * $(wc -c <"www/$first"))) ] ||
    fail "$(cat out.txt): more than --max-size came"
for row in 0 2 4 6; do
    ledger large $row '"state":"failed","reason":"too_large","http":200,'
    rejected large $row fetch-failed '"detail":"too_large"'
done
expect 0 "$BIN/ccdump" verify large
expect 0 "$BIN/ccdump" ls large
for row in 1 3 5 7 8 9; do
    grep -q "^ *$row\b" out.txt || fail "row $row is missing: $(cat out.txt)"
done
[ -z "$(ls large/fetch/spool)" ] || fail "a body that is too large was left in the spool"

# The limit counts what is unpacked, and is exact.
size=$(wc -c <"www/$first")
list "$first?length" "$first?fault=chunked" "$first?fault=gzip"
fetch 0 exact --max-size "$size"
[ "$(field out.txt samples)" = 6 ] || fail "$(cat out.txt)"
fetch 65 below --max-size $((size - 1))
has err.txt "6 too_large"

# Shapes that are not wanted: fetched by the ledger, rejected with their reason; also where that is every row.
python3 - <<'PYTHON'
import struct, zlib
def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
open("www/wide.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 200, 20, 8, 0, 0, 0, 0)) +
                                 chunk(b"IDAT", zlib.compress((b"\0" + bytes(range(200))) * 20)) + chunk(b"IEND", b""))
PYTHON
list "wide.png?shape"
fetch 0 narrow --max-aspect 9.5
[ "$(field out.txt fetched) $(field out.txt samples)" = "2 1" ] || fail "$(cat out.txt)"
ledger narrow 0 '"state":"fetched"'
rejected narrow 0 image-aspect "200 x 20 pixels"
fetch 0 as-wide --max-aspect 10 --min-side 20
[ "$(field out.txt samples)" = 2 ] || fail "$(cat out.txt)"
fetch 0 tall --min-side 21
rejected tall 0 image-small "200 x 20 pixels"
fetch 65 none --min-side 1000
has err.txt "none of the 2 rows is usable"
lines none/rejects.jsonl 2
for row in 0 1; do
    ledger none $row '"state":"fetched"'
    rejected none $row image-small "1000"
done

# Where every row fails the reasons are there, and no dataset. The same command may be given again, and with
# --resume requests nothing; what has become a dataset is not replaced.
list "none.jpg" "large.jpg?again"
sed -i '2d; 4d' list.tsv
fetch 65 failed
[ "$(ls failed | tr '\n' ' ')" = "fetch rejects.jsonl " ] || fail "$(ls failed)"
rejected failed 0 fetch-failed '"detail":"http-404"'
rejected failed 1 fetch-failed '"detail":"too_large"'
cp failed/rejects.jsonl first.jsonl
fetch 65 failed --resume
has err.txt "with 0 requests"
cmp failed/rejects.jsonl first.jsonl
fetch 65 failed
has err.txt "with 2 requests"
cmp failed/rejects.jsonl first.jsonl
fetch 66 failed --retry failed
has err.txt "no dataset whose gaps --retry could fill; omit --retry to fetch the whole list"
cp "www/$first" www/none.jpg
fetch 0 failed
lines failed/rejects.jsonl 1
rejected failed 1 fetch-failed too_large
fetch 73 failed
lines failed/rejects.jsonl 1
