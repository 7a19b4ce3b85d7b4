#!/bin/bash
# ccpack on real collections: every sample is packed; odd or broken files are counted and listed.
. "$SRC/tests/support/cli.sh"

data=${CCSTREAM_TEST_DATA:-}
if [ ! -e "$data/pairs/000000.tar" ]; then
    echo "skipped: CCSTREAM_TEST_DATA names no test data"
    exit 77
fi
# pack SAMPLES CAPTIONS REJECTS OPTION...: packs into ./out, verifies, compares the summary.
pack() {
    local want="$1 $2 $3"
    shift 3
    "$BIN/ccpack" -q --json --overwrite -o out "$@" >out.json 2>err.txt ||
        fail "ccpack $*: $(cat err.txt)"
    local got
    got=$(sed 's/.*"samples":\([0-9]*\),"rejected":\([0-9]*\),"texts":\([0-9]*\),.*/\1 \3 \2/' out.json)
    [ "$got" = "$want" ] || fail "samples, captions, rejects are $got, not $want: ccpack $*"
    "$BIN/ccdump" verify out >/dev/null 2>err.txt || fail "verify after ccpack $*: $(cat err.txt)"
}

pack 3600 3600 0 --shard-samples 1000 "$data"/pairs/*.tar
for shard in out/shard-*.tar.zst; do
    zstd -q -t "$shard" && tar --zstd -tf "$shard" >/dev/null || fail "$shard is not readable"
done
pack 160 160 0 "$data"/pairs_vi/*.tar
mkdir raw retrieval hostile
tar xf "$data/raw/images.tar" -C raw
pack 190 190 0 --images raw/images "$data/raw/captions.tsv"
pack 190 190 0 --images raw/images --resize short:96 "$data/raw/captions.tsv"
tar xf "$data/retrieval/images.tar" -C retrieval
pack 500 2500 0 --images retrieval/images "$data/retrieval/captions.json"

tar xf "$data/hostile/files.tar" -C hostile
tail -n +2 "$data/hostile/manifest.tsv" | awk -F '\t' '{ print "image " NR "\t" $1 }' >hostile.tsv
rows=$(wc -l <hostile.tsv)
"$BIN/ccpack" -q --json -o odd --max-bad 100% --images hostile/files hostile.tsv >out.json 2>err.txt ||
    fail "hostile files: $(cat err.txt)"
listed=$(wc -l <odd/rejects.jsonl)
packed=$(sed 's/.*"samples":\([0-9]*\).*/\1/' out.json)
[ $((listed + packed)) -eq "$rows" ] || fail "of $rows odd files $packed are packed, $listed listed"
[ "$packed" -ge 50 ] && [ "$listed" -ge 15 ] || fail "odd files: $packed packed, $listed listed"
# The same as a tar: five images share a stem, and none has a caption.
expect 65 "$BIN/ccpack" -q -o bare --max-bad 100% "$data/hostile/files.tar"
grep -q "none of the $rows rows is usable" err.txt || fail "not all of $rows members are rows: $(cat err.txt)"
n=0
tail -n +2 "$data/hostile/manifest.tsv" | cut -f 1 | while read -r name; do
    n=$((n + 1))
    cp "hostile/files/$name" "$n-$name"
    echo "a caption" >"$n-${name%%.*}.txt"
    tar rf captions.tar "$n-$name" "$n-${name%%.*}.txt"
done
"$BIN/ccpack" -q --json -o twin --max-bad 100% captions.tar >out.json 2>err.txt || fail "tar: $(cat err.txt)"
twin=$(sed 's/.*"samples":\([0-9]*\).*/\1/' out.json)
[ $(($(wc -l <twin/rejects.jsonl) + twin)) -eq "$rows" ] || fail "of $rows images $twin are packed, $(wc -l <twin/rejects.jsonl) listed"
[ "$twin" -eq "$packed" ] || fail "$twin images are packed from a tar, $packed from a table"
"$BIN/ccdump" verify twin >/dev/null || fail "verify after odd files in a tar"
"$BIN/ccdump" verify odd >/dev/null || fail "verify after odd files"
