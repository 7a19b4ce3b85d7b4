# ccstudy table: means, deviations and paired differences are those of its runs; settings come from validation; a driver that is
# killed at any moment ends with the same table, and repeats nothing that is finished.
# not under sanitizers: the programs that it starts have tests of their own
. "$SRC/tests/support/cli.sh"
[ -x "$BIN/ccstudy" ] || { echo "skipped: ccstudy is not built"; exit 77; }
python=$(sed -n '1s/^#!//p' "$BIN/ccstudy")
"$TESTBIN/make_scenes" train 64 3 32 train.tar
"$TESTBIN/make_scenes" val 24 4 32 val.tar
"$BIN/ccpack" -q -o train train.tar
"$BIN/ccpack" -q -o held-out val.tar
"$BIN/ccpack" tokenizer -q train --vocab-size 200
small_model model.json
scene_words words.txt
cat >spec.toml <<'END'
title = "tiny"
data = ["train"]
val = "val"
metric = "mean_r10"
seeds = [3, 4]
options = ["--preset", "cpu-demo", "--model", "model.json", "--tokenizer", "words.txt", "--epochs", 2, "--batch-size", 16]
baseline = "CLIP"
[tests]
R10 = { run = "retrieval", data = "val", metric = "mean_r10" }
R1 = { run = "retrieval", data = "val", metric = "mean_r1" }
[rows]
CLIP = { options = ["--loss", "clip"], tune = { "--tau" = [0.03, 0.5] } }
NUCLR = { options = ["--loss", "nuclr", "--zeta-freeze-epochs", 1] }
END
expect 0 "$BIN/ccstudy" table spec.toml -o out --set val=held-out --jobs 2
has err.txt '14 of 14'
cp out.txt table.txt
lines table.txt 4
cat >check.py <<'END'
import json
import statistics

t = json.load(open("out/spec.json"))
clip, nuclr = t["rows"]["CLIP"], t["rows"]["NUCLR"]
assert [r["seed"] for r in clip["runs"]] == [3, 4] and len(clip["tried"]) == 2 and nuclr["tried"] == []
best = max(clip["tried"], key=lambda v: v["value"])
assert best["settings"] == clip["settings"] and best["value"] == clip["runs"][0]["value"]
assert f"--tau {best['settings']['--tau']} --seed 3" in clip["runs"][0]["command"]
shown = open("table.txt").read()
for row in (clip, nuclr):
    values = [r["tests"]["R10"] for r in row["runs"]]
    assert f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}" in shown, (values, shown)
    for run in row["runs"]:
        tested = [json.loads(line)["retrieval"] for line in open(f"out/runs/{run['run']}/metrics.jsonl") if '"retrieval"' in line]
        assert len(tested) == len(run["curve"]) == 2 and run["curve"][-1][1] == tested[-1]["mean_r10"] == run["value"]
d = [a["tests"]["R1"] - b["tests"]["R1"] for a, b in zip(nuclr["runs"], clip["runs"])]
page = json.loads(open("out/spec.html").read().split('id="ccstream-page">')[1].split("</script>")[0])
cells = page["sections"][1]["items"][0]["rows"][0]
assert cells[2] == f"{statistics.fmean(d):+.2f} ± {statistics.stdev(d) / 2 ** 0.5:.2f}", (cells, d)
band = page["sections"][2]["items"][0]["series"][0]
assert len(band["low"]) == 2 and band["low"][0] <= band["y"][0] <= band["high"][0]
assert len(t["data"]["train"]["fingerprint"]) == 16 and t["data"]["val"]["folder"] == "held-out"
END
"$python" check.py || fail "numbers of the table"
# The same of the runs alone, in any order.
runs=$("$python" -c '
import json
rows = json.load(open("out/spec.json"))["rows"]
print(*("out/runs/" + r["run"] for name in ("NUCLR", "CLIP") for r in rows[name]["runs"][::-1]))')
# shellcheck disable=SC2086 # names without spaces
expect 0 "$BIN/ccstream-report" --group $runs -o group.html
cp out.txt group.txt
lines group.txt 4
# shellcheck disable=SC2086
expect 0 "$BIN/ccstream-report" --group $runs -o group.html --json
cat >check_group.py <<'END'
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "support"))
import page

