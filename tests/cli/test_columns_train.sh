# Columns in training: a dry run, a column replaced while a run reads it, each row's loss from a run, captions of
# several columns in every step; and what is refused.
# not under sanitizers: attach is Python, which would need their library before all others
. "$SRC/tests/support/cli.sh"
[ -f "$BIN/../python/ccstream/attach.py" ] || { echo "skipped: the Python package is not built"; exit 77; }
python=$(sed -n '1s/^#!//p' "$BIN/ccstudy")
"$python" -c 'import numpy' 2>/dev/null || { echo "skipped: no NumPy"; exit 77; }
export PYTHONPATH="$BIN/../python" PYTHONDONTWRITEBYTECODE=1

"$TESTBIN/make_scenes" val 48 1 32 rows.tar >scenes.txt
"$BIN/ccpack" -q -o d rows.tar
"$BIN/ccpack" tokenizer d 2>err.txt
"$python" -c '
import ccstream, json, numpy
ds, r = ccstream.Dataset("d"), numpy.random.default_rng(1)
ds.attach("w", ds.ids, r.random(len(ds)).astype("f4"))
ds.attach("two", ds.ids, r.standard_normal((len(ds), 2, 8)).astype("f2"))
ds.attach("long", ds.ids[3:], [["a long red circle", "a long blue square"]] * (len(ds) - 3))
numpy.save("new.npy", numpy.ones(ds.id_space, "f4"))
numpy.save("nan.npy", numpy.full(ds.id_space, numpy.nan, "f4"))'

small_model model.json
scene_words words.txt
train() {
    out=$1
    shift
    model="--model model.json --tokenizer words.txt"
    [ "$1" != --task ] || model="--image-tower tiny --image-size 16" # of two views, without captions
    # shellcheck disable=SC2086 # words
    "$BIN/ccstream-train" -q --preset cpu-demo $model --data d --out "$out" --batch-size 16 --seed 1 --threads 1 \
        --loader-threads 1 "$@"
}

# A dry run opens the columns and writes nothing.
expect 0 train dry --weight w --dry-run
[ ! -e dry ] || fail "a dry run wrote a run"
expect_message 66 "there is no column" train dry --weight nothing --dry-run
expect_message 64 "column 'two' has 16 numbers" train dry --weight two --epochs 1

# X-CLR: captions' features as both sides of the teacher. Those of vectors at right angles are one-hot targets, which clip has too.
"$python" -c '
import ccstream, numpy
ds = ccstream.Dataset("d")
ds.attach("captions", ds.ids, numpy.eye(len(ds), dtype="f4"))'
expect 0 train clip --loss clip --temperature constant --epochs 2
expect 0 train xclr --loss clip --temperature constant --epochs 2 --teacher-image captions --teacher-text captions --distill-weight 1 --teacher-tau 0.01
"$python" - <<'END' || fail "orthogonal captions are not CLIP's targets"
import json
a, b = ([r["loss"] for r in map(json.loads, open(f"{run}/metrics.jsonl")) if "loss" in r] for run in ("clip", "xclr"))
assert len(a) == len(b) == 6 and max(abs(x - y) for x, y in zip(a, b)) < 1e-4 and a[0] > 1, (a, b)
END
expect_message 64 "column 'captions' has 48 numbers in 1 vectors" train no --loss sogclr --reference captions

# Every row's loss, whose mean is that of metrics.jsonl: from the beginning, and from a checkpoint.
steps="1 4"
for how in "--loss nuclr --weight w" "--loss sogclr --reference two --teacher-image two --teacher-text two" "--loss cyclip" \
    "--loss nuclr --positives 2 --caption-columns raw+long" "--task two-views --loss simclr"; do
    rm -rf run
    # shellcheck disable=SC2086 # words
    expect 0 train run $how --epochs 3 --checkpoint-every 2 --keep-checkpoints 9
    for step in $steps; do
        expect 0 "$BIN/ccdump" order run --step $step --loss --json
        has out.txt "\"from_step\":$((step - step % 2))"
        "$python" - run $step "$how" out.txt <<'END' || fail "$how"
import json, sys
run, step, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
*rows, last = map(json.loads, open(sys.argv[4]))
logged = next(r["loss"] for r in map(json.loads, open(f"{run}/metrics.jsonl")) if r["step"] == step + 1 and "loss" in r)
mean = sum(r["loss"] for r in rows) / len(rows)
assert len(rows) == 16 and abs(mean - logged) <= 1e-6 and last["logged_loss"] == logged and abs(last["mean_loss"] - logged) <= 1e-6, (mean, logged, last)
assert len({r["loss"] for r in rows}) > 4 and ("--weight" in how) == any(r["weight"] != 1 for r in rows)
END
    done
    steps=4
