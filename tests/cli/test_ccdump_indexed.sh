# ccdump on tars that are indexed in place: with the index the samples are those of a dataset packed from
# the same tars; without it, samples are rows.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" val 40 1 48 scenes.tar >scenes.txt
mkdir x and && tar xf scenes.tar -C x
rm x/000000007.txt
echo "a second caption" >x/000000003.1.txt
ls x | sed -n '1,40p' | sed 's/^/x\//' | tar cf and/one.tar --transform 's|x/||' -T -
ls x | sed -n '41,$p' | sed 's/^/x\//' | tar cf and/two.tar --transform 's|x/|deep/er/|' -T -
cp and/two.tar bare.tar
"$BIN/ccpack" -q -o packed and/one.tar and/two.tar
"$BIN/ccpack" index -q and/one.tar and/two.tar

facts() { # facts FILE: what does not depend on where samples lie
    sed 's/"shard":"[^"]*","offset":[0-9]*,//' "$1"
}
for options in "--json" "--json --keys --from 5 --count 20"; do
    # shellcheck disable=SC2086
    "$BIN/ccdump" ls packed $options >a.txt
    # shellcheck disable=SC2086
    "$BIN/ccdump" ls and $options >b.txt
    facts a.txt >a.facts
    facts b.txt | cmp - a.facts || fail "other samples: ls $options"
done
expect 0 "$BIN/ccdump" info and --json
has out.txt '"container":"tar-foreign"'
has out.txt "\"samples\":39,\"id_space\":40,\"texts\":40,\"shards\":2,"
"$BIN/ccdump" cat packed >a.tar
"$BIN/ccdump" cat and | cmp - a.tar
"$BIN/ccdump" extract packed -o a -q
"$BIN/ccdump" extract and -o b -q
diff -r a b
expect 0 "$BIN/ccdump" verify and --decode
has out.txt "and: ok: 39 samples in 2 shards"
expect 0 "$BIN/ccdump" stats and --json
mv out.txt stats.txt
expect 0 "$BIN/ccdump" stats packed --json
cmp out.txt stats.txt
expect 0 "$BIN/ccdump" find and --caption 'SECOND caption' --json
has out.txt '"id":3,"captions":['

# A single tar has the ids of its dataset if its index is in the same folder.
expect 0 "$BIN/ccdump" ls and/two.tar --count 1 --json
first=$(field out.txt id)
[ "$first" -gt 10 ] || fail "the second tar begins with sample $first"
expect 0 "$BIN/ccdump" verify and/two.tar
expect 0 "$BIN/ccdump" ls bare.tar --count 1 --json
[ "$(field out.txt id)" = 0 ] || fail "a tar without index begins with row 0"
expect 0 "$BIN/ccdump" show and "$first" --image image.jpg
"$BIN/ccdump" show bare.tar 0 --image - | cmp - image.jpg

# A tar that was changed afterwards is refused.
offset=$("$BIN/ccdump" show and "$first" --json | sed 's/.*"offset":\([0-9]*\),.*/\1/')
printf 'X' | dd of=and/two.tar bs=1 seek=$((offset + 100)) conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" verify and
has out.txt "and/two.tar: sample $first: byte"
expect 65 "$BIN/ccdump" show and "$first"
expect 0 "$BIN/ccdump" show and $((first + 1))
echo more >>and/two.tar
expect 65 "$BIN/ccdump" ls and
has err.txt "and/two.tar"
has err.txt "index"
rm and/two.cci
expect 65 "$BIN/ccdump" ls and/two.tar
expect 66 "$BIN/ccdump" ls and/none.tar
echo passed