t, g = json.load(open("out/spec.json"))["rows"], json.load(open("out.txt"))
assert [name.split(",")[0] for name in g["rows"]] == ["nuclr", "clip"] and g["baseline"] == list(g["rows"])[0]
values = {}
for name, row in g["rows"].items():
    same = t[name.split(",")[0].upper()]["runs"]
    values[name] = {r["seed"]: r["tests"]["R@10"] for r in row["runs"]}
    assert values[name] == {r["seed"]: r["value"] for r in same}, (row, same)
    assert all(r["finished"] and len(r["curves"]["R@10"]) == 2 and r["seconds"] > 0 for r in row["runs"])
    shown = list(values[name].values())
    assert f"{statistics.fmean(shown):.2f} ± {statistics.stdev(shown):.2f}" in open("group.txt").read()
a, b = values.values()
d = [b[seed] - a[seed] for seed in a]
data = page.load("group.html")
sections = {s["title"]: s for s in data["sections"]}
column = [c["name"] for c in sections["Differences to " + g["baseline"]]["items"][0]["columns"]].index("R@10")
cells = sections["Differences to " + g["baseline"]]["items"][0]["rows"][0]
assert cells[column] == f"{statistics.fmean(d):+.2f} ± {statistics.stdev(d) / 2 ** 0.5:.2f}", (cells, d)
assert {"loss", "tau"} <= {c["name"] for c in sections["Settings that differ"]["items"][0]["columns"]}
for figure in sections["Curves"]["items"]:
    for line in figure["series"]:
        assert line["x"][-1] == 2 and all(low <= y <= high for low, y, high in zip(line["low"], line["y"], line["high"]))
assert len(sections["Runs"]["items"][0]["rows"]) == 4
END
"$python" check_group.py || fail "numbers of ccstream-report --group: $(cat group.txt)"
one=${runs%% *}
expect_message 64 "the same settings and the same seed" "$BIN/ccstream-report" --group "$one" "$one/"
find out -name '*.svg' -size +4k | grep -q . || ! "$python" -c 'import matplotlib' 2>/dev/null || fail "figures of the table as files"
without_figures
find out/runs -name 'step-*' | xargs ls -l --time-style=full-iso >before.txt
expect 0 "$BIN/ccstudy" table spec.toml -o out --set val=held-out --jobs 2 -q
find out/runs -name 'step-*' | xargs ls -l --time-style=full-iso | cmp - before.txt || fail "a finished run was repeated"

# ---- two views, watched and tested by the labels of another dataset
for set in train val; do
    mkdir images
    tar -xf $set.tar -C images
    for text in images/*.txt; do
        class=$(grep -oE 'plain|striped|dotted' "$text" | head -n 1)
        mkdir -p "$set-folders/$class"
        mv "${text%.txt}".jpg "$set-folders/$class/"
    done
    rm -r images
    "$BIN/ccpack" -q -o "$set-classes" "$set-folders"
done
cat >views.toml <<'END'
data = ["train"]
val = "test"
knn = "labelled"
metric = "nn1"
seeds = [1, 2]
options = ["--task", "two-views", "--image-tower", "tiny", "--image-size", 16, "--batch-size", 16, "--epochs", 2, "--loss", "simclr"]
[tests]
nearest = { run = "knn", data = "test", metric = "nn1" }
linear = { run = "linear", data = "test", metric = "top1" }
[rows]
SimCLR = { options = [] }
END
expect 0 "$BIN/ccstudy" table views.toml -o views --set train=train-classes --set labelled=train-classes --set test=val-classes --json -q
"$python" -c '
import json
runs = json.load(open("out.txt"))["rows"]["SimCLR"]["runs"]
for r in runs:
    assert "--knn train-classes:val-classes" in r["command"] and r["tests"]["nearest"] == r["value"] and 0 < r["tests"]["linear"] <= 100, r
assert len(runs) == 2 and all(len(r["curve"]) == 2 for r in runs)' || fail "numbers of two views"

# ---- killed at several moments, and stopped by Ctrl-C, which ends the children
code=0
for stop in "KILL 1" "TERM 2" "KILL 3"; do
    set -- $stop
    "$BIN/ccstudy" table spec.toml -o killed --set val=held-out --jobs 2 >/dev/null 2>&1 &
    pid=$!
    sleep "$2"
    kill -"$1" $pid 2>/dev/null || true
    code=0
    wait $pid || code=$?
    case "$1 $code" in "TERM 130" | "KILL 137" | *" 0") ;; *) fail "$1 after $2 s: ended with $code" ;; esac
done
expect 0 "$BIN/ccstudy" table spec.toml -o killed --set val=held-out --jobs 2 -q --json
has out.txt '"baseline":"CLIP"'
expect 0 "$BIN/ccstudy" table spec.toml -o killed --set val=held-out --jobs 2
cmp out.txt <(sed 's,^out/,killed/,' table.txt) || fail "another table after kills"
# A training that a signal stops exits with 0, and is not finished.
"$BIN/ccstudy" table spec.toml -o stopped --set val=held-out --jobs 1 >/dev/null 2>err.txt &
pid=$!
until grep -qs '"loss"' stopped/runs/*/metrics.jsonl && child=$(pgrep -P $pid) && [ -e /proc/$child/cwd ]; do
    kill -0 $pid 2>/dev/null || break
    sleep 0.05
