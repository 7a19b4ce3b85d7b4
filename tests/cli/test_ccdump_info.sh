# ccdump info, ls and show on a dataset, on one of its shards, and on a plain tar made of it: all show
# the same samples.
. "$SRC/tests/support/cli.sh"

for container in tar.zst tar; do
mkdir "$container" && cd "$container"
"$TESTBIN/make_dataset" d 250 100 0 1 "$container"
shard=d/made-000001.$container

# --- info
expect 0 "$BIN/ccdump" info d
grep -q "^samples: *250$" out.txt
expect 0 "$BIN/ccdump" info d $shard --json
lines out.txt 2
head -1 out.txt >d.txt
for key in samples id_space texts shards image_bytes bytes fingerprint container created_by \
    generations sources options classes tokenizer; do
    has d.txt "\"$key\":"
done
has d.txt '"samples":250,"id_space":250,'
has d.txt "\"container\":\"$container\""
tail -1 out.txt >shard.txt
has shard.txt '"samples":100,"id_space":200,'
has shard.txt "\"container\":\"$container\",\"created_by\":null"
expect 66 "$BIN/ccdump" info nowhere
has err.txt nowhere
mkdir empty
expect 66 "$BIN/ccdump" info empty
has err.txt "empty is not a dataset"

# The fingerprint of a shard is that of a dataset of only its samples.
"$TESTBIN/make_dataset" first 100 100 0 1 "$container"
expect 0 "$BIN/ccdump" info first --json
print=$(field out.txt fingerprint)
expect 0 "$BIN/ccdump" info d/made-000000.$container --json
[ "$(field out.txt fingerprint)" = "$print" ] || fail "another fingerprint of a shard by itself"
"$BIN/ccdump" cat first >first.tar
expect 0 "$BIN/ccdump" info first.tar --json
has out.txt '"container":"webdataset","created_by":null'

# --- ls
expect 0 "$BIN/ccdump" ls d
lines out.txt 250
expect 0 "$BIN/ccdump" ls d --from 90 --count 20 --json
lines out.txt 20
mv out.txt some.txt
has some.txt '{"id":90,"captions":["caption 0 of 90: '
hasnt some.txt '"key"'
expect 0 "$BIN/ccdump" ls $shard --count 10 --json
tail -10 some.txt | sed 's/"position":[0-9]*,"text_id":[0-9]*,//' >some-of-d.txt
sed 's/"position":[0-9]*,"text_id":[0-9]*,//' out.txt >some-of-shard.txt
cmp some-of-d.txt some-of-shard.txt
expect 0 "$BIN/ccdump" ls d --id 3,7-9 --id 8-10 --id 248- --keys
awk '{ print $1, $2 }' out.txt >ids.txt
printf '%s k%09d\n' 3 3 7 7 8 8 9 9 10 10 248 248 249 249 | cmp - ids.txt
expect 0 "$BIN/ccdump" ls d --id 3,7-9 --from 8
lines out.txt 2
expect 66 "$BIN/ccdump" ls d --id 250
has err.txt "no sample 250"
for wrong in x 1- -1 3-2 1,,2 5-6-7 99999999999999999999 '' '1 2'; do
    [ "$wrong" = 1- ] || expect 64 "$BIN/ccdump" ls d "--id=$wrong"
done
expect 0 "$BIN/ccdump" ls d --shards
lines out.txt 3
has out.txt "made-000001.$container"
expect 0 "$BIN/ccdump" ls d --shards --json
lines out.txt 3
sed -n 2p out.txt >second.txt
expect 0 "$BIN/ccdump" ls $shard --shards --json
cmp second.txt out.txt
[ "$(field out.txt bytes)" = "$(wc -c <$shard)" ] || fail "bytes of a shard"

# Lines are truncated to the width, counted in columns and not in bytes.
expect 0 env COLUMNS=70 "$BIN/ccdump" ls d
[ "$(LC_ALL=C.UTF-8 wc -L <out.txt)" -le 70 ] || fail "a line beyond COLUMNS"
has out.txt "…"
expect 0 "$BIN/ccdump" ls d
hasnt out.txt "…"

