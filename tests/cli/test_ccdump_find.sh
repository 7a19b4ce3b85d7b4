# ccdump find: each condition against ccdump ls --json and grep.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_dataset" d 250 100
"$BIN/ccdump" ls d --keys --json >all.txt
"$BIN/ccdump" cat d >plain.tar

ids() { # ids FILE
    sed 's/^{"id":\([0-9]*\),.*/\1/' "$1"
}
same() { # same PATTERN OPTION...: find gives the ids of the lines that fit
    pattern=$1
    shift
    grep -E -- "$pattern" all.txt >fit.txt || fail "nothing fits '$pattern'"
    expect 0 "$BIN/ccdump" find d --json "$@"
    ids out.txt >found.txt
    ids fit.txt | cmp - found.txt || fail "find $* finds others"
}
same '"key":"k000000117"' --key k000000117
same '"key":"k00000001[0-4]' --key 'k00000001[0-4]'
same '"key":"k[0-9]*7"' --key '*7'
same 'caption [0-9] of [0-9]*: a red' --caption 'A RED'
same 'naïve 99' --caption 'Naïve 99'
same '"format":"png"' --format png
same '"label":3,' --label 3
same '"width":(2[0-9][0-9]|19[0-9]),"height":19[0-9]' --min-side 190
same '"id":(7|8|24[0-9]),' --id 7-8,240-
same '"id":1[3-5][0-9],.*"format":"jpeg".*"label":1,' --id 130-159 --format jpeg --label 1
expect 0 "$BIN/ccdump" find d --max-side 12 --json
ids out.txt | grep -vx -e '[1-9]' -e 1[0-2] && fail "--max-side 12"
expect 0 "$BIN/ccdump" find d --format jpeg --count 3
lines out.txt 3
expect 0 "$BIN/ccdump" find d/made-000001.tar.zst --key 'k*' --format jpeg --json
lines out.txt 20
expect 0 "$BIN/ccdump" find plain.tar --key k000000116 --json
lines out.txt 1
has out.txt '"id":116,"key":"k000000116"'

# Duplicates are found by the hash of their bytes.
hash=$(sed -n 's/^{"id":116,.*"hash":"\([0-9a-f]*\)".*/\1/p' all.txt)
same '"id":116,' --hash "$hash"
expect 0 "$BIN/ccdump" find plain.tar --hash "$hash" --json
has out.txt '"id":116,'

# Classes of folders have names.
mkdir -p tree/cat tree/dog
"$TESTBIN/make_scenes" val 6 1 32 some.tar >scenes.txt
mkdir some && tar xf some.tar -C some
set -- some/*.jpg
cp "$1" "$2" "$3" tree/cat/
cp "$4" "$5" tree/dog/
"$BIN/ccpack" -q --from folders -o classes tree
expect 0 "$BIN/ccdump" find classes --class 'c?t' --json
lines out.txt 3
has out.txt '"label":0,"class":"cat"'
expect 0 "$BIN/ccdump" find classes --class dog
lines out.txt 2
has out.txt "  0  [dog]"
expect 66 "$BIN/ccdump" find classes --class '?'
expect 0 "$BIN/ccdump" info classes --json
has out.txt '"classes":["cat","dog"]'
expect 0 "$BIN/ccdump" stats classes --json
has out.txt '"labels":[{"label":0,"class":"cat","samples":3},{"label":1,"class":"dog","samples":2}]'
expect 0 "$BIN/ccdump" stats classes
grep -q "^ *1 *dog *2$" out.txt

# If nothing is found, the exit code is 66 and standard output is empty.
expect 66 "$BIN/ccdump" find d --caption 'no such words' --json
[ ! -s out.txt ] || fail "output although nothing was found"
has err.txt "no sample fits"
expect 66 "$BIN/ccdump" find nowhere --caption x
expect 64 "$BIN/ccdump" find d --hash 123
expect 64 "$BIN/ccdump" find d --hash 123456789012345x
expect 64 "$BIN/ccdump" find d --format tiff
expect 64 "$BIN/ccdump" find d --label -2
expect 64 "$BIN/ccdump" find d --id x
expect 0 "$BIN/ccdump" find --help
has out.txt "66 if none was"
# Keys that a shard cannot hold are found as they were in the source.
"$TESTBIN/make_scenes" val 3 1 48 scenes.tar >scenes.txt
mkdir images && tar xf scenes.tar -C images
set -- images/*.jpg
for ending in jpg txt; do
    mv "${1%.jpg}.$ending" "images/大熊猫.$ending"
    mv "${2%.jpg}.$ending" "images/しろくま.$ending"
done
tar cf images.tar --sort=name -C images .
"$BIN/ccpack" -q -o keys images.tar
expect 0 "$BIN/ccdump" find keys --key '大熊猫' --json
lines out.txt 1
expect 0 "$BIN/ccdump" find keys --key 'し*' --json
lines out.txt 1
expect 66 "$BIN/ccdump" find keys --key '猫' --json
printf '大熊猫\n' >optout.txt
expect 0 "$BIN/ccpack" remove keys --keys optout.txt --json
has out.txt '"removed":1,'
expect 66 "$BIN/ccdump" find keys --key '大熊猫'

# One of a thing is one thing.
expect 0 "$BIN/ccdump" info keys
grep -q "^removed: *1$" out.txt
"$TESTBIN/make_scenes" val 1 1 48 one.tar >scenes.txt
"$BIN/ccpack" -q -o one one.tar
for command in verify "ls --shards"; do
    expect 0 "$BIN/ccdump" $command one
    has out.txt "1 sample"
    hasnt out.txt "1 samples"
    hasnt out.txt "1 captions"
done
echo passed