done
kill $child 2>/dev/null || true
code=0
wait $pid || code=$?
[ "$code" = 0 ] || has err.txt 'was stopped at step'
expect 0 "$BIN/ccstudy" table spec.toml -o stopped --set val=held-out --jobs 2
cmp out.txt <(sed 's,^out/,stopped/,' table.txt) || fail "another table after a stop"

# ---- what a spec cannot be, and what fails
bad() { # bad MESSAGE SED: the changed spec is refused
    sed "$2" spec.toml >bad.toml
    expect_message 65 "$1" "$BIN/ccstudy" table bad.toml -o bad --set val=held-out
}
bad "bad.toml: seeds is missing" '/^seeds/d'
bad "bad.toml: 'tset' is unknown" 's/^seeds/tset = 1\nseeds/'
bad "rows.CLIP: --tau must be an option" 's/\[0.03, 0.5\]/0.03/'
bad "baseline 'CLAP' is not a row" 's/baseline = .*/baseline = "CLAP"/'
bad "tests.R1: metric is missing" 's/, metric = "mean_r1"//'
bad "has no number 'r1'" 's/metric = "mean_r1"/metric = "r1"/; s/seeds = .*/seeds = [3]/; s/\[0.03, 0.5\]/[0.03]/'
bad "Expected\|Invalid" 's/^\[tests\]/[tests/'
expect_message 64 "has no data of this name; it has train, val" "$BIN/ccstudy" table spec.toml -o bad --set vla=held-out
expect_message 66 "no such folder; pass --set val=DIR" "$BIN/ccstudy" table spec.toml -o bad
expect_message 66 "no table of this name" "$BIN/ccstudy" table nosuch -o bad
sed 's/"clip"/"clipp"/' spec.toml >bad.toml
expect_message 64 "did you mean 'clip'.*the whole output is in bad/jobs/CLIP" "$BIN/ccstudy" table bad.toml -o bad --set val=held-out
# ---- what is installed names options that exist: each row starts
for name in nuclr-table1 nuclr-table1-small nuclr-figure4 zeta0 fastclip emc2-figure5 dcl-figure3 hcl-figure2; do
    [ -f "$SRC/tools/ccstudy/$name.toml" ] || fail "$name"
done
cat >rows.py <<'END'
import sys
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1]).parent.parent / "python"))
from ccstream.studies import table

for path in sorted(Path(sys.argv[2]).glob("*.toml")):
    spec = table.read_spec(path)
    for row in spec.rows:
        for words in [[], *([k, str(v)] for k, values in row.tune.items() for v in values)]:
            print(" ".join([*spec.options, *row.options, *words]))
END
PYTHONDONTWRITEBYTECODE=1 "$python" rows.py "$BIN/ccstudy" "$SRC/tools/ccstudy" | sort -u >rows.txt
[ "$(wc -l <rows.txt)" -gt 40 ] || fail "rows of the installed specs"
while read -r words; do
    expect 0 "$BIN/ccstream-train" $words --data train --out dry --dry-run
done <rows.txt
