# ccdump cat and extract: exact bytes from datasets, shards and tars, under unique names inside the
# folder.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_dataset" d 60 25

# --- cat: parts
expect 0 "$BIN/ccdump" cat d --id 15 --caption
lines out.txt 5
has out.txt "caption 4 of 15: "
expect 0 "$BIN/ccdump" cat d --id 14 --json-text
has out.txt '"key":"k000000014"'
expect 0 "$BIN/ccdump" cat d --caption
lines out.txt "$("$BIN/ccdump" info d --json | sed 's/.*"texts":\([0-9]*\),"shards.*/\1/')"
expect 64 "$BIN/ccdump" cat d --image
expect 64 "$BIN/ccdump" cat d --image --id 1,2
expect 64 "$BIN/ccdump" cat d --id 1 --image --caption
expect 66 "$BIN/ccdump" cat d --id 60 --image

# --- cat: tars. That of a shard is the content of the shard, the same for every container.
"$TESTBIN/make_dataset" plain 60 25 0 1 tar
for k in 0 1 2; do
    zstd -dcq d/made-00000$k.tar.zst >inside.tar
    "$BIN/ccdump" cat d/made-00000$k.tar.zst | cmp - inside.tar
    "$BIN/ccdump" cat plain/made-00000$k.tar | cmp - inside.tar
done
"$BIN/ccdump" cat d >all.tar
"$BIN/ccdump" cat d -o file.tar
cmp all.tar file.tar
"$BIN/ccdump" cat plain | cmp - all.tar
"$TESTBIN/make_scenes" val 20 1 48 scenes.tar >scenes.txt
"$BIN/ccpack" -q -o scenes scenes.tar
"$BIN/ccdump" cat scenes >normal.tar
"$BIN/ccdump" cat scenes.tar | cmp - normal.tar
"$BIN/ccdump" cat normal.tar | cmp - normal.tar
expect 0 "$BIN/ccdump" cat d --from 10 --count 3 -o some.tar
[ "$(tar -tf some.tar | cut -d . -f 1 | uniq | tr '\n' ' ')" = "k000000010 k000000011 k000000012 " ] ||
    fail "--from 10 --count 3"
rm -f gone.tar
cp -r d bad
printf 'X' | dd of=bad/made-000001.tar.zst bs=1 seek=2000 conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" cat bad -o gone.tar
[ ! -e gone.tar ] && [ ! -e gone.tar.tmp ] || fail "an incomplete tar is left"
expect 74 "$BIN/ccdump" cat d -o err.txt/folder.tar

# --- extract: the files of the tar
expect 0 "$BIN/ccdump" extract d -o files --json
has out.txt '"samples":60,'
mkdir reference && tar xf all.tar -C reference
diff -r files reference
expect 0 "$BIN/ccdump" extract d/made-000001.tar.zst -o part
expect 0 "$BIN/ccdump" extract d -o made/on/the/way --id 25-49
mv made/on/the/way part2
diff -r part part2
expect 0 "$BIN/ccdump" extract scenes -o from-dataset
expect 0 "$BIN/ccdump" extract scenes.tar -o from-tar
diff -r from-dataset from-tar

# --- existing files: equal ones are skipped, others are replaced only on request
expect 0 "$BIN/ccdump" extract d -o files --json
has out.txt '"written":0,'
rm files/k000000014.json
truncate -s -1 files/k000000017.png
cp -r files before
expect 73 "$BIN/ccdump" extract d -o files --id 17
has err.txt "files/k000000017.png: exists with other bytes"
diff -r files before
expect 0 "$BIN/ccdump" extract d -o files --overwrite --json
has out.txt '"written":2,'
diff -r files reference
ln -s ../outside.png link && mkdir linked && ln -s ../outside linked/k000000017.png
echo "not mine" >outside
expect 73 "$BIN/ccdump" extract d -o linked --id 17
expect 0 "$BIN/ccdump" extract d -o linked --id 17 --overwrite
[ "$(cat outside)" = "not mine" ] || fail "a link was followed"
cmp linked/k000000017.png reference/k000000017.png
expect 64 "$BIN/ccdump" extract d
expect 66 "$BIN/ccdump" extract nowhere -o x
[ ! -e x ] || fail "a refused run made the folder"
echo "a file" >taken
code=0
"$BIN/ccdump" extract d -o taken >out.txt 2>err.txt || code=$?
[ "$code" != 0 ] || fail "a file as the folder"

