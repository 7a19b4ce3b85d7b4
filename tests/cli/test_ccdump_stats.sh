# ccdump stats: the statistics of a collection with known numbers.
. "$SRC/tests/support/cli.sh"

"$TESTBIN/make_dataset" d 250 100
expect 0 "$BIN/ccdump" stats d --json
lines out.txt 1
mv out.txt d.txt
for key in samples texts width height short_side aspect image_bytes captions caption_characters \
    caption_words formats size_unknown reencoded unchecked duplicates labels min mean median max \
    edges counts; do
    has d.txt "\"$key\":"
done
# Sample i is i pixels wide and i % 200 high (tests/support/make_shards.c).
has d.txt '"samples":250,"problems":0,"imageless":0,"texts":407,'
has d.txt '"width":{"count":248,"min":1,'
has d.txt '"median":124,"max":249,"edges":[0,50,100,150,200,250],"counts":[49,50,50,50,49]}'
has d.txt '"formats":{"unknown":50,"jpeg":50,"png":50,"webp":50,"gif":50},"size_unknown":2,'
has d.txt '"reencoded":125,"unchecked":124,"duplicates":{"samples":0,"groups":0,"largest":0,'
has d.txt '{"label":9,"class":null,"samples":25}]'
captions=$("$BIN/ccdump" ls d --json | sed 's/.*"captions":\[\(.*\)\],"width.*/\1/' |
    awk -F '","' '{ n[$0 == "" ? 0 : NF]++ } END { for (k in n) print k, n[k] }' | sort -n | tr '\n' ' ')
[ "$captions" = "0 23 1 182 5 45 " ] || fail "captions per sample by hand: $captions"
has d.txt '"edges":[0,1,2,3,4,5,6],"counts":[23,182,0,0,0,45]}'

expect 0 "$BIN/ccdump" stats d --json --id 0-99
has out.txt '"samples":100,'
expect 0 "$BIN/ccdump" stats d/made-000000.tar.zst --json
has out.txt '"samples":100,'

# As text: bars within the width, and no bar for a count of 0.
expect 0 env COLUMNS=70 "$BIN/ccdump" stats d
grep "█" out.txt >bars.txt
[ "$(LC_ALL=C.UTF-8 wc -L <bars.txt)" = 69 ] || fail "bars do not end at COLUMNS"
grep -qz "width:.  count:  248.  min:    1.  mean:   124.698.  median: 124.  max:    249" out.txt
has out.txt "█"
grep -E '  0   0\.0%  .' out.txt && fail "a bar for a count of 0"
expect 0 "$BIN/ccdump" stats d --bins 1
expect 64 "$BIN/ccdump" stats d --bins 0
expect 66 "$BIN/ccdump" stats nowhere

# A plain tar, with duplicate images and a row that cannot be packed.
"$TESTBIN/make_scenes" val 10 1 48 ten.tar >scenes.txt
mkdir x && tar xf ten.tar -C x
set -- x/*.jpg
one=$1 two=$2
for k in 1 2 3; do
    cp "$one" "x/copy$k.jpg"
    echo "one two three" >"x/copy$k.txt"
done
cp "$two" x/other.jpg
echo "four" >x/other.txt
echo "no image" >x/zzz.txt
tar cf more.tar --sort=name -C x .
expect 0 "$BIN/ccdump" stats more.tar --json
has out.txt '"samples":14,"problems":1,"imageless":1,'
has out.txt '"duplicates":{"samples":4,"groups":2,"largest":4,"largest_hash":"'
hash=$(field out.txt largest_hash)
has out.txt '"caption_words":{"count":14,"min":1,'
expect 0 "$BIN/ccdump" find more.tar --hash "$hash" --json
lines out.txt 4
expect 0 "$BIN/ccdump" stats more.tar
grep -q "^problems: *1$" out.txt
has out.txt "largest_hash: $hash"

# Images without captions are counted too.
rm x/*.txt
tar cf bare.tar --sort=name -C x .
expect 0 "$BIN/ccdump" stats bare.tar --json
has out.txt '"samples":14,"problems":14,"imageless":0,"texts":0,"width":{"count":14,'
echo passed
