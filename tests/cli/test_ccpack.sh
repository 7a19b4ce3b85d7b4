#!/bin/bash
# ccpack: equal bytes for any number of jobs, shards that standard tools read, every kind of source, the
# message and exit code for each kind of bad input, interrupted and killed runs.
. "$SRC/tests/support/cli.sh"

# pack WANTED-SAMPLES WANTED-TEXTS WANTED-REJECTS OPTION...: packs and compares the summary.
pack() {
    local want="$1 $2 $3"
    shift 3
    "$BIN/ccpack" -q --json "$@" >out.json 2>err.txt || fail "ccpack $*: $(cat err.txt)"
    local got
    got=$(sed 's/.*"samples":\([0-9]*\),"rejected":\([0-9]*\),"texts":\([0-9]*\),.*/\1 \3 \2/' out.json)
    [ "$got" = "$want" ] || fail "samples, captions, rejects are $got, not $want: ccpack $*"
}

# Standard tools read every shard of a dataset.
readable() {
    local shard
    for shard in "$1"/shard-*.tar.zst; do
        zstd -q -t "$shard" || fail "zstd -t $shard"
        tar --zstd -tf "$shard" >names.txt || fail "tar --zstd -tf $shard"
        if command -v bsdtar >/dev/null; then
            bsdtar -tf "$shard" | cmp - names.txt || fail "bsdtar and tar differ on $shard"
        fi
    done
}

"$TESTBIN/make_scenes" val 60 1 48 all.tar >/dev/null || exit 1
mkdir images && tar xf all.tar -C images
for text in images/*.txt; do
    printf '%s\t%s.jpg\n' "$(cat "$text")" "$(basename "$text" .txt)"
done >all.tsv

# --- the same bytes for any number of jobs, readable by standard tools
for how in "" "--resize short:32" "--ids key"; do
    pack 60 60 0 --jobs 1 --shard-samples 25 -o one $how --overwrite all.tar
    pack 60 60 0 --jobs 4 --shard-samples 25 -o four $how --overwrite all.tar
    diff -r one four || fail "--jobs 4 $how gives other bytes than --jobs 1"
    [ "$(ls one/shard-*.tar.zst | wc -l)" -eq 3 ] || fail "not three shards"
    readable one
done
[ -e one/rejects.jsonl ] && [ ! -s one/rejects.jsonl ] || fail "no empty rejects.jsonl"
pack 60 60 0 -o parents/made/size --shard-size 64KiB all.tar
mv parents/made/size size
for shard in size/shard-*.tar.zst; do
    [ "$(stat -c %s "$shard")" -lt 80000 ] || fail "--shard-size 64KiB: $shard is larger"
done
readable size

# --- extracted files equal the packed ones
pack 60 60 0 -o plain all.tar
mkdir back && tar --zstd -xf plain/shard-000000.tar.zst -C back
for file in images/*.jpg images/*.txt; do
    cmp -s "$file" "back/$(basename "$file")" ||
        [ "$(cat "$file")" = "$(cat "back/$(basename "$file")")" ] || fail "$file changed"
done

# --- every form of a collection has the same fingerprint
print=$(sed 's/.*"fingerprint":"\([0-9a-f]*\)".*/\1/' out.json)
same() {
    grep -q "\"fingerprint\":\"$print\"" out.json || fail "$1: another fingerprint"
}
gzip -k all.tar && zstd -q -k all.tar
for source in all.tar.gz all.tar.zst; do
    pack 60 60 0 -o form --overwrite "$source"
    same "$source"
done
pack 60 60 0 -o form --overwrite - <all.tar
same "standard input"
pack 60 60 0 -o form --overwrite --images images all.tsv
same "a TSV"
{
    printf 'n\tfilepath\ttitle\r\n'
    awk -F '\t' '{ printf "%d\t%s\t%s\r\n", NR, $2, $1 }' all.tsv
} >images/header.tsv
pack 60 60 0 -o form --overwrite images/header.tsv
same "a TSV with a header"
awk -F '\t' 'BEGIN { printf "{\"images\": [" }
    { printf "%s{\"id\": %d, \"file_name\": \"%s\"}", (NR > 1 ? ", " : ""), NR + 9, $2
      notes = notes sprintf(", {\"image_id\": %d, \"caption\": \"%s\"}", NR + 9, $1) }
    END { printf "], \"annotations\": [%s]}\n", substr(notes, 3) }' all.tsv >captions.json
pack 60 60 0 -o form --overwrite --images images captions.json
same "COCO captions"
pack 60 60 0 -o form --overwrite --ids key --images images captions.json
grep -q "\"fingerprint\":\"$print\"" out.json && fail "--ids key does not use the images' ids"

