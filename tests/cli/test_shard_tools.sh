# Shards of every container and standard tools: zstd, tar, bsdtar and Python's tarfile see the same members
# with the same bytes, at the offsets in the index.
. "$SRC/tests/support/cli.sh"
command -v zstd >which.txt || { echo "skipped: no zstd program"; exit 77; }

"$TESTBIN/make_scenes" val 60 1 96 scenes.tar >scenes.txt
mkdir source && tar xf scenes.tar -C source
set -- source/*.jpg
i=0
while [ $i -lt 300 ]; do # an image beyond one block of 128 KiB, which a shard has to split
    cat "$1"
    i=$((i + 1))
done >tail
cat "$1" tail >long && mv long "$1"
for k in 1 2; do
    echo "one more caption $k" >"${1%.jpg}.$k.txt"
done
tar cf source.tar --sort=name -C source .
sums() { # sums FOLDER: of the images in it
    (cd "$1" && sha256sum -- *.jpg)
}
sums source >source.sums

quietly() { # quietly COMMAND...: it succeeds and complains of nothing
    "$@" 2>noise.txt || { cat noise.txt; fail "$*"; }
    [ ! -s noise.txt ] || { cat noise.txt; fail "$* complains"; }
}

check_shard() { # check_shard SHARD NAMES SUMS: one file, and what is in it
    shard=$1
    quietly tar -tf "$shard" >names.txt
    cmp names.txt "$2" || fail "tar sees other members in $shard"
    case $shard in
    *.zst)
        zstd -qt "$shard" || fail "zstd -t $shard"
        quietly tar --zstd -tf "$shard" | cmp - names.txt || fail "tar --zstd"
        cp "$shard" unnamed # by its bytes alone
        quietly tar -tf unnamed | cmp - names.txt || fail "tar does not see by itself that it is zstd"
        zstd -dcq "$shard" >inside.tar
        ;;
    *)
        cp "$shard" inside.tar
        ;;
    esac
    tar -tf - <inside.tar | cmp - names.txt || fail "a pipe"
    if command -v bsdtar >which.txt; then
        quietly bsdtar -tf "$shard" | cmp - names.txt || fail "bsdtar"
    fi
    if command -v python3 >which.txt; then
        python3 -c '
import sys, tarfile
for member in tarfile.open(fileobj=sys.stdin.buffer, mode="r|"):
    assert member.isreg()
    print(member.name)' <inside.tar | cmp - names.txt || fail "Python's tarfile"
    fi
}

check_dataset() { # check_dataset DIR: shards as above; the images are the source's
    mkdir "$1-out"
    for file in "$1"/shard-*.tar*; do
        "$BIN/ccdump" cat "$file" | tar -t >wanted.txt
        case $file in *.tar) echo __ccstream-index__ >>wanted.txt ;; esac
        check_shard "$file" wanted.txt
        tar xf "$file" -C "$1-out"
    done
    sums "$1-out" | cmp - source.sums || fail "images out of $1 are not the source's"
}

"$BIN/ccpack" -q -o zst --shard-samples 25 source.tar
check_dataset zst
"$BIN/ccpack" -q -o plain --container tar --shard-samples 25 source.tar
check_dataset plain
for k in 0 1 2; do
    "$BIN/ccdump" cat plain/shard-00000$k.tar >a.tar
    "$BIN/ccdump" cat zst/shard-00000$k.tar.zst | cmp - a.tar || fail "containers differ"
done

# Every kind of sample: no captions, five captions, odd sizes, an image of unknown format.
"$TESTBIN/make_dataset" d 60 60
"$BIN/ccdump" cat d | tar -t >wanted.txt
check_shard d/made-000000.tar.zst wanted.txt
mkdir x
quietly tar --zstd -xf d/made-000000.tar.zst -C x
for id in 1 3 10 17 24 31 38 45 52 59; do
    "$BIN/ccdump" cat d --id $id --image >image
    set -- x/k"$(printf %09d $id)".*
    for file; do
        case $file in *.txt | *.json) continue ;; esac
        cmp "$file" image || fail "extracted image of sample $id"
    done
done

# Reading by hand as the specification describes: sample 1 with only dd.
"$BIN/ccdump" show d 1 --json >show.txt
dd if=d/made-000000.tar.zst of=image bs=1 skip="$(field show.txt offset)" \
    count="$(field show.txt image_bytes)" 2>dd.txt
cmp image x/k000000001.jpg

# The two ways into WebDataset that the pages name, read as it reads: a stream per URL, members of one key
# together, names of the form __NAME__ skipped.
for page in docs/guarantees.md pack/README.md; do
    has "$SRC/$page" "pipe:zstd -dcq"
    has "$SRC/$page" "--container tar"
done
pipe=$(sed -n 's/.*f"pipe:\(.*\) {shard}" for.*/\1/p' "$SRC/pack/README.md")
[ "$pipe" = "zstd -dcq" ] || fail "another pipe in pack/README.md: $pipe"
if command -v python3 >which.txt; then
    cat >stream.py <<'EOT'
import re, sys, tarfile
keys = []
for member in tarfile.open(fileobj=sys.stdin.buffer, mode="r|*"):
    if not member.isreg() or re.match(r"^__[^/]*__$", member.name):
        continue
    key, extension = member.name.split(".", 1)
    if not keys or keys[-1][0] != key:
        keys.append((key, []))
    keys[-1][1].append(extension)
assert len(keys) == len({key for key, _ in keys}), "the members of a sample are not together"
assert all("jpg" in extensions and "txt" in extensions for _, extensions in keys), keys
for key, _ in keys:
    print(key)
EOT
    "$BIN/ccdump" ls zst --keys --json | sed 's/.*"key":"\([^"]*\)".*/\1/' >wanted.txt
    for shard in zst/*.tar.zst; do # as the pipe of a URL runs
        sh -c "$pipe $shard" | python3 stream.py || fail "WebDataset's way into $shard"
    done >zst.keys
    for shard in plain/*.tar; do
        python3 stream.py <"$shard" || fail "WebDataset's way into $shard"
    done >plain.keys
    cmp zst.keys wanted.txt || fail "other samples through the pipe"
    cmp plain.keys wanted.txt || fail "other samples in the plain tars"
fi
echo passed
