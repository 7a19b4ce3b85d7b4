# ccdump verify: finds and names damage in datasets, shards and plain tars, continues after it, and
# prints the same for any number of threads.
. "$SRC/tests/support/cli.sh"

for container in tar.zst tar; do
mkdir "$container" && cd "$container"
"$TESTBIN/make_dataset" d 250 20 0 1 "$container"
expect 0 "$BIN/ccdump" verify d
has out.txt "d: ok: 250 samples in 13 shards"
expect 0 "$BIN/ccdump" verify d --json
has out.txt '"ok":true,"faults":0,"samples":250,"shards":13,'
expect 0 "$BIN/ccdump" verify "d/made-000001.$container"
has out.txt "ok: 20 samples in 1 shard,"
expect 0 "$BIN/ccdump" verify "d/made-000001.$container" d --json
lines out.txt 2

# One byte of one image: the fault names shard, sample and byte.
cp -r d bad
"$BIN/ccdump" show bad 116 --json >show.txt
shard=$(field show.txt shard)
offset=$(field show.txt offset)
printf 'X' | dd of="bad/$shard" bs=1 seek="$((offset + 700))" conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" verify bad
has out.txt "bad/$shard: byte 0:"
has out.txt "bad/$shard: sample 116: byte"
has err.txt "2 faults found"
expect 65 "$BIN/ccdump" verify bad --json
has out.txt "\"shard\":\"$shard\",\"offset\":"
has out.txt '"id":116'
has out.txt '"ok":false,"faults":2,"samples":249,'
expect 65 "$BIN/ccdump" verify "bad/$shard"
has out.txt "bad/$shard: sample 116: byte"
expect 65 "$BIN/ccdump" show bad 116
expect 0 "$BIN/ccdump" show bad 117
expect 65 "$BIN/ccdump" verify d bad d
lines out.txt 4

# Many faults: printed in the order of the shards.
for number in 02 05 07 11; do
    for place in 300 5000; do
        printf 'YYYY' | dd of="bad/made-0000$number.$container" bs=1 seek=$place conv=notrunc 2>dd.txt
    done
done
truncate -s -5 bad/made-000009.$container
rm bad/made-000012.$container
expect 65 "$BIN/ccdump" verify bad --jobs 1
mv out.txt one.txt
lines one.txt "$(sort one.txt | uniq | wc -l)"
cut -d : -f 1 one.txt | sort -c || fail "not in the order of the shards"
for shard in 02 05 07 09 11 12; do
    has one.txt "made-0000$shard.$container"
done
for jobs in 2 5 0 64; do
    expect 65 "$BIN/ccdump" verify bad --jobs $jobs
    cmp one.txt out.txt || fail "--jobs $jobs prints something else"
done
expect 65 "$BIN/ccdump" show bad 1
has err.txt made-000009.$container
expect 0 "$BIN/ccdump" info bad
cp -r d less
rm less/made-000012.$container
expect 66 "$BIN/ccdump" ls less
has err.txt made-000012.$container

# A shard with a damaged end is not taken for a plain tar, nor is one with a wrong index.
expect 65 "$BIN/ccdump" ls "bad/made-000009.$container"
has err.txt "made-000009.$container: "
hasnt err.txt "neither a dataset"
rm bad/made-000009.cci
expect 65 "$BIN/ccdump" ls "bad/made-000009.$container"
has err.txt "made-000009.$container: "
cp "d/made-000003.$container" "lies.$container"
place=$(grep -abo CCSINDEX "lies.$container" | tail -1 | cut -d : -f 1)
printf 'ZZ' | dd of="lies.$container" bs=1 seek=$((place + 200)) conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" ls "lies.$container"
expect 65 "$BIN/ccdump" verify "lies.$container"

# A shard without sidecar and manifest that ends after a sample, within one or in its first, or whose
# end is damaged, is unfinished and not a plain tar with ids of its own.
shard="d/made-000003.$container"
bytes=$(wc -c <"$shard")
if [ "$container" = tar ]; then
    boundary=$(($(grep -abo ustar "$shard" | sed -n 5p | cut -d : -f 1) - 257))
    tail=1536
else
    boundary=$(LC_ALL=C grep -aboP '\x28\xb5\x2f\xfd\x64' "$shard" | sed -n 3p | cut -d : -f 1)
    tail=9
fi
for size in $boundary $((boundary + 700)) 900 $((bytes - 1)); do
    head -c "$size" "$shard" >"alone.$container"
    expect 65 "$BIN/ccdump" verify "alone.$container"
    has out.txt "unfinished"
    expect 65 "$BIN/ccdump" ls "alone.$container"
    has err.txt "unfinished"
    lines out.txt 0
done
cp "$shard" "alone.$container"
printf 'XXXXXXXXX' | dd of="alone.$container" bs=1 seek=$((bytes - tail)) conv=notrunc 2>dd.txt
expect 65 "$BIN/ccdump" verify "alone.$container"
has out.txt "unfinished"
# What ccdump cat writes is a plain tar, also compressed in one frame by zstd.
"$BIN/ccdump" cat d -o plain.tar
expect 0 "$BIN/ccdump" ls plain.tar
lines out.txt 250
zstd -q -f plain.tar -o plain.tar.zst
expect 0 "$BIN/ccdump" ls plain.tar.zst
lines out.txt 250