# --- bad rows: counted, listed, their ids unused
{
    sed -n 1,5p all.tsv
    printf 'no such image\tmissing.jpg\n'
    printf '  \t000000001.jpg\n'
    printf 'bad \377 text\t000000001.jpg\n'
    printf 'one column alone\n'
    printf 'not an image\tnoise.jpg\n'
    printf 'half an image\thalf.jpg\n'
    sed -n 6,7p all.tsv
} >bad.tsv
image=$(cut -f 2 all.tsv | head -1)
echo "this is no image" >images/noise.jpg
head -c $(($(stat -c %s "images/$image") / 2)) "images/$image" >images/half.jpg
pack 7 7 6 -o bad --max-bad 6 --images images bad.tsv
cut -d '"' -f 13- bad/rejects.jsonl | cut -d '"' -f 2 >reasons.txt
printf '%s\n' image-unreadable caption-empty caption-not-utf8 row-bad image-unsupported image-damaged |
    cmp - reasons.txt || fail "other reasons: $(cat bad/rejects.jsonl)"
grep -q '"source":"bad.tsv","row":5,' bad/rejects.jsonl || fail "source and row are not named"
"$BIN/ccdump" show bad --id 11 >/dev/null || fail "the id of a bad row is used"
expect_message 66 "5" "$BIN/ccdump" show bad --id 5
expect_message 65 "--max-bad 5" "$BIN/ccpack" -o few --max-bad 5 --images images bad.tsv
expect_message 65 "--max-bad 10%" "$BIN/ccpack" -o share --images images bad.tsv
mkdir no-images
expect_message 65 "nothing was packed; no-images lacks 10 of 13 images, the first is no-images/.*jpg; --images names" \
    "$BIN/ccpack" -o none --images no-images --max-bad 100% bad.tsv
[ ! -e none ] || fail "a run that packed nothing leaves $(ls none)"
expect_message 65 "nothing was packed; no-images lacks 10 of 13 images" "$BIN/ccpack" -o none --images no-images bad.tsv
"$BIN/ccpack" -q -o none --max-bad 6 --images images bad.tsv || fail "the corrected command is refused"
cp -r none none-before
expect_message 65 "nothing was packed" "$BIN/ccpack" --overwrite -o none --images no-images bad.tsv
diff -r none none-before || fail "--overwrite by a run that packs nothing changes the dataset"
"$BIN/ccdump" verify few >/dev/null || fail "what was written before the stop is not valid"

# --- refusals, with names and exit codes
cp -r plain kept
expect_message 73 "overwrite" "$BIN/ccpack" -o plain all.tar
diff -r plain kept || fail "a refused run changed the dataset"
expect_message 64 "shard-000000" "$BIN/ccpack" --overwrite -o plain plain/shard-000000.tar.zst
diff -r plain kept || fail "a dataset was replaced by a run that reads it"
for name in tokenizer.model notes .hidden shard-000000.tar shard-000007.cci; do
    mkdir taken && echo "somebody's" >"taken/$name"
    expect_message 73 "overwrite" "$BIN/ccpack" -o taken all.tar
    [ "$(cat "taken/$name")" = "somebody's" ] || fail "a refused run changed $name"
    rm -r taken
done
cp -r kept mixed && mkdir mixed/folder
keep="notes shard-000000.tar shard-00000.tar.zst shard-000000.tar.zst.bak dataset.json.old x.tmp dataset.json.0123.tmp"
drop="shard-000009.tar.zst shard-000009.cci dataset.json.tmp shard-000003.tar.zst.tmp dataset.json.0123abcd.tmp"
for name in $keep $drop tokenizer.model; do
    echo "$name" >"mixed/$name"
done
pack 60 60 0 --overwrite -o mixed all.tar
for name in $keep; do
    [ "$(cat "mixed/$name")" = "$name" ] || fail "--overwrite touched $name"
    rm "mixed/$name"
