# Pages hold no markup and no script of strangers: captions, keys, class names, file names, metadata, names of runs and
# URLs of a dictionary of injections are text, and the page's policy allows one script, by its hash.
. "$SRC/tests/support/cli.sh"
unset CCSTREAM_REPORT
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
cat >make.py <<'PYTHON'
import io, json, sys, tarfile
WORDS = ["<script>alert(1)</script>", "</script><script>alert(1)</script>", "<!--<script>", "--><img src=x onerror=alert(1)>",
         "\"><svg onload=alert(1)>", "' onmouseover='alert(1)", "<iframe src=javascript:alert(1)>", "javascript:alert(1)",
         "&lt;script&gt;", "]]><b>", "<style>*{color:red}</style>", "{{7*7}}${7*7}", "\\u003cscript>", "</title><b>",
         "<base href=http://x/>", "<meta http-equiv=refresh content=0>", "\u2028alert(1)", "\u202e</script>", "=cmd|' /C calc'!A0"]
jpeg = open(sys.argv[1], "rb").read()
with tarfile.open("bad.tar", "w", format=tarfile.PAX_FORMAT) as t:
    def add(name, data):
        info = tarfile.TarInfo(name); info.size = len(data); t.addfile(info, io.BytesIO(data))
    for i, w in enumerate(WORDS):
        key = w.replace("/", "_").replace(".", "_") + str(i)
        add(key + ".jpg", jpeg)
        add(key + ".txt", w.encode())
        add(key + ".json", json.dumps({w: w, "url": w, "list": [w, {w: w}]}).encode())
with tarfile.open("classes.tar", "w", format=tarfile.PAX_FORMAT) as t:
    for i, w in enumerate(WORDS):
        info = tarfile.TarInfo(w.replace("/", "_") + "/1.jpg"); info.size = len(jpeg) + i; t.addfile(info, io.BytesIO(jpeg + bytes(i)))
json.dump(WORDS, open("words.json", "w"))
PYTHON
cat >check.py <<'PYTHON'
import json, os, sys
sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "support"))
import page
data = page.load(sys.argv[1]) # parses: our tags and attributes alone, and the hash of the script
raw = open(sys.argv[1], encoding="utf-8").read()
assert "\u202e" not in raw and "\u2028" not in raw, "a control character"
if len(sys.argv) > 2:
    seen = "".join(page.texts(data))
    for word in json.load(open("words.json")):
        assert word.replace("\u202e", "[U+202E]").replace("\u2028", "[U+2028]") in seen, word
PYTHON
"$TESTBIN/make_scenes" val 20 1 48 all.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o good all.tar
expect 0 "$BIN/ccdump" show good 0 --image one.jpg
python3 make.py one.jpg
expect 0 "$BIN/ccpack" -q -o d bad.tar
expect 0 "$BIN/ccpack" -q -o c classes.tar --from folders
expect 0 "$BIN/ccdump" show d 0 --count 19 --html show.html
python3 check.py show.html all || fail "ccdump show --html"
for what in "stats d" "stats c" "duplicates d"; do
    if "$BIN/ccdump" $what --html page.html --force >out.txt 2>&1; then
        python3 check.py page.html || fail "ccdump $what --html"
    fi
done
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60
run="<img src=x onerror=alert(1)>"
expect 0 "$BIN/ccstream-train" -q --preset cpu-demo --image-tower tiny --data d --val d --out "$run" --steps 1 --batch 4
python3 check.py "$run/report.html" || fail "report.html"
python3 - "$run" <<'PYTHON'
import json, sys
words, run = json.load(open("words.json")), sys.argv[1]
config = json.load(open(run + "/config.json"))
config["options"]["out"] = words[0]; config["options"]["data"] = words[:3]; config[words[1]] = words
json.dump(config, open(run + "/config.json", "w"))
open(run + "/sessions.jsonl", "a").write(json.dumps({"run": words[0], "argv": words, "host": words[4], "time": words[5], words[6]: 1}) + "\n")
open(run + "/metrics.jsonl", "a").write(json.dumps({"step": 2, "loss": 1, "time": words[1], words[2]: {words[3]: 1}}) + "\n")
PYTHON
code=0
"$BIN/ccstream-report" "$run" -o r.html >out.txt 2>&1 || code=$?
[ $code -lt 126 ] || fail "exit code $code"
[ ! -e r.html ] || python3 check.py r.html || fail "the report of a hostile run"