# --- keys that lead out of the folder, repeat, or become equal when they are made safe
"$TESTBIN/make_scenes" val 6 1 48 six.tar >scenes.txt
mkdir x && tar xf six.tar -C x
set -- x/*.jpg
n=0
: >evil.list
for key in '../../evil' '/tmp/evil' 'a/b' 'a_b' 'same' 'sub/../same'; do
    n=$((n + 1))
    mkdir -p stage/$n
    cp "$1" stage/$n/p.jpg
    echo "caption $n" >stage/$n/p.txt
    tar rPf evil.tar --transform "s|stage/$n/p|$key|" stage/$n/p.jpg stage/$n/p.txt
    shift
done
cp "stage/5/p.jpg" same.jpg
echo "again" >same.txt
tar rf evil.tar same.jpg same.txt
mkdir -p deep/er
expect 0 "$BIN/ccdump" extract evil.tar -o deep/er/out --json
has out.txt '"samples":7,'
[ "$(find deep -type f | wc -l)" = 14 ] || { find deep; fail "not fourteen files"; }
[ "$(find deep -path 'deep/er/out/*' -type f | wc -l)" = 14 ] || fail "a file is outside the folder"
[ ! -e evil.jpg ] && [ ! -e deep/evil.jpg ] && [ ! -e /tmp/evil.jpg ] || fail "a file outside the folder"
"$BIN/ccdump" cat evil.tar | tar -t >names.txt
lines names.txt 14
[ "$(sort -u names.txt | wc -l)" = 14 ] || fail "names repeat"
grep -q / names.txt && fail "a name with a slash"
for n in 1 2 3 4 5 6; do
    grep -lx "caption $n" deep/er/out/*.txt >which.txt
    name=$(cat which.txt)
    cmp "${name%.txt}.jpg" "stage/$n/p.jpg"
done

# Rows without an image: extract writes their texts, cat omits them with a message.
echo "only text" >text.txt
tar rf evil.tar text.txt
expect 0 "$BIN/ccdump" cat evil.tar
has err.txt "1 row without an image omitted"
expect 0 "$BIN/ccdump" extract evil.tar -o deep/er/out
grep -qz "samples: *8.written: *1.present: *14" out.txt

# --- Ctrl-C: files that exist are complete, and the same command resumes
"$TESTBIN/make_dataset" many 4000 1000
"$BIN/ccdump" extract many -o slow >out.txt 2>err.txt &
pid=$!
for ((i = 0; i < 100; i++)); do
    [ "$(find slow -name '*.txt' 2>/dev/null | head -20 | wc -l)" -ge 20 ] && break
    sleep 0.02
done
kill -INT $pid
code=0
wait $pid || code=$?
if [ "$code" != 0 ]; then
    [ "$code" = 130 ] || { cat err.txt; fail "exit code $code after SIGINT"; }
    has err.txt "run it again to resume"
fi
ls slow | grep -q '\.tmp$' && fail "a temporary file is left"
expect 0 "$BIN/ccdump" extract many -o slow --json
has out.txt '"samples":4000,'
[ "$code" = 0 ] || hasnt out.txt '"present":0,'

# Ctrl-C while the program waits for data from a pipe.
mkfifo pipe
for command in "verify -" "cat - -o stopped.tar" "extract - -o stopped"; do
    # shellcheck disable=SC2086
    "$BIN/ccdump" $command <pipe >out.txt 2>err.txt &
    pid=$!
    exec 3>pipe
    head -c 20000 scenes.tar >&3
    # Until the program catches the signal: the shell lets background commands ignore it.
    for ((i = 0; i < 500; i++)); do
        grep -q 'SigCgt:.*[2367abef]$' /proc/$pid/status && break
        sleep 0.02
    done
    sleep 0.1
    kill -INT $pid
    code=0
    wait $pid || code=$?
    exec 3>&-
    [ "$code" = 130 ] || { cat out.txt err.txt; fail "exit code $code after SIGINT: $command"; }
done
[ ! -e stopped.tar ] && [ ! -e stopped.tar.tmp ] || fail "an incomplete tar is left"
echo passed
