# What stock tools make of a shard: it is a zstd file, a tar in it, and its bytes are where the
# index says.
set -eu
fail() {
    echo "FAILED: $*"
    exit 1
}
command -v zstd >which.txt || { echo "skipped: no zstd program"; exit 77; }

"$TESTBIN/make_dataset" d 60 60
shard=d/made-000000.tar.zst
members=$("$BIN/ccdump" cat d | tar -t | wc -l)

zstd -qt $shard || fail "zstd -t"
tar --zstd -tf $shard >names.txt 2>noise.txt || fail "tar --zstd"
[ ! -s noise.txt ] || { cat noise.txt; fail "tar complains"; }
[ "$(wc -l <names.txt)" = "$members" ] || fail "tar sees other members"
tar -tf $shard | cmp - names.txt || fail "tar does not see by itself that it is zstd"
if command -v bsdtar >which.txt; then
    bsdtar -tf $shard | cmp - names.txt || fail "bsdtar"
fi
zstd -dcq $shard | tar -tf - | cmp - names.txt || fail "a pipe from zstd"

# The plain tar that ccdump writes is the tar in the shard.
zstd -dcq $shard >inside.tar
"$BIN/ccdump" cat d >outside.tar
cmp inside.tar outside.tar

mkdir x
tar --zstd -xf $shard -C x 2>noise.txt
[ ! -s noise.txt ] || { cat noise.txt; fail "tar complains"; }
for id in 1 3 10 17 24 31 38 45 52 59; do
    "$BIN/ccdump" cat d --id $id --image >image
    set -- x/k"$(printf %09d $id)".*
    for file; do
        case $file in *.txt | *.json) continue ;; esac
        cmp "$file" image || fail "extracted image of sample $id"
    done
done

# The spec's way by hand: sample 1 with dd alone.
"$BIN/ccdump" show d --id 1 --json >show.txt
offset=$(sed 's/.*"offset":\([0-9]*\),.*/\1/' show.txt)
size=$(sed 's/.*"image_bytes":\([0-9]*\),.*/\1/' show.txt)
dd if=$shard of=image bs=1 skip="$offset" count="$size" 2>dd.txt
cmp image x/k000000001.jpg
echo passed
