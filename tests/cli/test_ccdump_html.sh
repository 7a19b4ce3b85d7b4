# ccdump stats --html and show --html: well-formed pages of one file, whose numbers are those of --json, and in which
# captions, keys and metadata are text whatever they contain.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

cat >check.py <<'PYTHON'
import html.parser, json, sys

class Page(html.parser.HTMLParser):
    """Every tag that must be closed is; nothing is loaded from elsewhere; no script."""
    OPEN = {"meta", "img", "br"}
    OPTIONAL = {"dd", "dt"}
    def __init__(self):
        super().__init__()
        self.stack, self.images, self.rows, self.row, self.text, self.tables = [], [], [], None, "", []
    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "b2"), tag
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            assert name not in ("src", "href", "srcset") or value.startswith("data:image/jpeg;base64,"), (tag, name, value)
        if tag == "img":
            self.images.append(dict(attributes)["alt"])
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.row = []
        if tag in ("td", "th") and self.row is not None:
            self.row.append("")
        if tag not in self.OPEN | self.OPTIONAL:
            self.stack.append(tag)
    def handle_endtag(self, tag):
        if tag not in self.OPEN | self.OPTIONAL:
            assert self.stack and self.stack[-1] == tag, (self.stack, tag)
            self.stack.pop()
        if tag == "tr":
            self.tables[-1].append(self.row)
            self.row = None
    def handle_data(self, data):
        self.text += data
        if self.row:
            self.row[-1] += data

text = open(sys.argv[1], "rb").read()
assert len(text) < 1 << 20, len(text)
text = text.decode()  # UTF-8 or an exception
assert not [c for c in text if ord(c) < 32 and c != "\n" or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E]
assert "url(" not in text and "@import" not in text and "<script" not in text
page = Page()
page.feed(text)
assert not page.stack, page.stack

def number(s):
    return int(s.replace(",", ""))

if len(sys.argv) > 2 and sys.argv[2].endswith(".json"):
    stats = json.load(open(sys.argv[2], encoding="utf-8"))
    names = ["width", "height", "short_side", "aspect", "image_bytes", "captions", "caption_characters", "caption_words"]
    names = [name for name in names if stats[name]["count"] > 0]
    for table, name in zip(page.tables, names):
        assert [number(row[2]) for row in table] == stats[name]["counts"], (name, table)
        total = sum(stats[name]["counts"])
        assert [row[3] for row in table] == ["%.1f %%" % (100 * n / total) for n in stats[name]["counts"]], table
    if stats["labels"]:
        shown = stats["labels"][:100]
        assert [number(row[2]) for row in page.tables[len(names)]] == [label["samples"] for label in shown]
    assert len(page.tables) == len(names) + bool(stats["labels"])
    assert format(stats["samples"], ",") in page.text and format(stats["texts"], ",") in page.text
    assert format(stats["duplicates"]["samples"], ",") in page.text
    largest = stats["duplicates"]["largest"]
    assert largest < 2 or f"{largest} times" in page.text
for wanted in sys.argv[3:]:
    assert wanted in page.text or any(wanted in alt for alt in page.images), wanted
print(len(page.images))
PYTHON

# --- stats: every picture in a row of the contact sheet is another one, where there are enough
"$TESTBIN/make_scenes" val 40 1 48 scenes.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d scenes.tar
expect 0 "$BIN/ccdump" stats d --html d.html --json
cp out.txt d.json
python3 check.py d.html d.json >images.txt || fail "the page of 40 scenes"
[ "$(cat images.txt)" = 24 ] || fail "$(cat images.txt) pictures, not 4 rows of 6"
hasnt d.html "occur most often"
expect 0 "$BIN/ccdump" stats d --id 3-4 --html sub/two.html -q
[ "$(python3 check.py sub/two.html)" = 8 ] || fail "two samples are shown once in every row"
"$TESTBIN/make_dataset" odd 250 100 # unknown formats, labels, pictures of no content
expect 0 "$BIN/ccdump" stats odd --html odd.html --json
cp out.txt odd.json
python3 check.py odd.html odd.json >images.txt || fail "the page of samples that do not decode"

# --- a plain tar whose texts are markup, controls and no UTF-8, with pictures that occur again
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
has hostile.html "<b>3 times</b>"
expect 64 "$BIN/ccdump" stats - --html pipe.html <hostile.tar
[ ! -e pipe.html ] || fail "a page of a pipe"
expect 0 "$BIN/ccdump" show hostile.tar 0 --html one.html --count 3
python3 check.py one.html '' '</script><b2 onload="x">"quoted" &amp; '"'single'" '</dl><b2>' 'caption-not-utf8' \
    >images.txt || fail "samples of hostile texts: $(tr -d '\n' <one.html | tail -c 1500)"
[ "$(cat images.txt)" = 3 ] || fail "not three pictures"

# --- show: several samples; fewer than asked for at the end; what excludes what
expect 0 "$BIN/ccdump" show d 3 --html three.html --count 3
[ "$(python3 check.py three.html)" = 3 ] || fail "not three samples"
for id in 3 4 5; do has three.html "<h2>Sample $id</h2>"; done
hasnt three.html "<h2>Sample 6</h2>"
caption=$("$BIN/ccdump" show d 4 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["captions"][0])')
has three.html "<li>$caption</li>"
expect 0 "$BIN/ccdump" show d 38 --html end.html --count 50
[ "$(python3 check.py end.html)" = 2 ] || fail "not the last two"
expect 64 "$BIN/ccdump" show d 3 --count 3
has err.txt "--count needs --html"
expect 64 "$BIN/ccdump" show d 3 --html a.html --json
expect 66 "$BIN/ccdump" show d 4000 --html none.html
[ ! -e none.html ] || fail "a page of no sample"
