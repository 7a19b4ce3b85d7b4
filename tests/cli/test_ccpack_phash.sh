#!/bin/bash
# ccpack --phash on photographs: the hashes of ImageHash but for a few bits, resized or not.
. "$SRC/tests/support/cli.sh"
data=${CCSTREAM_TEST_DATA:-}
[ -e "$data/raw/images.tar" ] || { echo "skipped: CCSTREAM_TEST_DATA names no test data"; exit 77; }
tar xf "$data/raw/images.tar"

# compare LIMIT TOTAL: no hash of the dataset differs in more than LIMIT bits, all together in at most TOTAL.
compare() {
    sum=0 most=0 count=0
    while read -r key hash theirs; do
        apart=0
        for ((x = 16#$hash ^ 16#$theirs; x != 0; x &= x - 1)); do apart=$((apart + 1)); done
        sum=$((sum + apart)) count=$((count + 1)) most=$((apart > most ? apart : most))
    done < <(tar xOf out/shard-000000.tar --wildcards '*.json' | grep -o '"phash":"[0-9a-f]*' | cut -d'"' -f4 |
        paste -d' ' <(tar tf out/shard-000000.tar | sed -n 's/\.json$//p') - | sort |
        join - <(grep -v '^#' "$SRC/tests/golden/phash/real.txt" | sort))
    echo "$count hashes: $sum bits of ImageHash's differ, at most $most"
    [ "$count" = 190 ] && [ "$most" -le "$1" ] && [ "$sum" -le "$2" ] || fail "too many bits differ"
}
expect 0 "$BIN/ccpack" -q -o out --phash --container tar --images images "$data/raw/captions.tsv"
compare 4 100
expect 0 "$BIN/ccdump" show out --id 0
has out.txt "phash: "
expect 0 "$BIN/ccpack" -q -o out --phash --container tar --resize short:128 --overwrite --images images "$data/raw/captions.tsv"
compare 4 100
expect 64 "$BIN/ccpack" -q -o new --phash --no-check --images images "$data/raw/captions.tsv"
has err.txt "exclude each other"
