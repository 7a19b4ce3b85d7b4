# ccpack remove and compact: removed samples are gone from every program and then from the bytes; ids
# stay and are not used again; a fingerprint proves it, that of packing rows without these samples.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" val 60 1 48 rows.tar >scenes.txt
"$TESTBIN/make_scenes" val 20 2 48 more.tar >scenes.txt
mkdir rows && tar xf rows.tar -C rows
cp -r rows fewer
for id in 4 41 42 59; do # rejected rows keep their numbers, so ids are those of the others
    rm "$(ls fewer/*.txt | sed -n "$((id + 1))p").none" 2>/dev/null || true
    name=$(ls rows/*.txt | sed -n "$((id + 1))p")
    rm "fewer/${name#rows/}"
    cat "$name" >>captions.txt
    echo >>captions.txt
done
tar cf fewer.tar --sort=name -C fewer .
"$BIN/ccpack" -q --max-bad 50% -o fewer.d fewer.tar
wanted=$("$BIN/ccdump" info fewer.d --json >a.txt && field a.txt fingerprint)
printf '# opt-out\n 41\n4\r\n\n42\n59\n' >ids.txt

# gone DIR: no file of it has a removed caption or image. Captions of containers tar and the image's
# bytes after its headers, which images share, are verbatim in shards.
gone() {
    for id in 4 41 42 59; do
        name=$(ls rows/*.txt | sed -n "$((id + 1))p")
        part=$(od -An -tx1 -j700 -N16 "${name%.txt}.jpg" | tr -d ' \n' | sed 's/../\\x&/g')
        LC_ALL=C grep -qaP "$part" rows.tar || fail "the test looks for other bytes"
        ! cat "$1"/* | LC_ALL=C grep -qaP "$part" || fail "the image of $id is in $1"
    done
}

for container in tar.zst tar; do
rm -rf d && "$BIN/ccpack" -q --container $container --shard-samples 20 -o d rows.tar
"$BIN/ccpack" tokenizer -q --vocab-size 100 --cache d
cp -r d whole
old=$("$BIN/ccdump" info d --json >a.txt && field a.txt fingerprint)

expect 0 "$BIN/ccpack" remove d --ids ids.txt --dry-run --json
has out.txt '"removed":4,'
has out.txt "\"fingerprint\":\"$wanted\",\"old_fingerprint\":\"$old\",\"dry_run\":true"
cmp d/dataset.json whole/dataset.json
expect 0 "$BIN/ccpack" remove d --ids ids.txt
has err.txt "4 samples removed, 56 left, fingerprint $wanted, before $old"
has err.txt "ccpack compact d"
expect 0 "$BIN/ccdump" verify d
has out.txt "d: ok: 56 samples in 3 shards"
has out.txt "$wanted"
expect 0 "$BIN/ccdump" info d
has out.txt "removed:           4"
has out.txt "removed_in_shards: 4"
grep -qE "^  [0-9]+ +60 .* $old\$" out.txt || fail "the generation before: $(cat out.txt)"
expect 0 "$BIN/ccdump" ls d --json
lines out.txt 56
hasnt out.txt '"id":41,'
has out.txt '"id":43,'
expect 66 "$BIN/ccdump" show d 41
has err.txt "sample 41 was removed"
expect 0 "$BIN/ccdump" ls d --removed
[ "$(tr '\n' ' ' <out.txt)" = "4 41 42 59 " ] || fail "other removed ids"
"$BIN/ccdump" cat d >cat.tar
[ "$(tar tf cat.tar | grep -c jpg)" = 56 ] || fail "ccdump cat has other samples"
expect 0 "$BIN/ccbench" loader d --epochs 1 --keep-last --batch-size 8 --size 32 --threads 1 --dump-ids steps.txt --force
sed 's/.*\[//; s/\].*//' steps.txt | tr ',' '\n' | sort -n >seen.txt
seq 0 59 | grep -vxE '4|41|42|59' | cmp - seen.txt || fail "the loader delivers other samples"

# The same again changes nothing; an id that never was, or is no number, changes nothing either.
cp d/dataset.json once.json
expect 0 "$BIN/ccpack" remove d --ids ids.txt
has err.txt "0 samples removed"
has err.txt "4 of the ids had been removed before"
cmp d/dataset.json once.json
printf '5\n60\n' >bad.txt
expect 66 "$BIN/ccpack" remove d --ids bad.txt
has err.txt "there is no sample 60; nothing was removed"
printf '5\nsix\n' >bad.txt
expect 65 "$BIN/ccpack" remove d --ids bad.txt
has err.txt "bad.txt: line 2: 'six'"
expect 64 "$BIN/ccpack" remove d
expect 64 "$BIN/ccpack" remove d --ids ids.txt --keys ids.txt
cmp d/dataset.json once.json

# A damaged list of ids is repaired by nothing; the rest of the manifest is.
cp -r d hurt
sed -i 's/"ids":\[4,/"ids":[3,/' hurt/dataset.json
expect 65 "$BIN/ccdump" verify hurt
expect 65 "$BIN/ccpack" repair hurt
cp once.json hurt/dataset.json
sed -i 's/"samples":56/"samples":57/' hurt/dataset.json
expect 0 "$BIN/ccpack" repair hurt
cmp once.json hurt/dataset.json
rm -r hurt

# --- compact
expect 0 "$BIN/ccpack" compact d --dry-run --json
has out.txt '"removed":4,"shards_rewritten":2,'
cmp d/dataset.json once.json
expect 0 "$BIN/ccpack" compact d
has err.txt "4 removed samples"
gone d
[ ! -e d/tokens.cct ] || fail "tokens.cct has the removed captions"
expect 0 "$BIN/ccdump" verify d
has out.txt "d: ok: 56 samples in 3 shards"
has out.txt "$wanted"
[ "$(ls d | tr '\n' ' ')" = "dataset.json rejects.jsonl shard-000001.cci shard-000001.$container shard-000003.cci shard-000003.$container \
shard-000004.cci shard-000004.$container tokenizer.model " ] || fail "other files: $(ls d)"
cmp "d/shard-000001.$container" "whole/shard-000001.$container" || fail "a shard without removed samples changed"
expect 0 "$BIN/ccdump" info d
has out.txt "removed:           4"
has out.txt "removed_in_shards: 0"
expect 66 "$BIN/ccdump" show d 41
"$BIN/ccdump" cat d | cmp - cat.tar || fail "the samples changed"
expect 0 "$BIN/ccpack" compact d --json
has out.txt '"removed":0,"shards_rewritten":0,"files_deleted":0,'

# What a killed compaction left over is deleted by the next one, a shard with other samples is not.
cp "whole/shard-000002.$container" whole/shard-000002.cci d/
: >"d/shard-000009.$container.00ff00ff.tmp"
"$BIN/ccpack" -q --container $container -o other more.tar
cp "other/shard-000000.$container" "d/shard-000008.$container"
expect 0 "$BIN/ccpack" compact d --json
has out.txt '"files_deleted":3,'
[ ! -e "d/shard-000002.$container" ] || fail "a leftover is still there"
rm "d/shard-000008.$container" || fail "a shard with other samples was deleted"
rm -r other

# --- append: ids continue and removed ones are not used again
expect 0 "$BIN/ccpack" -q --append --container $container --shard-samples 20 -o d more.tar
expect 0 "$BIN/ccdump" verify d
has out.txt "d: ok: 76 samples in 4 shards"
expect 0 "$BIN/ccdump" ls d --json --from 60
lines out.txt 20
head -1 out.txt >first.txt
has first.txt '"id":60,'
rm -r whole
done

# By key; the ids of numeric keys are not used again.
"$BIN/ccpack" -q --ids key -o k rows.tar
key=$("$BIN/ccdump" ls k --keys --json | sed -n '8s/.*"key":"\([^"]*\)".*/\1/p')
printf '%s\nno-such-key\n' "$key" >keys.txt
expect 0 "$BIN/ccpack" remove k --keys keys.txt --json
has out.txt '"removed":1,"removed_before":0,"unknown_keys":1,'
expect 66 "$BIN/ccpack" remove k --keys keys.txt
expect 0 "$BIN/ccpack" compact -q k
mkdir again && tar cf again.tar --sort=name -C rows "$key.jpg" "$key.txt"
expect 65 "$BIN/ccpack" -q --append --allow-repeat --ids key -o k again.tar
has err.txt "is repeated"
expect 0 "$BIN/ccdump" verify k

# Refused: a part, an unfinished run, a directory that another process writes to; tars in place keep
# their bytes, and a new index does not bring samples back.
"$BIN/ccpack" -q --part 1/2 -o part rows.tar
printf '4\n' >one.txt
expect 65 "$BIN/ccpack" remove part --ids one.txt
has err.txt "ccpack merge"
echo >fewer.d/pack.journal
expect 73 "$BIN/ccpack" remove fewer.d --ids one.txt
expect 73 "$BIN/ccpack" compact fewer.d
has err.txt "--resume"
rm fewer.d/pack.journal
if command -v python3 >/dev/null; then
    python3 "$SRC/tests/support/hold_lock.py" fewer.d >held.txt &
    until grep -q held held.txt; do
        sleep 0.05
    done
    expect 73 "$BIN/ccpack" remove fewer.d --ids one.txt
    has err.txt "in use by"
    expect 73 "$BIN/ccpack" repair fewer.d
    kill $!
fi
mkdir tars && cp rows.tar tars/
"$BIN/ccpack" index -q tars/rows.tar
expect 0 "$BIN/ccpack" remove -q tars --ids one.txt
expect 0 "$BIN/ccdump" verify tars
has out.txt "59 samples"
expect 69 "$BIN/ccpack" compact tars
expect 73 "$BIN/ccpack" index -q --overwrite tars/rows.tar
has err.txt "removed samples"
echo passed
