# A source reads no file outside of its folder unless it is asked to: links, absolute names and '..' are listed rejects.
. "$SRC/tests/support/cli.sh"
"$TESTBIN/make_scenes" val 4 1 48 all.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d all.tar
expect 0 "$BIN/ccdump" extract d -o x
set -- x/*.jpg
cp "$1" mine.jpg
printf 'my secret\n' >mine.txt
printf '{"secret":"my secret"}\n' >mine.json
rejected() { # rejected DATASET COUNT SOURCE OPTION...: that many rows are outside, and none with --follow-links
    o=$1
    n=$2
    shift 2
    expect 0 "$BIN/ccpack" -o "$o" "$@" --max-bad 100%
    [ "$(grep -c '"reason":"outside"' "$o/rejects.jsonl")" = "$n" ] || fail "not $n rows outside: $(cat "$o/rejects.jsonl")"
    "$BIN/ccdump" ls "$o" --json >ls.txt
    "$BIN/ccdump" cat "$o" >cat.tar
    hasnt ls.txt "my secret"
    hasnt cat.tar "my secret"
    expect 0 "$BIN/ccpack" -o "$o-all" "$@" --follow-links
    "$BIN/ccdump" cat "$o-all" | grep -q . || fail "--follow-links reads nothing"
    [ ! -e "$o-all/rejects.jsonl" ] || hasnt "$o-all/rejects.jsonl" outside
    expect 0 "$BIN/ccdump" info "$o-all"
    has out.txt "follow-links"
}
mkdir -p pairs/sub classes/cat
for name in a b c d e; do
    cp mine.jpg pairs/$name.jpg
    printf '%s\n' $name >pairs/$name.txt
done
ln -sf ../mine.txt pairs/b.txt
ln -sf "$PWD/mine.jpg" pairs/c.jpg
ln -sf ../mine.json pairs/d.json
ln -sf a.jpg pairs/e.jpg # within: read
rejected o1 3 pairs
cp mine.jpg classes/cat/1.jpg
ln -s ../../mine.jpg classes/cat/2.jpg
mkdir other && cp mine.jpg other/3.jpg && ln -s "$PWD/other" classes/dog
rejected o2 2 classes --from folders
mkdir lists && cp mine.jpg lists/1.jpg && ln -s .. lists/up
printf 'a\t1.jpg\nb\t../mine.jpg\nc\t%s\nd\tup/mine.jpg\ne\t%s\n' "$PWD/mine.jpg" "$PWD/lists/1.jpg" >lists/l.tsv
rejected o3 3 lists/l.tsv
rejected o4 3 lists/l.tsv --images lists
