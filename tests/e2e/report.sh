#!/bin/bash
# ccstream-report: the page of a run and of two runs has the numbers of metrics.jsonl, is well-formed, small and
# refers to nothing outside; runs that were cut off, resumed or never began are no errors.
. "$SRC/tests/support/cli.sh"
unset CCSTREAM_REPORT
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

"$TESTBIN/make_scenes" train 60 1 32 train.tar >/dev/null
"$TESTBIN/make_scenes" val 20 2 32 val.tar >/dev/null
expect 0 "$BIN/ccpack" -q -o train train.tar
expect 0 "$BIN/ccpack" -q -o val val.tar
expect 0 "$BIN/ccpack" tokenizer train --vocab-size 100 --cache
small_model model.json
how="-q --report --preset cpu-demo --data train --val val --batch-size 20 --model model.json --tokenizer train/tokenizer.model
    --epochs 3 --threads 1"
expect 0 "$BIN/ccstream-train" $how --loss nuclr --zeta-freeze-epochs 1 -o runs/nuclr
expect 0 "$BIN/ccstream-train" $how --loss sogclr -o runs/sogclr
[ -s runs/nuclr/report.html ] || fail "the end of a run wrote no report"

# --report: the page is there before the end, which a killed run does not reach.
$last "$BIN/ccstream-train" $how --epochs 1000 --loss nuclr -o seen &
pid=$!
for _ in $(seq 1000); do
    [ -s seen/report.html ] && break
    sleep 0.01
done
kill -KILL "$pid"
wait "$pid" && fail "the run was not killed"
has seen/report.html "Text-to-image retrieval"
rm runs/nuclr/report.html
lines runs/nuclr/sessions.jsonl 1
has runs/nuclr/sessions.jsonl '"command":['
has runs/nuclr/sessions.jsonl '"fingerprint":"'

cat >check.py <<'PYTHON'
import json, os, sys
sys.path.insert(0, os.path.join(os.environ["SRC"], "tests", "support"))
import page as pages