# A missing sidecar, or that of another shard, is reported and does no other harm.
cp -r d side
rm side/made-000000.cci
cp side/made-000002.cci side/made-000005.cci
expect 0 "$BIN/ccdump" show side 116 --json
cmp out.txt show.txt
expect 65 "$BIN/ccdump" verify side
has out.txt "made-000005.cci"
cp d/made-000005.cci side/
expect 0 "$BIN/ccdump" verify side

# A shard that is not listed is mentioned, and is no fault.
cp "side/made-000003.$container" "side/made-000099.$container"
cp "side/made-000003.$container" "side/made-000098.$container.tmp"
expect 0 "$BIN/ccdump" verify side
has err.txt "side contains 1 shard that dataset.json does not list (unused): made-000099.$container"
expect 0 "$BIN/ccdump" verify side --json
has out.txt '"unlisted_shards":1,'
expect 0 "$BIN/ccdump" verify d
hasnt err.txt "does not list"

# A good dataset with another manifest: found by the fingerprint.
cp -r d other
print=$("$BIN/ccdump" info d --json | sed 's/.*"fingerprint":"\([0-9a-f]*\)","container.*/\1/')
sed -i "s/$print/0123456789abcdef/g" other/dataset.json
expect 65 "$BIN/ccdump" verify other
has out.txt "other: the samples have the fingerprint $print"

# --decode: the images of d are noise.
expect 65 "$BIN/ccdump" verify d --decode --json
has out.txt '"faults":250,"samples":0,'
cd ..
done

# A pipe in place of any file of a dataset is refused at once; opening one would wait for a writer.
"$TESTBIN/make_dataset" pipes 40 20
mkdir saved
for name in dataset.json made-000001.tar.zst made-000001.cci tokens.cct; do
    [ ! -e "pipes/$name" ] || mv "pipes/$name" saved/
    mkfifo "pipes/$name"
    code=0
    timeout 20 "$BIN/ccdump" verify pipes >out.txt 2>err.txt || code=$?
    [ "$code" = 65 ] || [ "$code" = 74 ] || fail "a pipe as $name: exit code $code"
    cat out.txt err.txt >both.txt
    has both.txt "$name"
    rm "pipes/$name"
    [ ! -e "saved/$name" ] || mv "saved/$name" pipes/
done
expect 0 "$BIN/ccdump" verify pipes
mkfifo lone.tar
for command in verify ls info; do
    code=0
    timeout 20 "$BIN/ccdump" $command lone.tar >out.txt 2>err.txt || code=$?
    [ "$code" = 65 ] || fail "$command of a pipe: exit code $code"
done

# The first SIGTERM ends a verify between datasets as within one; what was not checked is not ok.
many=$(printf 'pipes %.0s' $(seq 20000))
: >term.txt
# shellcheck disable=SC2086
"$BIN/ccdump" verify $many >term.txt 2>err.txt &
pid=$!
while [ "$(wc -l <term.txt)" -lt 3 ]; do sleep 0.05; done
kill -TERM "$pid"
code=0
wait "$pid" || code=$?
[ "$code" = 130 ] || fail "verify ended by SIGTERM: exit code $code"
has err.txt interrupted

# A plain tar: rows that cannot be packed, images that do not decode, a truncated tar.
"$TESTBIN/make_scenes" val 20 1 48 good.tar >scenes.txt
expect 0 "$BIN/ccdump" verify good.tar
has out.txt "ok: 20 samples in 1 tar"
"$BIN/ccpack" -q -o packed good.tar
expect 0 "$BIN/ccdump" verify packed --decode
mkdir x && tar xf good.tar -C x
set -- x/*.jpg
head -c $(($(wc -c <"$3") / 2)) "$3" >half && mv half "$3"
rm "${5%.jpg}.txt"
echo "no image" >x/zzz.txt
tar cf faulty.tar --sort=name -C x .
expect 65 "$BIN/ccdump" verify faulty.tar
lines out.txt 3
has out.txt "faulty.tar: sample 2: byte"
has out.txt "faulty.tar: sample 4: byte"
has out.txt "caption-missing"
has out.txt "image-missing"
has err.txt "3 faults found"
expect 65 "$BIN/ccdump" verify faulty.tar --json
has out.txt '"id":20'
has out.txt '"ok":false,"faults":3,"samples":18,'
head -c 20000 good.tar >cut.tar
expect 65 "$BIN/ccdump" verify cut.tar
has out.txt "cut.tar: "
expect 65 "$BIN/ccdump" ls cut.tar
expect 66 "$BIN/ccdump" verify nowhere
expect 64 "$BIN/ccdump" verify
expect 64 "$BIN/ccdump" verify d --jobs 2000
echo passed
