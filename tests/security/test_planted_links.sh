# What others planted in a folder that they may write to is never written through: temporary names cannot be guessed, and
# a link under the name of an output is replaced or refused. Files have the modes that the umask says.
. "$SRC/tests/support/cli.sh"
unset CCSTREAM_REPORT
"$TESTBIN/make_scenes" val 40 1 48 all.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d all.tar
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60
printf 'mine\n' >kept.txt
plant() { # plant NAME...: links to a file of mine
    for name in "$@"; do
        cp kept.txt victim.txt
        ln -sfn "$PWD/victim.txt" "$name"
    done
}
intact() {
    cmp -s kept.txt victim.txt || fail "a file behind a planted link was overwritten: $*"
}
through() { # through OUTPUT COMMAND...: links wait at OUTPUT.tmp and, with --force, at OUTPUT
    output=$1
    shift
    plant "$output.tmp"
    expect 0 "$@"
    intact "$@"
    [ -s "$output" ] && [ ! -L "$output" ] || fail "no $output: $*"
}
through p.html "$BIN/ccdump" show d 0 --html p.html
through s.html "$BIN/ccdump" stats d --html s.html
through c.txt "$BIN/ccdump" cat d --caption -o c.txt
through i.jpg "$BIN/ccdump" show d 0 --image i.jpg
plant i.jpg
expect 0 "$BIN/ccdump" show d 0 --image i.jpg --force
intact "--force"
mkdir e f
for name in $("$BIN/ccdump" ls d --keys --json | sed -n 's/.*"key":"\([^"]*\)".*/\1/p'); do
    plant "e/$name.jpg.tmp" "e/$name.txt.tmp" "e/$name.txt"
done
expect 0 "$BIN/ccdump" extract d -o e --overwrite
intact extract

# In a dataset's folder: the manifest, shards, the tokenizer and its cache.
rm -f all.txt
plant d/dataset.json.tmp d/tokenizer.model.tmp d/tokens.cct.tmp d/shard-000000.cci.tmp d/rejects.jsonl.tmp
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60 --overwrite --cache
intact "ccpack tokenizer"
plant d/pack.journal
expect 0 "$BIN/ccpack" -q -o d all.tar --overwrite
intact "ccpack --overwrite"
printf 'not an image\n' >bad.jpg && printf 'x\n' >bad.txt && cp all.tar more.tar && tar -rf more.tar bad.jpg bad.txt
plant d/rejects.jsonl.tmp
"$BIN/ccpack" -q -o d more.tar --overwrite || true
intact "rejects.jsonl"
mkdir t && cp all.tar t/
plant t/all.cci.tmp t/dataset.json.tmp
expect 0 "$BIN/ccpack" index -q t/all.tar
intact "ccpack index"

# In a run's folder: what is written at once, what grows, and heartbeats.
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60
expect 0 "$BIN/ccstream-train" -q --preset cpu-demo --image-tower tiny --data d --out r --epochs 9 --steps 1 --batch 4
mkdir -p r/ranks
plant r/config.json.tmp r/report.html.tmp r/checkpoints/step-2.safetensors.tmp r/ranks/0.json.tmp r/last.tmp
expect 0 "$BIN/ccstream-train" -q --resume r --steps 2
intact "ccstream-train"
for name in sessions.jsonl metrics.jsonl; do
    cp -r r "again-$name"
    rm "again-$name/$name"
    plant "again-$name/$name"
    code=0
    "$BIN/ccstream-train" -q --resume "again-$name" --steps 3 >out.txt 2>&1 || code=$?
    intact "$name"
    [ $code != 0 ] || [ ! -L "again-$name/$name" ] || fail "$name: a planted link is still there"
done
plant r.html.tmp
expect 0 "$BIN/ccstream-report" r -o r.html
intact "ccstream-report"

# A draft that a killed process left is deleted by the next run; nobody else's file is.
: >d/tokens.cct.01234567.tmp
: >d/notes.01234567.tmp
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60 --overwrite --cache
[ ! -e d/tokens.cct.01234567.tmp ] || fail "a draft of a killed process stays"
[ -e d/notes.01234567.tmp ] || fail "a file of somebody else was deleted"

# umask
for mask in 077 022; do
    rm -rf m && (umask "$mask" && "$BIN/ccpack" -q -o m all.tar && "$BIN/ccpack" tokenizer -q m --vocab-size 60 --cache &&
        "$BIN/ccdump" show m 0 --html m/../m.html --force &&
        "$BIN/ccstream-train" -q --preset cpu-demo --image-tower tiny --data m --out m/../m-$mask --steps 1 --batch 4)
    wider=$([ $mask = 077 ] && echo 077 || echo 022)
    found=$(find m m.html "m-$mask" -perm "/$wider" ! -type l)
    [ -z "$found" ] || fail "umask $mask: wider modes: $found"
done

# Where ranks of torchrun meet: the folder of an earlier launch is removed with its files, a link in its place is not followed.
if [ -e "$BIN/libccstream_gloo.so" ]; then
    mkdir -p g/ranks precious
    echo mine >precious/file.txt
    ln -s ../../precious g/ranks/meet-1
    echo "2 0 meet-1 elsewhere - 1 1" >g/ranks/join
    expect 75 env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$BIN/ccstream-train" -q --preset cpu-demo --data d --out g \
        --batch-size 4 --rank-timeout 1
    has err.txt "has not joined"
    [ "$(cat precious/file.txt)" = mine ] || fail "files of a folder that a planted link names were removed"
fi
