# ccpack index: tars of every form that tools write become a dataset in place, with the samples and the
# fingerprint of packing them, and are not changed; refusals name the way out.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" val 24 1 48 scenes.tar >scenes.txt
mkdir source && tar xf scenes.tar -C source
long=$(printf 'l%.0s' $(seq 120))
first=$(ls source/*.jpg | head -1)
for ending in jpg txt; do # a name for which no header has room
    cp "${first%.jpg}.$ending" "source/$long.$ending"
done
for text in source/*.txt; do
    printf '{"of": "%s", "mine": ["first words", "second words"]}' "$(basename "$text")" >"${text%.txt}.json"
done
printf 'no image' >source/zz.jpg
printf 'of no image' >source/zz.txt
printf 'of no row' >source/README

# --- tars of different tools
for format in gnu oldgnu pax posix ustar v7; do
    rm -rf tars && mkdir tars
    files=$(cd source && ls | sort)
    case $format in ustar | v7) files=$(cd source && ls | grep -v "^$long" | sort) ;; esac
    (cd source && tar cf ../tars/a.tar --format=$format $files)
    cp scenes.tar tars/b.tar
    sha256sum tars/*.tar >before.sums
    expect 0 "$BIN/ccpack" index -q --json --max-bad 1 tars/a.tar tars/b.tar
    cp out.txt indexed.txt
    sha256sum -c --quiet before.sums || fail "$format: a tar was changed"
    expect 0 "$BIN/ccpack" -q --json --max-bad 1 --overwrite -o packed tars/a.tar tars/b.tar
    for name in samples rejected texts ignored fingerprint; do
        [ "$(field indexed.txt $name)" = "$(field out.txt $name)" ] ||
            fail "$format: $name is not that of packing"
    done
    cmp tars/rejects.jsonl packed/rejects.jsonl
    expect 0 "$BIN/ccdump" verify tars
    # Keys of the second tar are those of the first, or made others; packing keeps the long key in the JSON.
    for dataset in tars packed; do
        "$BIN/ccdump" ls $dataset --keys --json | sed -e 's/"shard":.*//' \
            -e '25,$s/"id":\([0-9]*\),"key":"[^"]*"/"id":\1,/' -e "s/\"key\":\"$long\",//" >$dataset.txt
    done
    cmp tars.txt packed.txt || fail "$format: other samples"
    "$BIN/ccdump" cat tars --id 3 --image >image
    "$BIN/ccdump" cat packed --id 3 --image | cmp - image
done
has tars/dataset.json '"container":"tar-foreign"'
for dataset in tars packed; do
    expect 0 "$BIN/ccbench" loader $dataset -b 8 --size 32 --steps 4 --digest --json
    field out.txt digest >$dataset.txt
done
cmp tars.txt packed.txt || fail "the loader delivers other bytes"

# --- options that change the result
expect 0 "$BIN/ccpack" index -q --json --overwrite --caption-column mine --max-bad 90% tars/a.tar
[ "$(field out.txt texts)" = $((2 * $(field out.txt samples))) ] || fail "--caption-column"
expect 0 "$BIN/ccpack" index -q --json --overwrite --ids key tars/b.tar
expect 0 "$BIN/ccpack" index -q --json --overwrite --no-check -j 1 tars/b.tar
expect 0 "$BIN/ccdump" show tars 3 --json
has out.txt '"checked":false'

# --- refusals
expect 73 "$BIN/ccpack" index tars/b.tar
has err.txt --overwrite
expect 64 "$BIN/ccpack" index tars/b.tar scenes.tar
has err.txt "all be in one folder"
mkdir new
gzip -c scenes.tar >new/a.tar.gz
zstd -q -c scenes.tar >new/a.tar.zst 2>noise.txt || cp new/a.tar.gz new/a.tar.zst
expect 65 "$BIN/ccpack" index source/README
for tar in new/a.tar.gz new/a.tar.zst; do
    expect 65 "$BIN/ccpack" index $tar
    has err.txt "ccpack -o DIR FILE"
done
expect 66 "$BIN/ccpack" index new/nowhere.tar
cp scenes.tar "new/two words.tar"
expect 64 "$BIN/ccpack" index "new/two words.tar"
has err.txt "rename it"
expect 64 "$BIN/ccpack" index - <scenes.tar
cp -r packed kept
for file in packed/shard-000000.tar*; do
    expect 65 "$BIN/ccpack" index --overwrite $file
done
expect 0 "$BIN/ccpack" -q --overwrite --container tar -o plain scenes.tar
cp -r plain plain-kept
expect 73 "$BIN/ccpack" index --overwrite plain/shard-000000.tar
has err.txt "a shard that ccpack made"
diff -r plain plain-kept
expect 64 "$BIN/ccpack" index
has err.txt "--help"
expect 64 "$BIN/ccpack" index --max-bad x scenes.tar