# --- show
for what in d $shard; do
    expect 0 "$BIN/ccdump" show $what 116 --json
    has out.txt '"id":116,"key":"k000000116","captions":["caption 0 of 116: '
    has out.txt '"width":116,"height":116,"format":"jpeg",'
    has out.txt '"meta":{"url":'
    has out.txt "\"shard\":\"made-000001.$container\",\"offset\":"
    expect 0 "$BIN/ccdump" show $what --id 116 --image image.bin --force
    [ ! -s out.txt ] || fail "--image prints something"
    "$BIN/ccdump" show $what 116 --image - | cmp - image.bin
    "$BIN/ccdump" cat $what --id 116 --image | cmp - image.bin
done
expect 0 "$BIN/ccdump" show d 116 --json --image again.bin
has out.txt '"id":116'
cmp image.bin again.bin
dd if=$shard bs=1 skip="$(field out.txt offset)" count="$(field out.txt image_bytes)" of=by-hand \
    2>dd.txt
cmp image.bin by-hand
expect 0 "$BIN/ccdump" show d --position 10
grep -qz "id: *10.key: *k000000010" out.txt
expect 66 "$BIN/ccdump" show d 250
has err.txt "no sample 250"
expect 66 "$BIN/ccdump" show d --position 250
expect 64 "$BIN/ccdump" show d --id 1 --position 1
expect 64 "$BIN/ccdump" show d 1 --id 1
expect 64 "$BIN/ccdump" show d one
expect 64 "$BIN/ccdump" show d 1 --json --image -
expect 64 "$BIN/ccdump" show d --nonsense
expect 64 "$BIN/ccdump" nonsense
expect 74 "$BIN/ccdump" show d 1 --image err.txt/x
has err.txt err.txt/x

# --- a plain tar: rows are ids, everything else is equal
"$BIN/ccdump" cat d >plain.tar
gzip -k plain.tar
zstd -q plain.tar -o plain.zst
for tar in plain.tar plain.tar.gz plain.zst; do
    expect 0 "$BIN/ccdump" ls $tar --json
    lines out.txt 250
    expect 0 "$BIN/ccdump" show $tar 116 --json
    has out.txt '"id":116,"key":"k000000116"'
    has out.txt '"meta":{"url":'
    expect 0 "$BIN/ccdump" show $tar 116 --image tarred.bin --force
    cmp image.bin tarred.bin
    expect 66 "$BIN/ccdump" show $tar 250
    has err.txt "no sample 250"
done
expect 0 "$BIN/ccdump" ls - --json <plain.tar
lines out.txt 250
expect 64 "$BIN/ccdump" ls plain.tar --shards
printf 'a,b\n1,2\n' >table.csv
expect 65 "$BIN/ccdump" ls table.csv
has err.txt "table.csv: neither a dataset directory"

# --- write errors: a closed pipe ends the listing quietly, a full disk gives a message
"$BIN/ccdump" ls d --json 2>err.txt | head -1 >out.txt
lines out.txt 1
[ ! -s err.txt ] || { cat err.txt; fail "a closed pipe gives a message"; }
(trap '' PIPE; "$BIN/ccdump" ls d --json 2>err.txt | head -1 >out.txt)
[ ! -s err.txt ] || { cat err.txt; fail "a closed pipe gives a message if the signal is ignored"; }
if [ -e /dev/full ]; then
    for command in "info d" "ls d" "show d 1" "stats d" "find d" "cat d" "verify d"; do
        code=0
        # shellcheck disable=SC2086
        "$BIN/ccdump" $command >/dev/full 2>err.txt || code=$?
        [ "$code" = 74 ] || fail "exit code $code on a full disk: $command"
    done
fi
cd ..
done

# A dataset without samples is valid.
"$TESTBIN/make_dataset" none 0
for command in info ls "ls --shards" "ls --json" stats "stats --json" "cat -o none.tar" \
    "extract -o none.files" verify; do
    # shellcheck disable=SC2086
    set -- $command
    name=$1
    shift
    expect 0 "$BIN/ccdump" "$name" none "$@"
done
[ "$(tar -tf none.tar | wc -l)" = 0 ] || fail "an empty dataset gives members"
expect 66 "$BIN/ccdump" show none
expect 66 "$BIN/ccdump" find none
head -c 10240 /dev/zero >zeros.tar
expect 65 "$BIN/ccdump" ls zeros.tar
echo passed
