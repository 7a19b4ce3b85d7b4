#!/bin/bash
# Every page in a browser, 400 and 1400 pixels wide: no message on its console, all of its figures, values where the
# pointer is, nothing wider than the window.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
command -v chromium >which.txt || command -v chromium-browser >which.txt || command -v google-chrome >which.txt ||
    { echo "skipped: no chromium"; exit 77; }

"$TESTBIN/make_scenes" train 40 1 24 train.tar >made.txt
"$TESTBIN/make_scenes" val 20 2 24 val.tar >made.txt
"$BIN/ccpack" -q -o train train.tar
"$BIN/ccpack" -q -o val val.tar
"$BIN/ccpack" tokenizer train --vocab-size 100 >made.txt
small_model model.json
for loss in nuclr sogclr; do
    "$BIN/ccstream-train" -q --data train --val val --loss "$loss" --model model.json --tokenizer train/tokenizer.model \
        --batch 20 --epochs 3 --zeta-freeze-epochs 0 --threads 1 --loader-threads 1 -o "a run of $loss, <b>" >made.txt
    mv "a run of $loss, <b>" "$loss"
done
"$BIN/ccstream-report" nuclr -o one.html >made.txt
"$BIN/ccstream-report" nuclr sogclr -o two.html >made.txt
"$BIN/ccstream-report" --group nuclr sogclr -o group.html >made.txt
"$BIN/ccdump" stats train --html stats.html >made.txt
"$BIN/ccdump" show train 0 --html show.html --count 3 >made.txt
"$BIN/ccdump" popularity nuclr train --html popularity.html >made.txt
"$BIN/ccdump" why nuclr train 5 --html why.html >made.txt
"$BIN/ccstream-eval" retrieval -q nuclr --data val --html found.html --examples 4 >made.txt
if /usr/bin/python3 -c 'import numpy' 2>import.txt && [ -x "$BIN/ccstudy" ]; then
    "$BIN/ccstudy" toy --quick -q -r 2 -o . 2>made.txt
fi
# Pairs of a page and the number of figures in its data.
pages=$(python3 - one two group stats show popularity why found toy <<'PYTHON'
import os, sys
sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "support"))
import page
counts = {name + ".html": len(page.figures(page.load(name + ".html"))) for name in sys.argv[1:] if os.path.exists(name + ".html")}
assert len(counts) >= 8 and counts["one.html"] >= 12 and counts["stats.html"] == 8, counts
print(*(word for pair in counts.items() for word in pair))
PYTHON
) || fail "figures of pages"
echo "$pages"
# A page of every kind of item, with markup in its texts.
python3 - >kinds.json <<'PYTHON'
import json
x, y = {"title": "</script><b>x"}, {"title": "y", "unit": "s", "scale": "log"}
line = {"name": "</script><img src=x onerror=alert(1)>" * 4, "x": [1, 2, 3], "y": [0.5, None, 2e6], "error": [0.1, 0, 1]}
band = {"name": "b", "x": [1, 2, 3], "y": [1, 2, 3], "low": [0, 1, 2], "high": [2, 3, 4], "dashed": True}
bars = {"name": "c", "x": ["a long name of a bar %d" % i for i in range(9)], "y": list(range(9)), "texts": ["%"] * 9}
figures = [
    {"kind": "lines", "series": [line, band]}, {"kind": "scatter", "series": [line]}, {"kind": "bars", "series": [bars, bars]},
    {"kind": "bars", "series": [bars], "horizontal": True}, {"kind": "area", "series": [band, band]},
    {"kind": "histogram", "series": [{"name": "h", "x": [0, 1, 2], "y": [3, 4]}]},
    {"kind": "ridges", "label": "step", "series": [{"label": 1, "low": 0, "width": 0.5, "y": [1, 2]}]},
    {"kind": "map", "extent": [0, 1, 0, 1], "range": [0, 2], "rows": [[0, 1], [2, None]], "unit": "J"},
    {"kind": "lines", "series": []}, {"kind": "lines", "series": [{"name": "", "x": ["a", "b"], "y": [1, 1]}]}]
for f in figures:
    f.update(title="A title " * 30, x=x, y=y if f["kind"] in ("lines", "scatter") else {"title": "y"}, note="a note")
wide = {"kind": "table", "title": "wide", "columns": [{"name": "column %d" % i} for i in range(40)], "rows": [["x" * 30] * 40]}
print(json.dumps({"format": 1, "title": "kinds", "sections": [
    {"title": "a", "text": ["<b>text</b> " + "w" * 500], "items": figures + [{"kind": "multiples", "title": "m", "items": figures[:2]}]},
    {"title": "b", "folded": True, "items": [wide, {"kind": "facts", "rows": [["n" * 300, 1]]}, {"kind": "code", "text": "c" * 900},
        {"kind": "run", "launch": {"command": ["a", "it's <b>"], "datasets": [{"directory": "d" * 300, "samples": 1}],
                                   "memory_bytes": 1 << 34}, "options": {"a": [1, {"b": True}]}}]},
    {"title": "c", "items": [{"kind": "images", "layout": layout, "items": [
        {"src": "http://localhost/x.jpeg", "caption": "c" * 300, "lines": ["l", {"text": "t", "mark": "right"}], "mark": "own",
         "facts": [["a", "b" * 300]], "group": "g" * 300}] * 3} for layout in ("cards", "rows", "wide")]}]}))
PYTHON
{
    sed '/<script type/,$d' show.html | sed 's/<h1>.*//'
    printf '<script type="application/json" id="ccstream-page">%s</script>\n<script>\n' "$(sed 's/</\\u003c/g' kinds.json)"
    cat "$SRC/tools/inspect/page/viewer.js"
    echo '</script></body></html>'
} >kinds.html
# shellcheck disable=SC2086 # pairs of words
python3 "$SRC/tests/support/page.py" browse $pages kinds.html 12 >texts.txt
has texts.txt "a 'it'\\''s <b>'"
has texts.txt "1 b yes"
has texts.txt "16.0 GiB"
