# Packs real collections and reads them back: ids, captions, metadata and the bytes of images equal the
# source. Python's tarfile and json read both sides, so that no code of ours checks itself.
. "$SRC/tests/support/cli.sh"

data=${CCSTREAM_TEST_DATA:-}
[ -e "$data/pairs/000000.tar" ] || { echo "skipped: CCSTREAM_TEST_DATA names no test data"; exit 77; }
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
command -v zstd >which.txt || { echo "skipped: no zstd program"; exit 77; }
trip="python3 $SRC/tests/support/roundtrip.py"

classes=
compare() { # compare COUNT: the dataset ./out against expected.txt
    lines expected.txt "$1"
    $trip actual "$BIN/ccdump" out $classes >actual.txt || fail "reading the shards"
    cmp expected.txt actual.txt || { diff expected.txt actual.txt | head -5; fail "the samples differ"; }
}
extracted() { # the files that extract makes of ./out
    rm -rf files
    "$BIN/ccdump" extract out -o files -q
    sed 's/.*"sha256": "\([0-9a-f]*\)".*/\1/' expected.txt | sort >wanted.txt
    find files -type f ! -name '*.txt' ! -name '*.json' -exec sha256sum {} + | cut -d ' ' -f 1 | sort |
        cmp - wanted.txt || fail "extracted images are not the source's"
}
both() { # both COUNT OPTION...: in every container
    count=$1
    shift
    for container in "${containers[@]}"; do
        "$BIN/ccpack" -q --overwrite -o out --container "$container" "$@" || fail "ccpack $*"
        compare "$count"
    done
    extracted
}
containers=(tar.zst tar)

pairs=("$data"/pairs/*.tar)
count=3600
if [ "${CCS_SANITIZE:-}" ]; then # test_ccpack_data.sh packs all of them there too
    pairs=("${pairs[0]}")
    count=$(tar tf "${pairs[0]}" | grep -c 'txt$')
fi
$trip expected wds "${pairs[@]}" >expected.txt
both "$count" --shard-samples 1000 "${pairs[@]}"
$trip expected wds "$data"/pairs_vi/*.tar >expected.txt
both 160 "$data"/pairs_vi/*.tar

# The tar that ccdump cat writes is a source with the same samples.
"$BIN/ccdump" cat out >cat.tar
"$BIN/ccpack" -q --overwrite -o out cat.tar
compare 160
[ -z "${CCS_SANITIZE:-}" ] || containers=(tar.zst) # the other one has had two collections

mkdir raw retrieval
tar xf "$data/raw/images.tar" -C raw
$trip expected tsv "$data/raw/captions.tsv" raw/images >expected.txt
both 190 --images raw/images "$data/raw/captions.tsv"

tar xf "$data/retrieval/images.tar" -C retrieval
$trip expected coco "$data/retrieval/captions.json" retrieval/images >expected.txt
both 500 --images retrieval/images "$data/retrieval/captions.json"
$trip expected karpathy "$data/retrieval/dataset_karpathy.json" retrieval/images >expected.txt
both 500 --images retrieval/images "$data/retrieval/dataset_karpathy.json"
"$BIN/ccdump" cat out | "$BIN/ccpack" -q --overwrite -o out - # five captions each
compare 500

# Class folders, and tars of them: classes instead of captions.
classes=classes
for set in imagenet200 cifar10; do
    tar xf "$data/zeroshot/$set.tar"
    $trip expected folders $set >expected.txt
    for from in $set "$data/zeroshot/$set.tar"; do
        [ -z "${CCS_SANITIZE:-}" ] || [[ $from = imagenet200 || $from = */cifar10.tar ]] || continue # each kind once
        both "$(wc -l <expected.txt)" --from folders "$from"
    done
done
echo passed
