# ccdump on a dataset of made-up samples: each command, its JSON, and its refusals.
set -eu
fail() {
    echo "FAILED: $*"
    exit 1
}
expect() { # expect CODE COMMAND...
    want=$1
    shift
    code=0
    "$@" >out.txt 2>err.txt || code=$?
    [ "$code" = "$want" ] || { cat out.txt err.txt; fail "exit code $code, not $want: $*"; }
}
has() { # has FILE TEXT
    grep -qF -- "$2" "$1" || { cat "$1"; fail "no '$2' in $1"; }
}

"$TESTBIN/make_dataset" d 250 100

expect 0 "$BIN/ccdump" info d
has out.txt "samples      250"
expect 0 "$BIN/ccdump" info d d --json
[ "$(wc -l <out.txt)" = 2 ] || fail "one line per dataset"
for key in samples id_space texts shards image_bytes bytes fingerprint container created_by; do
    has out.txt "\"$key\":"
done
has out.txt '"samples":250,"id_space":250,'
has out.txt '"container":"tar.zst"'
expect 66 "$BIN/ccdump" info nowhere
has err.txt nowhere/dataset.json

expect 0 "$BIN/ccdump" show d --id 116 --json
has out.txt '"id":116,"key":"k000000116","captions":["caption 0 of 116: '
has out.txt '"width":116,"height":116,"format":"jpeg",'
has out.txt '"meta":{"url":'
expect 0 "$BIN/ccdump" show d --position 10
has out.txt "sample 10  key k000000010"
expect 66 "$BIN/ccdump" show d --id 250
has err.txt "no sample 250"
expect 66 "$BIN/ccdump" show d --position 250
expect 64 "$BIN/ccdump" show d --id 1 --position 1
expect 64 "$BIN/ccdump" show d --nonsense
expect 64 "$BIN/ccdump" nonsense

expect 0 "$BIN/ccdump" cat d --id 115 --caption
[ "$(wc -l <out.txt)" = 5 ] || fail "five captions"
expect 0 "$BIN/ccdump" cat d --id 115 --json-text
has out.txt '"key":"k000000115"'
expect 64 "$BIN/ccdump" cat d --image
expect 64 "$BIN/ccdump" cat d --id 1 --image --caption

expect 0 "$BIN/ccdump" verify d
has out.txt "ok: 250 samples"
expect 0 "$BIN/ccdump" verify d --json
has out.txt '"ok":true'

# One byte of one image: the fault names shard, sample and byte.
cp -r d bad
"$BIN/ccdump" show bad --id 116 --json >show.txt
offset=$(sed 's/.*"image_offset":\([0-9]*\),.*/\1/' show.txt)
printf 'X' | dd of=bad/made-000001.tar.zst bs=1 seek="$((offset + 700))" conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" verify bad
has out.txt "bad/made-000001.tar.zst: byte 0:"
has out.txt "bad/made-000001.tar.zst: sample 116: byte"
expect 65 "$BIN/ccdump" verify bad --json
has out.txt '"shard":"made-000001.tar.zst","offset":'
has out.txt '"id":116'
has out.txt '"ok":false'
expect 65 "$BIN/ccdump" show bad --id 116
expect 0 "$BIN/ccdump" show bad --id 117
expect 65 "$BIN/ccdump" verify d bad d

# A sidecar that is gone, or of another shard, costs nothing but is told.
cp -r d side
rm side/made-000000.cci
cp side/made-000002.cci side/made-000001.cci
expect 0 "$BIN/ccdump" show side --id 116 --json
cmp out.txt show.txt
expect 65 "$BIN/ccdump" verify side
has out.txt "made-000001.cci"
cp d/made-000001.cci side/
expect 0 "$BIN/ccdump" verify side

rm side/made-000002.tar.zst
expect 65 "$BIN/ccdump" verify side
has out.txt made-000002.tar.zst
expect 66 "$BIN/ccdump" show side --id 1
truncate -s -1 d/made-000002.tar.zst
expect 65 "$BIN/ccdump" verify d
expect 65 "$BIN/ccdump" show d --id 1

# Nobody reads the answer.
if [ -e /dev/full ]; then
    code=0
    "$BIN/ccdump" info bad >/dev/full 2>err.txt || code=$?
    [ "$code" = 74 ] || fail "exit code $code on a full disk"
fi
echo passed
