# ccdump stats --html and show --html: well-formed pages of one file, whose numbers are those of --json, and in which
# captions, keys and metadata are text whatever they contain.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

cat >check.py <<'PYTHON'
import json, os, sys
sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "support"))
import page as pages

assert os.path.getsize(sys.argv[1]) < 1 << 20, os.path.getsize(sys.argv[1])
page = pages.load(sys.argv[1])
if len(sys.argv) > 2 and sys.argv[2].endswith(".json"):
    stats = json.load(open(sys.argv[2], encoding="utf-8"))
    names = ["width", "height", "short_side", "aspect", "image_bytes", "captions", "caption_characters", "caption_words"]
    counted = [stats[name]["counts"] for name in names if stats[name]["count"] > 0]
    totals = [sum(counts) for counts in counted]
    if stats["labels"]:
        counted.append([label["samples"] for label in stats["labels"][:100]])
        totals.append(stats["samples"])
    figures = pages.figures(page)
    assert len(figures) == len(counted)
    for figure, counts, total in zip(figures, counted, totals):
        assert figure["kind"] == "bars" and figure["series"][0]["y"] == counts, (figure, counts)
        assert figure["series"][0]["texts"] == ["%.1f %%" % (100 * n / total) for n in counts], figure
    assert format(stats["samples"], ",") in page["static"] and format(stats["texts"], ",") in page["static"]
    assert format(stats["duplicates"]["samples"], ",") in page["static"]
    largest = stats["duplicates"]["largest"]
    assert largest < 2 or any(f"{largest} times" in text for text in pages.texts(page))
for wanted in sys.argv[3:]:
    assert any(wanted in text for text in pages.texts(page)), wanted
print(len(pages.images(page)))
PYTHON

# --- stats: every image in a row of the contact sheet is another one, where there are enough
"$TESTBIN/make_scenes" val 40 1 48 scenes.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d scenes.tar
expect 0 "$BIN/ccdump" stats d --html d.html --json
cp out.txt d.json
python3 check.py d.html d.json >images.txt || fail "the page of 40 scenes"
[ "$(cat images.txt)" = 24 ] || fail "$(cat images.txt) images, not 4 rows of 6"
hasnt d.html "Most frequent duplicates"
expect 0 "$BIN/ccdump" stats d --id 3-4 --html sub/two.html -q
[ "$(python3 check.py sub/two.html)" = 8 ] || fail "two samples are shown once in every row"
"$TESTBIN/make_dataset" odd 250 100 # unknown formats, labels, images of no content
expect 0 "$BIN/ccdump" stats odd --html odd.html --json
cp out.txt odd.json
python3 check.py odd.html odd.json >images.txt || fail "the page of samples that do not decode"

# --- a plain tar whose texts are markup, controls and no UTF-8, with images that occur again
mkdir x && tar xf scenes.tar -C x
rm -f x/*.json
set -- x/*.jpg
printf '</script><b2 onload="x">"quoted" &amp; \047single\047 \001\033[31m \302\205 \342\200\256override end' >"${1%.jpg}.txt"
printf '{"</dl><b2>": ["<b2>", {"a\\u0001": "\\u202e\\"</script>"}], "n": 7}' >"${1%.jpg}.json"
printf 'not UTF-8: \377' >"${3%.jpg}.txt"
cp "$2" x/again.jpg
cp "$2" x/once-more.jpg
echo 'plain words' >x/again.txt
echo 'other words' >x/once-more.txt
tar cf hostile.tar --sort=name -C x .
expect 0 "$BIN/ccdump" stats hostile.tar --html hostile.html --json
cp out.txt hostile.json
python3 check.py hostile.html hostile.json >images.txt || fail "statistics of hostile texts"
has hostile.html "3 times, id "
expect 64 "$BIN/ccdump" stats - --html pipe.html <hostile.tar
[ ! -e pipe.html ] || fail "a page of a pipe"
expect 0 "$BIN/ccdump" show hostile.tar 0 --html one.html --count 3
python3 check.py one.html '' '</script><b2 onload="x">"quoted" &amp; '"'single'" '</dl><b2>' 'caption-not-utf8' \
    >images.txt || fail "samples of hostile texts"
[ "$(cat images.txt)" = 3 ] || fail "not three images"

# --- show: several samples; fewer than asked for at the end; what excludes what
expect 0 "$BIN/ccdump" show d 3 --html three.html --count 3
[ "$(python3 check.py three.html)" = 3 ] || fail "not three samples"
for id in 3 4 5; do has three.html "\"title\":\"Sample $id\""; done
hasnt three.html "Sample 6"
caption=$("$BIN/ccdump" show d 4 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["captions"][0])')
has three.html "\"caption\":\"$caption\""
expect 0 "$BIN/ccdump" show d 38 --html end.html --count 50
[ "$(python3 check.py end.html)" = 2 ] || fail "not the last two"
expect 64 "$BIN/ccdump" show d 3 --count 3
has err.txt "--count needs --html"
expect 64 "$BIN/ccdump" show d 3 --html a.html --json
expect 66 "$BIN/ccdump" show d 4000 --html none.html
[ ! -e none.html ] || fail "a page of no sample"
