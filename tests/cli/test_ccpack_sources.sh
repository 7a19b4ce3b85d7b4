#!/bin/bash
# ccpack's sources: the same images and captions in every form give the same fingerprint; classes stay
# with their samples; messages for unreadable input say what to do.
. "$SRC/tests/support/cli.sh"
refuses() {
    expect_message "$@"
    [ ! -e refused ] || fail "a refused run made the directory: $*"
}

# pack SAMPLES REJECTS OPTION...: packs into form/ and compares the summary.
pack() {
    local want="$1 $2"
    shift 2
    rm -rf form
    "$BIN/ccpack" -q --json -o form "$@" >out.json 2>err.txt || fail "ccpack $*: $(cat err.txt)"
    local got
    got=$(sed 's/.*"samples":\([0-9]*\),"rejected":\([0-9]*\),.*/\1 \2/' out.json)
    [ "$got" = "$want" ] || fail "samples and rejects are $got, not $want: ccpack $*"
    "$BIN/ccdump" verify form >verify.txt 2>&1 || fail "ccdump verify after ccpack $*: $(cat verify.txt)"
}

fingerprint() {
    sed 's/.*"fingerprint":"\([0-9a-f]*\)".*/\1/' out.json
}

same() {
    [ "$(fingerprint)" = "$print" ] || fail "another fingerprint: $*"
}