done
rmdir mixed/folder || fail "--overwrite touched a folder"
diff -r kept mixed || fail "--overwrite left something of the old dataset"
expect_message 66 "nowhere.tar" "$BIN/ccpack" -o refused all.tar nowhere.tar
mkdir alone && cp images/*.jpg alone/
expect_message 65 "NAME.jpg with NAME.txt" "$BIN/ccpack" -o refused alone
: >empty.tar
expect_message 65 "empty.tar: the file is empty" "$BIN/ccpack" -o refused empty.tar
head -c 3000 /dev/urandom | tr '\n' '\0' >noise.bin
expect_message 65 "noise.bin" "$BIN/ccpack" -o refused noise.bin
printf 'a text without columns\nand another\n' >text.tsv
expect_message 65 "text.tsv: cannot tell" "$BIN/ccpack" -o refused text.tsv
printf 'caption\thttps://example.org/1.jpg\n' >urls.tsv
expect_message 65 "contains URLs" "$BIN/ccpack" -o refused urls.tsv
printf '{"images": [' >cut.json
expect_message 65 "cut.json" "$BIN/ccpack" -o refused cut.json
printf '{"a": 1}' >other.json
expect_message 65 "annotations" "$BIN/ccpack" -o refused other.json
printf '[]' >list.json
expect_message 65 "list" "$BIN/ccpack" -o refused list.json
expect_message 64 "resize" "$BIN/ccpack" -o refused --resize 32 all.tar
expect_message 64 "max-bad" "$BIN/ccpack" -o refused --max-bad 200% all.tar
expect_message 64 "out" "$BIN/ccpack" all.tar
[ ! -e refused ] || fail "a refused run made the directory"
expect 65 "$BIN/ccpack" -q --allow-duplicates --ids key -o twice --shard-samples 50 all.tar all.tar
grep -q "row 0" err.txt || grep -q "in two shards" err.txt || fail "the id is not named: $(cat err.txt)"
expect_message 65 "is repeated" "$BIN/ccpack" --allow-duplicates --ids key -o twice --overwrite all.tar all.tar

# --- a truncated tar: the rows before the end become a dataset
head -c $(($(stat -c %s all.tar) / 2 + 100)) all.tar >half.tar
expect_message 65 "half.tar: .* after row [0-9]" "$BIN/ccpack" -o half half.tar
"$BIN/ccdump" verify half >/dev/null || fail "no valid dataset before the break"

# --- invalid JSON: the sample is packed without it, and the summary reports it
mkdir json && cp images/00000000[0-4].* json 2>/dev/null
for text in json/*.txt; do
    echo '{"of": "this"}' >"${text%.txt}.json"
done
broken=$(ls json/*.json | head -1)
echo '{"of": ' >"$broken"
(cd json && tar cf ../json.tar --sort=name ./*)
count=$(ls json/*.txt | wc -l)
pack "$count" "$count" 0 -o json-out json.tar
grep -q '"json_dropped":1,' out.json || fail "json_dropped: $(cat out.json)"
"$BIN/ccpack" -o json-out --overwrite json.tar 2>err.txt
grep -q "without their .json.*json.tar row 0" err.txt || fail "dropped JSON is not mentioned: $(cat err.txt)"
[ "$(tar --zstd -tf json-out/shard-000000.tar.zst | grep -c json)" -eq $((count - 1)) ] || fail "JSON members"

# --- keys that a shard cannot store, and repeated ones
pack 120 120 0 --allow-duplicates -o keys all.tar all.tar
readable keys
[ "$(tar --zstd -tf keys/shard-000000.tar.zst | sort | uniq -d | wc -l)" -eq 0 ] ||
    fail "two members have the same name"

# --- interrupted and killed runs
mkfifo pipe
for signal in INT KILL; do
    rm -rf stopped
    "$BIN/ccpack" -q --shard-samples 10 -o stopped - <pipe 2>err.txt &
    pid=$!
    exec 3>pipe
    cat half.tar >&3
    for ((i = 0; i < 100; i++)); do
        [ -e stopped/shard-000000.tar.zst ] && break
        sleep 0.1
    done
    kill -$signal $pid
    got=0
    wait $pid || got=$?
    exec 3>&-
    if [ $signal = KILL ]; then
        [ ! -e stopped/rejects.jsonl ] || fail "KILL leaves an incomplete list under its final name"
        [ -e stopped/rejects.jsonl.tmp ] || fail "KILL: no temporary list"
        [ ! -e stopped/dataset.json ] || fail "KILL leaves a dataset.json"
    fi
    for shard in stopped/shard-*.tar.zst; do
        zstd -q -t "$shard" || fail "$signal leaves a broken shard under its final name"
    done
    if [ $signal = INT ]; then
        [ $got -eq 130 ] || fail "exit code $got after SIGINT"
        [ -z "$(ls stopped | grep tmp)" ] || fail "SIGINT leaves temporaries"
        grep -q "partial dataset: [0-9,]* rows, [0-9,]* samples" err.txt || fail "SIGINT: does not report what is packed: $(cat err.txt)"
        "$BIN/ccdump" verify stopped >/dev/null || fail "SIGINT leaves no valid dataset"
        grep -q '"partial"' stopped/dataset.json || fail "SIGINT: dataset.json has no partial"
        [ -e stopped/rejects.jsonl ] || fail "SIGINT leaves no rejects.jsonl"
        expect_message 73 "a dataset already" "$BIN/ccpack" -o stopped all.tar
    else
        expect_message 73 "an unfinished run" "$BIN/ccpack" -o stopped all.tar
    fi
done
pack 60 60 0 --overwrite -o stopped all.tar
[ -z "$(ls stopped | grep tmp)" ] || fail "--overwrite leaves temporaries of a killed run"