done
expect 0 "$BIN/ccdump" order run --step 4 --loss
has out.txt "        loss    weight"
[ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'ccdump-*' -newer run/config.json 2>/dev/null)" ] || fail "a temporary folder is left"
expect_message 64 "no finite loss of step 99" "$BIN/ccdump" order run --step 99 --loss
expect_message 64 "is a dataset" "$BIN/ccdump" order d --step 0 --loss
sed -i 's/"loss":[^,]*/"loss":9/' run/metrics.jsonl
expect_message 65 "differs from the logged loss" "$BIN/ccdump" order run --step 4 --loss
has out.txt ", logged 9"

# Several texts of an image: as many as rows of a sample.
expect_message 64 "2 texts of an image in every step, which --positives 2" train several --loss nuclr --caption-columns raw+long
expect_message 64 "2 texts of an image in every step, which --positives 2" train several --loss clip --caption-columns raw+long
expect_message 64 "'raw:2' is neither a column NAME" train several --loss nuclr --positives 2 --caption-columns raw:2+long

# The numbers of texts by column: own captions first, then a column each; what each draw showed is counted there.
expect 0 train slots --loss nuclr --text-state caption --caption-columns raw:1,long:2 --epochs 3 --zeta-freeze-epochs 0 --checkpoint-every 4 \
    --keep-checkpoints 9
"$python" -c '
import ccstream, numpy
state, visits = ccstream.State("slots"), numpy.zeros((48, 2), int)
first = state.first_caption
assert first.tolist() == list(range(0, 97, 2))
with ccstream.DataLoader("d", batch_size=16, seed=1, image_size=8, caption_columns="raw:1,long:2", num_threads=1) as dl:
    for epoch in range(3):
        for b in dl:
            for id, caption in zip(numpy.asarray(b["id"]), numpy.asarray(b["caption"])):
                assert caption in (0, 65536) and (id >= 3 or caption == 0)
                visits[id, int(caption >= 65536)] += 1
assert visits.sum() == 144 and visits[:, 1].sum() > 60 and (state["text.visits"].reshape(48, 2) == visits).all(), visits
u = state["text.log_u"].reshape(48, 2)
assert (numpy.isfinite(u) == (visits > 0)).all()'
expect 0 "$BIN/ccdump" popularity slots d --top 96 --json
has out.txt '"caption":"(a caption of column long)"'
expect_message 65 "keeps the numbers of texts by the columns 'long', and not by ''" train other --loss nuclr --init slots --init-state --text-state caption
expect 0 train same --loss nuclr --init slots --init-state --text-state caption --caption-columns long:3,raw --steps 1
resumes slots 4

# Readers keep the column that they opened: a run goes to its end with it, and is not resumed with another.
train alone --weight w --epochs 100
train with --weight w --epochs 100 &
pid=$!
until [ -s with/metrics.jsonl ] || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -STOP $pid
[ "$(wc -l <with/metrics.jsonl)" -lt "$(wc -l <alone/metrics.jsonl)" ] || fail "the run has ended before its column is replaced"
expect 0 "$BIN/ccpack" attach d new.npy --as w --replace -q
kill -CONT $pid
wait $pid || fail "the run failed"
for run in alone with; do
    sed -nE 's/.*"step":([0-9]+),.*"loss":([^,]*),.*/\1 \2/p' $run/metrics.jsonl >$run.txt
done
cmp alone.txt with.txt
[ "$(wc -l <with.txt)" -ge 50 ] || fail "too few steps"
expect_message 65 "" "$BIN/ccstream-train" -q --resume with --epochs 110
expect_message 65 "" "$BIN/ccdump" order with --step 4 --loss

# NaN is found when the sample is read, with column and sample.
expect 0 "$BIN/ccpack" attach d nan.npy --as w --replace -q
expect_message 64 "column 'w' has NaN or infinity for sample [0-9]*" train nan --weight w

# What a loader with columns costs is measured.
expect 0 "$BIN/ccbench" loader d --size 32 -b 16 --load two,w --no-limit --json
has out.txt '"load":"two,w"'
expect_message 64 "expected numbers of the same length" "$BIN/ccbench" loader d --size 32 -b 16 --load long --no-limit
