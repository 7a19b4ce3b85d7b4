# The page formats/SHARD_FORMAT.md against the program: a reader that was written from the page alone
# reads the golden datasets and what ccpack writes in every container, with images above 128 KiB
# and captions too long for a compressed head, and sees the samples that ccdump sees.
. "$SRC/tests/support/cli.sh"
command -v zstd >which.txt || { echo "skipped: no zstd program"; exit 77; }
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

by_page() { # by_page DATASET: its samples by both readers
    "$BIN/ccdump" cat "$1" >all.tar || fail "ccdump cat $1"
    python3 "$SRC/tests/support/read_shard.py" "$1" all.tar >"$(basename "$1").jsonl" || fail "$1 by the page"
}

for container in ok ok-tar ok-tar-foreign; do
    by_page "$SRC/tests/golden/shard/v1/$container"
    [ "$(wc -l <$container.jsonl)" = 2 ] || fail "$container does not have 2 samples"
done
by_page "$SRC/tests/golden/shard/v1/ok-removed"
head -1 ok.jsonl | cmp - ok-removed.jsonl || fail "the golden dataset with a removed sample"
cmp ok.jsonl ok-tar.jsonl || fail "the golden shards of two containers differ"

"$TESTBIN/make_scenes" val 70 1 48 scenes.tar >scenes.txt
mkdir source && tar xf scenes.tar -C source
set -- source/*.jpg
i=0
while [ $i -lt 300 ]; do
    cat "$1"
    i=$((i + 1))
done >tail
cat tail >>"$2" # an image of several blocks
i=0
while [ $i -lt 9000 ]; do
    echo "a very long caption, line $i"
    i=$((i + 1))
done | head -c 200000 >"${3%.jpg}.txt"
printf 'a\001b' >"${4%.jpg}.txt"
printf '{"name":"caf\303\251"}' >"${5%.jpg}.json"
printf '{"valid":' >"${6%.jpg}.json"
: >"${7%.jpg}.json"
tar cf source.tar --sort=name -C source .
mkdir indexed && cp source.tar indexed/
expect 0 "$BIN/ccpack" -o zst --no-check --shard-samples 33 source.tar
expect 0 "$BIN/ccpack" -o tar --no-check --shard-samples 33 --container tar source.tar
expect 0 "$BIN/ccpack" index --no-check indexed/source.tar
for dataset in zst tar indexed; do
    by_page $dataset
    [ "$(wc -l <$dataset.jsonl)" = 70 ] || fail "$dataset has not 70 samples"
done
cmp zst.jsonl tar.jsonl || fail "the two containers hold different samples"
[ "$(grep -c '"json": null' zst.jsonl)" = "$(($(grep -c '"json": null' indexed.jsonl) + 1))" ] ||
    fail "the invalid JSON, which ccpack drops, is still in the indexed tar"
grep -q '"a\\u0001b"' zst.jsonl || fail "a control character in a caption"
grep -q '"{\\"valid\\":"' indexed.jsonl || fail "JSON that does not parse, in a foreign tar"

# Removed samples, before and after the shards are rewritten.
seq 5 40 >ids.txt
for dataset in zst tar; do
    cp -r $dataset "less-$dataset"
    expect 0 "$BIN/ccpack" remove "less-$dataset" --ids ids.txt
    by_page "less-$dataset"
    mv "less-$dataset.jsonl" before.jsonl
    [ "$(wc -l <before.jsonl)" = 34 ] || fail "less-$dataset has not 34 samples"
    expect 0 "$BIN/ccpack" compact "less-$dataset"
    by_page "less-$dataset"
    cmp "less-$dataset.jsonl" before.jsonl || fail "compact changed samples"
done

# The reader of the page finds damage, too.
for at in 20 3000 100000; do
    cp zst/shard-000000.tar.zst kept
    printf '\377' | dd of=zst/shard-000000.tar.zst bs=1 seek=$at conv=notrunc 2>dd.txt
    if python3 "$SRC/tests/support/read_shard.py" zst >out.txt 2>&1; then
        cmp -s kept zst/shard-000000.tar.zst || fail "byte $at changed, and the reader does not see it"
    fi
    mv kept zst/shard-000000.tar.zst
done
echo passed