"$TESTBIN/make_scenes" val 40 1 48 all.tar >/dev/null || exit 1
mkdir images && tar xf all.tar -C images
for text in images/*.txt; do
    printf '%s\t%s.jpg\n' "$(cat "$text")" "$(basename "$text" .txt)"
done >all.tsv
pack 40 0 all.tar
print=$(fingerprint)

# --- the same pairs in every form
if command -v zip >/dev/null; then
    (cd images && tar tf ../all.tar | zip -q ../all.zip -@)
    (cd images && tar tf ../all.tar | zip -q - -@ | cat >../piped.zip)
    for source in all.zip piped.zip; do
        pack 40 0 "$source"
        same "$source"
    done
fi
{
    printf 'id,image,caption\r\n'
    awk -F '\t' '{ gsub(/"/, "\"\"", $1); printf "%d,%s,\"%s\"\r\n", NR, $2, $1 }' all.tsv
} >all.csv
pack 40 0 --images images all.csv
same "a CSV"
pack 40 0 --images images --caption-column 3 --image-column image all.csv
same "a CSV with columns by option"
tail -n +2 all.csv >bare.csv
pack 40 0 --images images --columns _,path,caption bare.csv
same "a CSV with named columns"
# --- tables: the delimiter, quotes, and records of one image
pack 40 0 --images images --from csv --delimiter ',' all.csv
same "a CSV with its delimiter"
refuses 64 "one ASCII character" "$BIN/ccpack" -o refused --images images --delimiter ',,' all.csv
{
    printf 'image\tcaption\n'
    awk -F '\t' '{ printf "%s\t\"%s\"\n", $2, $1 }' all.tsv
} >quoted.tsv
pack 40 0 --images images quoted.tsv
same "a quoted TSV"
{
    echo "image,caption"
    echo "$(head -n 1 all.tsv | cut -f 2),A man, a dog"
} >wide.csv
refuses 65 "is usable; nothing was packed.*has 3 columns instead of 2" \
    "$BIN/ccpack" -o bad --max-bad 100% --images images wide.csv
rm -rf bad
awk -F '\t' '{ for (i = 0; i < 3; i++) printf "%s#%d\t%s, seen %d times%s\n", $2, i, $1, i,
                  (NR % 8 == 0 && i == 1 ? "\textra" : "") }' all.tsv >token.txt
pack 40 5 --max-bad 5 --images images token.txt
grep -q '"texts":115,' out.json || fail "captions of one image are not joined"
grep -q '"row":8,.*line 23 has 3 columns' form/rejects.jsonl || fail "$(cat form/rejects.jsonl)"
print2=$(fingerprint)
cp -r form whole
for part in 1/3 2/3 3/3; do
    "$BIN/ccpack" -q -o "part-${part%/*}" --part $part --max-bad 5 --images images token.txt || fail "part $part"
done
"$BIN/ccpack" merge -q --json -o merged part-1 part-2 part-3 >out.json || fail "merge of groups"
[ "$(fingerprint)" = "$print2" ] || fail "parts of a table with groups differ"
cmp whole/rejects.jsonl merged/rejects.jsonl || fail "rejects of parts differ"
shuf --random-source=all.tar token.txt >shuffled.txt
pack 40 5 --max-bad 5 --images images --group-captions all shuffled.txt
grep -q '"texts":115,' out.json || fail "captions that are not adjacent are not joined"
pack 115 5 --max-bad 5 --images images --group-captions never token.txt
refuses 64 "--group-captions does not apply" "$BIN/ccpack" -o refused --group-captions all all.tar

awk -F '\t' 'BEGIN { printf "[" }
    { printf "%s{\"image\": \"%s\", \"caption\": \"%s\", \"image_id\": %d}", (NR > 1 ? ",\n" : ""), $2, $1, NR + 99 }
    END { printf "]\n" }' all.tsv >list.json
pack 40 0 --images images list.json
same "a list of objects"
sed 's/^\[//; s/[],]*$//' list.json >list.jsonl
pack 40 0 --images images list.jsonl
same "lines of objects"
pack 40 0 --images images --ids key list.json
"$BIN/ccdump" show form 139 --json | grep -q '"key":"139"' || fail "--ids key does not use image_id"
sed 's/"image_id": 139/"image_id": 1234567890/' list.json >sparse.json
for how in "" "--resume"; do
    "$BIN/ccpack" -o sparse $how --ids key --images images sparse.json 2>err.txt || fail "$(cat err.txt)"
    grep -q "ids go up to 1,234,567,890, for 40 samples.* 18.* GiB with SogCLR, 36.* GiB with NuCLR. --ids row" err.txt ||
        fail "ids with gaps are not named: $(cat err.txt)"
done
"$BIN/ccpack" -o dense --ids key --images images list.json 2>err.txt
grep -q "ids go up" err.txt && fail "ids without gaps are named: $(cat err.txt)"
awk -F '\t' 'BEGIN { printf "{\"images\": [" }
    { printf "%s{\"filepath\": \"images\", \"filename\": \"%s\", \"imgid\": %d, \"split\": \"%s\", \"sentences\": [{\"raw\": \"%s\"}]}",
          (NR > 1 ? ", " : ""), $2, NR, (NR % 4 ? "train" : "val"), $1 }
    END { printf "], \"dataset\": \"ours\"}\n" }' all.tsv >karpathy.json
pack 40 0 karpathy.json
same "a split file"
pack 10 0 --split val karpathy.json
pack 40 0 --split val,train karpathy.json
same "all splits by name"

# --- folders: images with texts beside them, and an imagefolder
pack 40 0 images
same "loose pairs"
mkdir hugging && cp images/*.jpg hugging/
sed 's/"image"/"file_name"/; s/"caption"/"text"/' list.jsonl >hugging/metadata.jsonl
pack 40 0 hugging
same "an imagefolder"
pack 40 0 --images hugging hugging/metadata.jsonl
same "the lines of an imagefolder"
rm hugging/metadata.jsonl
{
    echo "file_name,text"
    sed 's/^[0-9]*,//; s/\r$//; 1d' all.csv
} >hugging/metadata.csv
pack 40 0 hugging
same "an imagefolder with a CSV"

# --- tars in one file, plain and compressed; what is lost at the end is named
"$TESTBIN/make_scenes" val 7 2 48 more.tar >/dev/null || exit 1
blocks=$(($(stat -c %s all.tar) / 512 - 2)) # without the end mark
head -c $((blocks * 512)) all.tar >cut.tar
cat all.tar more.tar >joined.tar
{ head -c $((blocks * 512 + 512)) all.tar; cat more.tar; } >lone.tar
{ gzip -c all.tar; gzip -c more.tar; } >joined.tar.gz
for source in joined.tar lone.tar joined.tar.gz; do
    pack 47 0 "$source"
    pack 47 0 - <"$source"
    grep -q '"notes":0,' out.json || fail "$source: $(cat out.json)"
done
if command -v zstd >/dev/null; then
    { zstd -qc all.tar; zstd -qc more.tar; } >joined.tar.zst
    pack 47 0 joined.tar.zst
fi
gzip -c cut.tar >cut.tar.gz
for source in cut.tar cut.tar.gz; do
    refuses 0 "warning: $source: the tar has no end mark after its 80 members: it may be truncated" \
        "$BIN/ccpack" --overwrite -o form "$source"
done
{ cat all.tar; echo what is this; } >tail.tar
refuses 0 "tail.tar: the data after the end of the tar, which has 80 members, is not a tar" \
    "$BIN/ccpack" --overwrite -o form tail.tar

mkdir indexed && cp joined.tar indexed/
refuses 0 "joined.tar: data after the end mark, which follows 80 members, was not read" \
    "$BIN/ccpack" index indexed/joined.tar

# --- sparse members, also those that end in a hole
mkdir holes && set -- images/*.jpg
cp "$1" holes/1.jpg && truncate -s 5M holes/1.jpg
cp "$2" holes/2.jpg && truncate -s 1M holes/2.jpg && cat "$2" >>holes/2.jpg && truncate -s 3M holes/2.jpg
echo one >holes/1.txt && echo two >holes/2.txt
tar cf whole.tar --sort=name --format=gnu -C holes .
pack 2 0 whole.tar
whole=$(fingerprint)
for how in gnu "posix --sparse-version=0.0" "posix --sparse-version=0.1" "posix --sparse-version=1.0"; do
    tar cSf sparse.tar --sort=name --format=$how -C holes .
    [ "$(stat -c %s sparse.tar)" -lt 1000000 ] || fail "tar -S --format=$how made no sparse tar"
    pack 2 0 sparse.tar
    [ "$(fingerprint)" = "$whole" ] || fail "a sparse tar of format $how gives other images"
done

# --- a key that is not ASCII stays in the metadata, and a byte order mark is no part of a caption
mkdir foreign && cp "images/$(head -n 1 all.tsv | cut -f 2)" "foreign/犬 1.jpg"
printf '\357\273\277a dog\n' >"foreign/犬 1.txt"
pack 1 0 foreign
"$BIN/ccdump" show form 0 --json >show.json
grep -q '"meta":{"key":"犬 1"}' show.json || fail "the key is not kept: $(cat show.json)"
"$BIN/ccdump" find form --key '犬*' >found.txt || fail "ccdump find --key: $(cat found.txt)"
grep -q '"a dog"' show.json || fail "the byte order mark is kept: $(cat show.json)"
(cd foreign && tar cf ../foreign.tar --sort=name -- *)
pack 1 0 foreign.tar
"$BIN/ccdump" show form 0 --json | cmp - show.json || fail "the tar of the folder differs"

# --- captions of equal images are merged
mkdir equal && set -- images/*.jpg
for name in 1 2 4 5; do cp "$1" "equal/$name.jpg"; done && cp "$2" equal/3.jpg
printf 'a' >equal/1.txt && printf 'b' >equal/2.txt && printf 'c' >equal/3.txt && printf '\377' >equal/4.txt && printf 'a' >equal/5.txt
for how in "equal" "more.tsv equal"; do
    printf 'equal/5.jpg\td\nequal/1.jpg\te\n' >more.tsv
    pack 2 "$([ "$how" = equal ] && echo 3 || echo 5)" --dedup exact --max-bad 1 $how
    "$BIN/ccdump" ls form --json >ls.txt
    grep -q '"captions":\["c"\]' ls.txt || fail "$how: $(cat ls.txt)"
    want='"captions":\["a","b"\]'
    [ "$how" = equal ] || want='"captions":\["d","e","a","b"\]'
    grep -q "$want" ls.txt || fail "captions of equal images are not merged: $how: $(cat ls.txt)"
done
(cd equal && tar cf ../equal.tar --sort=name -- *)
pack 2 3 --dedup exact --max-bad 1 - <equal.tar
grep -q '"texts":2,' out.json || fail "standard input was read twice: $(cat out.json)"

# --- links in a tar, and a second image after the caption, are named
mkdir links && set -- images/*.jpg
cp "$1" links/1.jpg && ln links/1.jpg links/2.jpg && ln -s 1.jpg links/3.jpg
for i in 1 2 3; do echo "caption $i" >links/$i.txt; done
cp "$2" links/4.jpg && cp "$3" links/4.png && echo four >links/4.txt
tar cf links.tar -C links 1.jpg 1.txt 2.jpg 2.txt 3.jpg 3.txt 4.txt 4.jpg 4.png
pack 2 3 --max-bad 3 links.tar
for i in 2 3; do
    grep -q '"reason":"image-missing","detail":"'$i'.jpg is a link to 1.jpg,' form/rejects.jsonl ||
        fail "the link $i.jpg is not named: $(cat form/rejects.jsonl)"
done
grep -q '"reason":"image-extra","detail":"4.png: the row has its image, 4.jpg"' form/rejects.jsonl ||
    fail "4.png is not named: $(cat form/rejects.jsonl)"

# --- captions from the JSON
mkdir json && cp images/*.jpg json/
for text in images/*.txt; do
    printf '{"words": "%s"}' "$(cat "$text")" >"json/$(basename "$text" .txt).json"
done
(cd json && tar cf ../json.tar --sort=name --format=ustar -- *)
pack 40 0 --caption-column words json.tar
same "captions in the JSON"
refuses 65 "is usable; nothing was packed.*no member 'none'" "$BIN/ccpack" -o bad --max-bad 100% --caption-column none json.tar

# --- classes, on disk and in a tar: label, name and JSON are packed
mkdir -p set/cat/more set/dog set/bare set/.hidden
set -- images/*.jpg
cp "$1" set/cat/1.jpg && cp "$2" set/cat/more/2.jpg && cp "$3" set/dog/3.jpg && cp "$4" set/dog/named
echo "no image" >set/dog/notes.txt
cp "$1" set/.hidden/5.jpg
for how in "set" "--from folders set.tar"; do
    tar cf set.tar --sort=name --format=ustar set
    pack 4 0 $how
    [ "$how" != set ] || print=$(fingerprint)
    same "class folders: $how"
    grep -q '"ignored":2,' out.json || fail "notes.txt and .hidden are not counted: $how"
    grep -q '"classes":\["cat","dog"\]' form/dataset.json || fail "other classes: $how"
    "$BIN/ccdump" ls form --json >ls.txt
    grep -c '"label":0,"class":"cat"' ls.txt | grep -qx 2 || fail "not two cats: $how: $(cat ls.txt)"
    "$BIN/ccdump" show form 2 --json | grep -q '"meta":{"class":"dog"}' || fail "no class in the JSON: $how"
done
refuses 65 "are classes, --from folders" "$BIN/ccpack" -o taken-for-captions set.tar
refuses 64 "read twice" "$BIN/ccpack" --from folders -o refused - <set.tar

# --- CIFAR: a file, and a folder of them
for record in 1 2 3; do
    printf "\\x0$record"
    head -c 3072 /dev/zero | tr '\0' "\\$((100 + record))"
done >one.bin
mkdir batches && cp one.bin batches/data_batch_1.bin && cp one.bin batches/data_batch_2.bin
pack 3 0 one.bin
pack 6 0 batches
"$BIN/ccdump" show form 5 --json | grep -q '"label":3,"class":"cat"' || fail "no cat: $("$BIN/ccdump" show form 5 --json)"
"$BIN/ccdump" show form 5 --json | grep -q '"format":"png"' || fail "CIFAR's images are not PNGs"

# --- parts and a resumed run skip exactly the rows of other parts
for source in "--images images list.json" "--images images all.csv" karpathy.json images hugging set "--from folders set.tar" batches; do
    for k in 1 2 3; do
        rm -rf "part-$k"
        "$BIN/ccpack" -q --part "$k/3" -o "part-$k" $source 2>err.txt || fail "--part $k/3 $source: $(cat err.txt)"
    done
    pack "$(case $source in set | *.tar) echo 4 ;; batches) echo 6 ;; *) echo 40 ;; esac)" 0 $source
    print=$(fingerprint)
    rm -rf merged
    "$BIN/ccpack" merge -q --json -o merged part-1 part-2 part-3 >out.json 2>err.txt || fail "merge of $source: $(cat err.txt)"
    same "three parts of $source"
done

# --- a wrong or missing folder of images is named, with the first file that was looked for
mkdir bare
refuses 66 "--images nowhere: no such folder" "$BIN/ccpack" -o refused --images nowhere all.tsv
rm -rf bad
refuses 65 "; bare lacks 40 of 40 images, the first is bare/.*jpg; --images names" "$BIN/ccpack" -o bad --images bare all.tsv
rm -rf bad
refuses 65 "; the folder of the source lacks 40 of 40 images, the first is .*jpg; --images names" "$BIN/ccpack" -o bad all.tsv
rm -rf bad
yes "$(head -n 1 all.tsv)" | head -n 5000 >many.tsv
refuses 65 "; bare lacks 1000 of 1000 images" "$BIN/ccpack" -o bad --group-captions never --images bare many.tsv
rm -rf bad

# --- messages for unreadable input say what to do
printf 'a dog\thttps://example.org/1.jpg\n' >urls.tsv
refuses 65 "ccpack fetch" "$BIN/ccpack" -o refused urls.tsv
printf 'caption,url\na dog,https://example.org/1.jpg\n' >urls.csv
refuses 65 "ccpack fetch" "$BIN/ccpack" -o refused urls.csv
refuses 65 "single image" "$BIN/ccpack" -o refused "$1"
refuses 65 "each class is a folder" "$BIN/ccpack" -o refused json
printf '[{"image_id": 1, "caption": "a result"}]' >results.json
refuses 65 "objects with 'image'" "$BIN/ccpack" -o refused results.json
head -c 3072 /dev/zero >short.bin
refuses 65 "neither a tar or zip" "$BIN/ccpack" -o refused short.bin
refuses 65 "not a CIFAR binary" "$BIN/ccpack" -o refused --from cifar short.bin
refuses 64 "the splits are train,val" "$BIN/ccpack" -o refused --split test karpathy.json
refuses 64 "--split does not apply to sources of kind tsv" "$BIN/ccpack" -o refused --split test all.tsv
refuses 64 "no column is named 'words'" "$BIN/ccpack" -o refused --caption-column words all.csv
gzip -k all.csv
refuses 65 "read unpacked" "$BIN/ccpack" -o refused all.csv.gz

