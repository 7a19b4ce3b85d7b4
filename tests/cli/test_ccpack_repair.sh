# ccpack repair: every file that the shards prove gets its bytes back; what they do not prove is
# refused with the reason, and nothing changes.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_scenes" val 60 1 48 scenes.tar >scenes.txt
mkdir bad && tar xf scenes.tar -C bad
for name in $(ls bad/*.txt | sed -n '5p;$p'); do rm "$name"; done # rejected rows keep their ids
tar cf rows.tar --sort=name -C bad .
for container in tar.zst tar; do
rm -rf d && "$BIN/ccpack" -q --container $container --shard-samples 20 --max-bad 50% -o d rows.tar
"$BIN/ccpack" tokenizer -q --vocab-size 100 --cache d
print=$("$BIN/ccdump" info d --json | sed 's/.*"fingerprint":"\([0-9a-f]*\)","container.*/\1/')
rm -rf whole && cp -r d whole
same() { # same [FILE]: as it was, but for FILE
    for file in whole/*; do
        [ "$(basename "$file")" = "${1:-}" ] || cmp "$file" "d/$(basename "$file")"
    done
    [ "$(ls d)" = "$(ls whole)" ] || fail "other files: $(ls d)"
}

expect 0 "$BIN/ccpack" repair d
has out.txt "nothing to rebuild"
same

# --- sidecars and the token cache
rm d/shard-000000.cci
cp d/shard-000002.cci d/shard-000001.cci
printf 'XXXX' | dd of=d/tokens.cct bs=1 seek=4 conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" verify d
has err.txt "ccpack repair d"
hasnt err.txt "pack them again"
expect 0 "$BIN/ccpack" repair d --dry-run
lines out.txt 3
has out.txt "d/shard-000000.cci: would be rebuilt: it is missing"
[ ! -e d/shard-000000.cci ] || fail "--dry-run wrote"
expect 0 "$BIN/ccpack" repair d --json
has out.txt '{"file":"tokens.cct","problem":"'
has out.txt '"ok":true,"rebuilt":3,"refused":0,"dry_run":false}'
same
expect 0 "$BIN/ccdump" verify d
head -c 100 d/tokens.cct >cut && mv cut d/tokens.cct
expect 65 "$BIN/ccdump" verify d
has err.txt "ccpack repair d"
expect 0 "$BIN/ccpack" repair d
same

# --- dataset.json with one wrong number, text or list: all else of it is kept
for change in 's/"samples":58/"samples":57/' 's/"image_bytes":\([0-9]*\)/"image_bytes":\11/' \
    "s/\"fingerprint\":\"$print\"/\"fingerprint\":\"0000000000000000\"/g" \
    "s/\"fingerprint\":\"$print\"/\"fingerprint\":\"0000000000000000\"/" \
    '/shard-000001/s/"xxh64":"./"xxh64":"g/' '/shard-000001/s/"xxh64":".../"xxh64":"000/' \
    's/"first_id":21/"first_id":22/' 's/"id_space":59/"id_space":5/'; do
    sed -i "$change" d/dataset.json
    ! cmp -s d/dataset.json whole/dataset.json || fail "'$change' changes nothing"
    expect 65 "$BIN/ccdump" verify d
    cat out.txt err.txt >both.txt
    has both.txt "ccpack repair"
    expect 0 "$BIN/ccpack" repair d
    has out.txt "d/dataset.json: rebuilt: "
    cmp d/dataset.json whole/dataset.json || fail "after '$change'"
done
sed -i 's/"first_id":21/"first_id":"21"/' d/dataset.json
expect 65 "$BIN/ccdump" info d
has err.txt "'first_id' of shard 1 is missing or wrong"
cp whole/dataset.json d

# --- dataset.json is lost: the token cache proves that no shard is
rm d/dataset.json
expect 0 "$BIN/ccpack" repair d
has out.txt "d/dataset.json: rebuilt: it is missing"
has err.txt "were lost"
expect 0 "$BIN/ccdump" verify d
for field in samples id_space texts shards image_bytes bytes fingerprint container; do
    [ "$("$BIN/ccdump" info d --json >a.txt && field a.txt $field)" = \
        "$("$BIN/ccdump" info whole --json >b.txt && field b.txt $field)" ] || fail "another $field"
done
sed 's/.*"tokenizer"/"tokenizer"/' a.txt >a.part && sed 's/.*"tokenizer"/"tokenizer"/' b.txt | cmp - a.part
same dataset.json

# Without a proof it is refused; the user may have one.
rm d/dataset.json d/tokens.cct
expect 65 "$BIN/ccpack" repair d
has err.txt "nothing proves"
has err.txt "$print"
[ ! -e d/dataset.json ] || fail "rebuilt without a proof"
expect 65 "$BIN/ccpack" repair d --fingerprint 0123456789abcdef
has err.txt "a shard is missing"
expect 64 "$BIN/ccpack" repair d --fingerprint 123
mv d/shard-000002.$container .
expect 65 "$BIN/ccpack" repair d --fingerprint "$print"
has err.txt "a shard is missing"
mv shard-000002.$container d/
expect 0 "$BIN/ccpack" repair d --fingerprint "$print"
expect 0 "$BIN/ccdump" verify d

# --- a damaged shard, a lost tokenizer and an unfinished run are refused
rm -rf d && cp -r whole d
printf 'X' | dd of=d/shard-000001.$container bs=1 seek=3000 conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" verify d
has err.txt "copy the damaged shards back"
hasnt err.txt "ccpack repair"
rm d/shard-000002.cci
expect 65 "$BIN/ccpack" repair d
has err.txt "no other file has its samples"
[ ! -e d/shard-000002.cci ] || fail "changed something"
rm -rf d && cp -r whole d
echo other >d/tokenizer.model
expect 65 "$BIN/ccdump" verify d
has out.txt "tokenizer --overwrite"
hasnt err.txt "pack"
expect 65 "$BIN/ccpack" repair d --json
has out.txt '"file":"tokenizer.model"'
has out.txt '"refused":1'
cp whole/tokenizer.model d
echo >d/pack.journal
expect 73 "$BIN/ccpack" repair d
has err.txt "--resume"
rm d/pack.journal
done

# --- tars in place: their index is nowhere else
mkdir tars && cp scenes.tar tars/a.tar
"$BIN/ccpack" index -q tars/a.tar
printf 'X' | dd of=tars/a.tar bs=1 seek=3000 conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" verify tars
has err.txt "ccpack index --overwrite"
expect 65 "$BIN/ccpack" repair tars
has err.txt "ccpack index --overwrite"
expect 66 "$BIN/ccpack" repair bad
expect 64 "$BIN/ccpack" repair
echo passed