path, report, *runs = sys.argv[1:]
assert os.path.getsize(path) < 1 << 20, os.path.getsize(path)
page = pages.load(path)
text = "\n".join(pages.texts(page))
figures = pages.figures(page)
assert len(figures) >= 8 and all(f["title"] and f["x"]["title"] and f["y"]["title"] for f in figures)
assert all(image["caption"] for image in pages.images(page)), "an image without a text for those who do not see it"
numbers = json.load(open(report, encoding="utf-8"))["runs"]
assert len(numbers) == len(runs)
for run, got in zip(runs, numbers):
    steps, recalls, stages, states, examples = [], [], [], [], []
    for line in open(os.path.join(run, "metrics.jsonl"), encoding="utf-8"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "loss" in entry:
            steps.append(entry)
        if "retrieval" in entry:
            recalls.append(entry["retrieval"])
        for name, found in (("stages", stages), ("state", states), ("examples", examples)):
            if name in entry:
                found.append(entry[name])
    last = steps[-1]
    for line in stages:
        parts = [line[name] for name in ("load_s", "ranks_s", "step_s", "checkpoint_s", "evaluation_s")]
        assert min(parts) >= 0 and sum(parts) <= 1.02 * line["seconds"] + 1e-3, line
        assert line["step_s"] > 0 and line["checkpoint_s"] > 0 and line["evaluation_s"] > 0, line
        assert 0 <= line["decode_wait_fraction"] <= 1, line
    assert min(len(stages), len(states)) >= 3, (len(stages), len(states))
    for state in states:
        for name, column in state.items():
            h = column["histogram"]
            assert sum(h["counts"]) == column["visited"], (name, column)
            top = h["low"] + h["width"] * len(h["counts"])
            assert column["visited"] == 0 or h["low"] <= column["min"] <= column["max"] < top, (name, column)
    for query in examples[-1]["t2i"] + examples[-1]["i2t"]:
        ids = [found["id"] for found in query["found"]]
        assert len(ids) == 6 and query["rank"] > 6 or query["id"] in ids or len(set(ids)) < len(ids), query
    if len(runs) == 1:
        for query in examples[-1]["t2i"]:
            assert f"number {query['rank']}" in text, query
        # 6 captions with 6 images each, 6 images; 6 samples at 2 ends of image and text, and 6 that moved most of both.
        assert len(pages.images(page)) == 36 + 6 + 24 + 12, len(pages.images(page))
        tables = [i for s in page["sections"] for i in s["items"] if i.get("title") == "Spread over samples, last checkpoint"]
        for name, _, samples, *shares in tables[0]["rows"]:
            column = states[-1][name]
            h = column["histogram"]
            assert [float(v) for v in shares[6:]] == [float(f"{100 * column[k] / column['visited']:.3g}") for k in ("at_min", "at_max")], shares
            assert abs(float(shares[5]) * (last["tau"] if name.endswith("zeta") else 1.0) - column["std"]) < 1e-3 * column["std"] + 1e-9, shares
            middles = [h["low"] + h["width"] * (k + 0.5) for k in range(len(h["counts"]))]
            mean = sum(c * m for c, m in zip(h["counts"], middles)) / column["visited"]
            rough = (sum(c * (m - mean) ** 2 for c, m in zip(h["counts"], middles)) / column["visited"]) ** 0.5
            assert abs(rough - column["std"]) < h["width"], (name, rough, column["std"])
            assert int(samples) == column["visited"], (name, samples)
            numbers = [float(v) for v in shares[:5]]
            scale = last["tau"] if name.endswith("zeta") else 1.0
            width = column["histogram"]["width"] / scale
            low, high = (column[end] / scale + sign * (width + 1e-3 * abs(column[end] / scale)) for end, sign in (("min", -1), ("max", 1)))
            assert numbers == sorted(numbers) and low <= numbers[0] and numbers[4] <= high, (name, numbers, low, high)
        assert [s["label"] for f in figures if f["kind"] == "ridges" and f["x"]["title"] == "text.zeta" for s in f["series"]]
    assert (got["step"], got["loss"], got["lr"], got["grad_norm"]) == (last["step"], last["loss"], last["lr"], last["grad_norm"])
    assert got["mean_r1"] == recalls[-1]["mean_r1"]
    assert got["entries"] == len({entry["step"] for entry in steps})
    loss = [s for f in figures if f["title"].startswith("Batch loss") for s in f["series"]][runs.index(run)]
    assert abs(loss["y"][-1] - last["loss"]) < 1e-6 and loss["x"][-1] == last["step"], (loss, last)
    assert f"{last['loss']:.4f}" in page["static"] and os.path.basename(run) in page["static"]
PYTHON
expect 0 "$BIN/ccstream-report" runs/nuclr --json
python3 check.py runs/nuclr/report.html out.txt runs/nuclr || fail "the page of one run"
has runs/nuclr/report.html "text.zeta of visited samples, at checkpoints"
has runs/nuclr/report.html "Where the time went, between checkpoints"
has runs/nuclr/report.html "The smallest image."
has runs/nuclr/report.html "cpu-demo"
has runs/nuclr/report.html "<dt>step</dt><dd>9 of 9</dd>"
has runs/nuclr/report.html "<dt>epoch</dt><dd>3 of 3</dd>"
has runs/nuclr/report.html "\"command\":[\"$BIN/ccstream-train\",\"-q\",\"--report\",\"--preset\",\"cpu-demo\""
has runs/nuclr/report.html "\"$(sed -n 's/.*"datasets":[^]]*"fingerprint":"\([^"]*\).*/\1/p' runs/nuclr/sessions.jsonl)\""
grep -q '"title":"Global contrastive loss at tau 0\.[0-9]*, estimated from the per-sample state"' runs/nuclr/report.html || fail "no global loss with its tau"

# The samples that moved most, by both checkpoints that the run keeps.
has runs/nuclr/report.html "From step 6 to step 9, the oldest and the newest checkpoint that the run keeps"
has runs/nuclr/report.html '"title":"text.zeta, largest change first"'
hasnt runs/nuclr/report.html "minimiser"

# --probe-pairs: zeta of all training pairs against the minimiser of eq. (8), computed here from the embeddings of the last checkpoint.
if python3 -c 'import numpy' 2>err.txt; then
    expect 0 "$BIN/ccstream-report" runs/nuclr --probe-pairs 60 --json
    cp out.txt probe.txt
    lines runs/nuclr/probe.jsonl 2 # of the first epoch no checkpoint is left
    expect 0 "$BIN/ccstream-eval" embed -q runs/nuclr --data train --texts -o all
    python3 - <<'PYTHON' || fail "the probe"
import json, struct
import numpy as np

probe = json.load(open("probe.txt"))["runs"][0]["probe"]
assert [json.loads(line)["step"] for line in open("runs/nuclr/probe.jsonl")] == [6, 9] and probe["step"] == 9
assert probe["used"] == probe["pairs"] == 60, probe
file = open("runs/nuclr/last", "rb").read()
begin = 8 + struct.unpack("<Q", file[:8])[0]
header = json.loads(file[8:begin])
images, texts, ids, owner = (np.load(f"all.{name}.npy") for name in ("images", "texts", "ids", "owners"))
similarity = images[owner].astype(float) @ texts.astype(float).T / probe["tau"]
for side, s in (("text", similarity), ("image", similarity.T)):
    first, end = header[f"state.{side}.zeta"]["data_offsets"]
    zeta = np.frombuffer(file[begin + first:begin + end], "<f4")[ids[owner]].astype(float)
    best = np.zeros(len(zeta))  # Newton's diagonal step in the log, until every column has the mass 1
    for _ in range(2000):
        p = np.exp(s - best)
        best += np.log((p / p.sum(1, keepdims=True)).sum(0))
    got = probe[side]
    assert abs(got["correlation"] - np.corrcoef(zeta, best)[0, 1]) < 5e-3, (side, got, np.corrcoef(zeta, best)[0, 1])
    assert abs(got["minimiser_spread"] - best.std()) < 5e-3 and abs(got["spread"] - zeta.std() / probe["tau"]) < 1e-6, (got, best.std())
PYTHON
    has runs/nuclr/report.html "Correlation of zeta with the minimiser of eq. (8) on probe pairs"
    cp runs/nuclr/probe.jsonl once.jsonl
    expect 0 "$BIN/ccstream-report" runs/nuclr --probe-pairs 60
    cmp once.jsonl runs/nuclr/probe.jsonl || fail "a checkpoint was probed twice"
    rm runs/nuclr/probe.jsonl
    # The trainer's own pages, one at every checkpoint, measure all of them, whichever the run keeps.
    expect 0 $last "$BIN/ccstream-train" $how --loss nuclr --zeta-freeze-epochs 0 --keep-checkpoints 1 --probe-pairs 40 -o probed
    lines probed/probe.jsonl 3
    expect 0 "$BIN/ccstream-train" -q --resume probed --epochs 4 --probe-pairs 30
    has probed/probe.jsonl '"step": 12, "pairs": 30, "used": 30'
    expect 0 $last "$BIN/ccstream-train" $how --epochs 1 --probe-pairs 40 --loss sogclr -o useless
    has err.txt "--probe-pairs has no effect: the loss has no zeta"
    [ ! -e useless/probe.jsonl ] && [ -e useless/report.html ] || fail "a probe of a loss without zeta"
    expect_message 64 "compares zeta, which the loss sogclr of runs/sogclr does not keep" "$BIN/ccstream-report" runs/sogclr --probe-pairs 60
    expect_message 64 "probe-pairs must be at most 20000, not 20001" "$BIN/ccstream-report" runs/nuclr --probe-pairs 20001
    expect 0 "$BIN/ccstream-report" runs/nuclr
fi

# A loss of the batch is not called global; different losses have different axes.
expect 0 "$BIN/ccstream-train" $how --loss clip -o runs/clip --json
hasnt out.txt global_loss
has out.txt '"loss":'
hasnt runs/clip/metrics.jsonl global_loss
cp -r runs/clip again
expect 0 "$BIN/ccstream-report" runs/clip again -o same.html
has same.html '"title":"Batch loss"'
expect 0 "$BIN/ccstream-report" runs/clip runs/nuclr -o other.html
has other.html '"title":"Batch loss of clip"'
has other.html "a figure for each run, because these are different losses: task pairs, loss clip, "
expect 0 "$BIN/ccstream-report" runs/nuclr/ runs/sogclr -o two.html --json
python3 check.py two.html out.txt runs/nuclr runs/sogclr || fail "the page of two runs"

# The last line was cut off; steps occur again.
cp -r runs/nuclr cut
head -n 4 runs/nuclr/metrics.jsonl >>cut/metrics.jsonl
tail -n +2 runs/nuclr/metrics.jsonl >>cut/metrics.jsonl
printf '{"step":99,"loss":0.' >>cut/metrics.jsonl
expect 0 "$BIN/ccstream-report" cut --json
python3 check.py cut/report.html out.txt cut || fail "the page of a run that was cut off"
has cut/report.html "1 line of metrics.jsonl of cut cannot be read: line $(wc -l <cut/metrics.jsonl | awk '{ print $1 + 1 }'), the last"
hasnt cut/report.html "not finite"

# Runs of one name in several directories, and of a long one, have their whole names; words of a command are escaped.
mkdir other
cp -r runs/nuclr other/nuclr
cp -r runs/nuclr "other/$(printf '%0200d' 7)"
sed -i 's/"-q"/"it'"'"'s <b>"/' other/nuclr/sessions.jsonl
echo '{"why":"the loss is not finite","step":4}' >other/nuclr/nonfinite.json
expect 0 "$BIN/ccstream-report" runs/nuclr other/nuclr "other/$(printf '%0200d' 7)" -o names.html
has names.html "<td>runs/nuclr</td>"
has names.html "<td>other/nuclr</td>"
has names.html "<td>$(printf '%0200d' 7)</td>"
has names.html "\"it's \u003cb>\""
has names.html "A number was not finite in step 4 of other/nuclr: the loss is not finite"

# Without its datasets the page says what is missing.
cp -r runs/nuclr moved
sed -i "s|$PWD/train|/nowhere|; s|$PWD/val|/nowhere|" moved/config.json
expect 0 "$BIN/ccstream-report" moved --probe-pairs 30
has err.txt "The probe is missing: /nowhere is not a folder"
# A dataset whose name looks like an option, and one that is none.
cp -r runs/nuclr odd
cp -r train ./--json
sed -i "s|\"$PWD/train\"|\"--json\"|" odd/config.json
expect 0 "$BIN/ccstream-report" odd --probe-pairs 60
lines odd/probe.jsonl 2
rm -r odd/probe.jsonl ./--json/dataset.json
expect 0 "$BIN/ccstream-report" odd --probe-pairs 60
has err.txt "The probe is missing: ccpack subset: --json"
has moved/report.html "Retrieval examples are missing: "
has moved/report.html "The extreme samples are missing: "
has moved/report.html "The samples that moved most are missing: "
has moved/report.html "The probe is missing: "

# A run that never began a step; no run; text that is markup.
mkdir '<b>empty'
cp runs/nuclr/config.json '<b>empty/'
expect 0 "$BIN/ccstream-report" '<b>empty' -o empty.html
has empty.html "&lt;b&gt;empty"
hasnt empty.html "<b>empty"
expect 66 "$BIN/ccstream-report" none
expect 66 "$BIN/ccstream-report" train