# --- CLIP-benchmark's layout: class ids and the names of classes, of which two are equal and one is empty
mkdir -p cls/test parts dots
i=0
for image in $(ls source/*.jpg | head -6); do
    cp $image parts/s$i.jpg
    echo $((i % 4)) >parts/s$i.cls
    cp $image dots/p.v$i.jpg
    echo "text $i" >dots/p.v$i.txt
    echo "{\"n\": $i}" >dots/p.v$i.json
    i=$((i + 1))
done
printf 'a dog\nglasses\n\nglasses\n' >cls/classnames.txt
tar cf cls/test/0.tar -C parts s0.cls s0.jpg s1.cls s1.jpg s2.cls s2.jpg
tar cf cls/test/1.tar -C parts s3.cls s3.jpg s4.cls s4.jpg s5.cls s5.jpg
expect 0 "$BIN/ccpack" -q -o cls/packed cls/test/0.tar
expect 0 "$BIN/ccpack" -q --append -o cls/packed cls/test/1.tar
expect 0 "$BIN/ccpack" index -q cls/test/0.tar cls/test/1.tar
# The same files without an archive; one more has a number that is no class, one has no list.
mkdir cls/loose alone
for i in 0 1 2 3 4 5; do cp parts/s$i.jpg parts/s$i.cls cls/loose; done
expect 0 "$BIN/ccpack" -q -o cls/loose-packed cls/loose
cp parts/s0.jpg cls/loose/z.jpg && echo 4 >cls/loose/z.cls
expect 0 "$BIN/ccpack" -q --max-bad 50% -o cls/loose-bad cls/loose
has cls/loose-bad/rejects.jsonl "its .cls is '4"
cp cls/loose/* alone
expect 65 "$BIN/ccpack" -q -o alone-packed alone
has err.txt "needs classnames.txt in the source's folder or in the parent folder"
for dataset in cls/packed cls/test cls/loose-packed; do
    expect 0 "$BIN/ccdump" info $dataset --json
    has out.txt '"classes":["a dog","glasses","","glasses"]'
    [ "$("$BIN/ccdump" ls $dataset --json | sed 's/.*"label":\([0-9-]*\).*/\1/' | tr '\n' ' ')" = "0 1 2 3 0 1 " ] ||
        fail "$dataset: the labels are $("$BIN/ccdump" ls $dataset --json)"
done

# --- names that end at their last dot: also for those who read the tar in place
mkdir last && tar cf last/a.tar -C dots $(cd dots && ls)
expect 65 "$BIN/ccpack" index -q last/a.tar
expect 0 "$BIN/ccpack" index -q --split-names last --overwrite last/a.tar
has last/dataset.json '"split-names":"last"'
expect 0 "$BIN/ccdump" verify last
[ "$("$BIN/ccdump" ls last --keys --json | sed 's/.*"key":"\([^"]*\)".*/\1/' | tr '\n' ' ')" = \
    "p_v0 p_v1 p_v2 p_v3 p_v4 p_v5 " ] || fail "keys: $("$BIN/ccdump" ls last --keys --json)"
expect 0 "$BIN/ccdump" show last 4 --json
has out.txt '"n": 4'

# --- too many bad rows: only the list is written
mkdir bad && cp tars/a.tar bad
expect 65 "$BIN/ccpack" index --max-bad 0 bad/a.tar
has err.txt rejects.jsonl
[ "$(ls bad | tr '\n' ' ')" = "a.tar rejects.jsonl " ] || fail "more than the list is left: $(ls bad)"
has bad/rejects.jsonl '"reason":"image-unsupported"'

# --- a tar that was changed afterwards
printf 'x' >>tars/b.tar
expect 65 "$BIN/ccdump" info --json tars/b.tar
expect 65 "$BIN/ccdump" verify tars
has out.txt "index the tars again"
truncate -s -1 tars/b.tar
expect 0 "$BIN/ccdump" verify tars
printf 'X' | dd of=tars/b.tar bs=1 seek=700 conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" verify tars
has out.txt "index the tars again"

# --- Ctrl-C: the folder is as it was
mkdir stopped
tar cf stopped/a.tar --format=ustar -C source $(cd source && ls *.jpg *.txt | grep -v "^$long" | sort)
for k in 1 2 3 4 5 6; do cp stopped/a.tar stopped/a$k.tar; done
for delay in 0.02 0.05 0.1 0.2; do
    code=0
    timeout --foreground -s INT $delay "$BIN/ccpack" index -q --max-bad 90% stopped/*.tar 2>err.txt || code=$?
    ls stopped | grep -v '\.tar$' >left.txt || true
    if [ -e stopped/dataset.json ]; then
        expect 0 "$BIN/ccdump" verify stopped
        rm stopped/*.cci stopped/dataset.json stopped/rejects.jsonl
    else
        [ ! -s left.txt ] || { cat left.txt; fail "something is left after Ctrl-C"; }
    fi
done
echo passed
