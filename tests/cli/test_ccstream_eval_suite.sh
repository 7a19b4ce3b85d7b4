# ccstream-eval suite: test sets in clip-benchmark's layout are read in place, and their metrics are those that NumPy computes
# from the embeddings; a killed run continues; what is broken is named.
# not under sanitizers: the programs that it starts have tests of their own
. "$SRC/tests/support/cli.sh"
[ -x "$BIN/ccstudy" ] || { echo "skipped: ccstudy is not built"; exit 77; }
python=$(sed -n '1s/^#!//p' "$BIN/ccstudy")
"$python" -c 'import numpy' || { echo "skipped: numpy is not installed"; exit 77; }
"$python" "$SRC/tests/support/clip_sets.py" .
"$BIN/ccpack" -q -o train train.tar
"$BIN/ccpack" tokenizer -q train --vocab-size 300
"$BIN/ccstream-train" -q --preset cpu-demo --image-tower tiny --data train --out run --steps 8 --image-size 32 --batch-size 32 --seed 1 --threads 1

# ---- numbers
find sets -type f | sort | xargs sha256sum >sets.before
expect 0 "$BIN/ccstream-eval" suite run --sets sets -o out --keep-embeddings -t 1
find sets -type f | sort | xargs sha256sum | cmp - sets.before || fail "the sets were changed"
has out.txt 'Oxford-IIIT Pet'
has out.txt 'mean of 4 of 38 sets'
has err.txt '6 of 6'
lines out/eval_results.jsonl 6
[ ! -e out/index ] || fail "out/index is left"
grep -q 'AmorLIP' out/suite.html || fail "no published results on the page"
cat >check.py <<'END'
import json
import math

import numpy as np

rows = {r["folder"]: r for r in map(json.loads, open("out/eval_results.jsonl"))}


def load(name, what):
    return np.load(f"out/embeddings/{name}.{what}.npy")


def same(name, key, want):
    got = rows[name]["metrics"][key]
    assert got is not None and math.isclose(got, want, abs_tol=1e-9), (name, key, got, want)


for name in ("wds_shapes", "wds_vtab-pets", "wds_wilds-fmow_test"):
    images, vectors, labels = (load(name, w) for w in ("images", "class_vectors", "labels"))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    order = np.argsort(-(images @ vectors.T), axis=1, kind="stable")
    same(name, "acc1", (order[:, 0] == labels).mean())
    same(name, "acc5", (order[:, :5] == labels[:, None]).any(1).mean())
    same(name, "mean_per_class_recall", np.mean([(order[labels == c, 0] == c).mean() for c in np.unique(labels)]))
    assert rows[name]["images"] == len(labels) and rows[name]["skipped"] == []
assert sorted(set(load("wds_shapes", "labels"))) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 10]
assert not (load("wds_shapes", "predicted") == 10).any(), "label 10 has the name of label 0"
same("wds_vtab-pets", "main_metric", rows["wds_vtab-pets"]["metrics"]["mean_per_class_recall"])
same("wds_wilds-fmow_test", "count_region:5", 1)

images, texts, owners = (load("wds_flickr30k", w) for w in ("images", "texts", "owners"))
assert (len(images), len(texts), np.bincount(owners)[[3, 9]].tolist()) == (24, 24 * 5, [4, 6])
scores = texts @ images.T
# Captions that are equal have equal scores only in one product.
by_text, by_image = np.argsort(-scores, axis=1, kind="stable"), np.argsort(-(images @ texts.T), axis=1, kind="stable")
for k in (1, 5, 10):
    same("wds_flickr30k", f"image_retrieval_recall@{k}", (by_text[:, :k] == owners[:, None]).any(1).mean())
    same("wds_flickr30k", f"text_retrieval_recall@{k}", (owners[by_image[:, :k]] == np.arange(24)[:, None]).any(1).mean())
assert len(rows["wds_fairface_test"]["metrics"]) > 40 and rows["wds_fairface_test"]["metrics"]["main_metric"] is None
assert rows["winogavil"]["images"] == 99
suite = json.load(open("out/suite.json"))
average = next(a for a in suite["averages"] if a["name"] == "Average")
want = [r["metrics"]["main_metric"] for r in rows.values() if r["key"] not in ("wds_shapes", "fairness/fairface")]
assert average["sets"] == 4 and math.isclose(average["value"], np.mean(want)), average
assert len(suite["missing"]) == 34 and "imagenet1k" in suite["missing"]
END
"$python" check.py || fail "metrics"

# ---- the classes of zeroshot, its images cropped as here: prompts and pixels are those of the other command
sed 's/{c}/{}/' sets/wds_vtab-pets/zeroshot_classification_templates.txt >templates.txt
mkdir pets && cp sets/wds_vtab-pets/test/0.tar sets/wds_vtab-pets/classnames.txt pets/
"$BIN/ccpack" index -q pets/0.tar
expect 0 "$BIN/ccstream-eval" zeroshot run --data pets --templates templates.txt --transform clip --json -t 1
awk -v a="$(field out.txt top1)" -v b="$(sed -n 's/.*"key": "vtab\/pets".*"acc1": \([0-9.]*\).*/\1/p' out/eval_results.jsonl)" \
    'BEGIN { exit !(a - 100 * b < 0.01 && 100 * b - a < 0.01) }' || fail "zeroshot has another accuracy"

expect_message 64 'without it only --prompts' "$BIN/ccstream-eval" embed run -o x
printf 'one\n\n#two\n' >prompts.txt
expect 0 "$BIN/ccstream-eval" embed run --prompts prompts.txt -o x -t 1
"$python" -c 'import numpy as np; x = np.load("x.prompts.npy"); assert x.shape[0] == 3 and abs((x ** 2).sum(1) - 1).max() < 1e-5' ||
    fail "rows of prompts"

# ---- a packed dataset is a set; groups and names choose
cp -r pets sets/packed
expect 0 "$BIN/ccstream-eval" suite run --sets sets -o groups --group retrieval -q -t 1
lines groups/eval_results.jsonl 2
[ ! -s out.txt ] && [ ! -s err.txt ] || fail "--quiet prints"
without_figures
expect 0 "$BIN/ccstream-eval" suite run --sets sets -o chosen --only packed,vtab/pets -t 1 --json
lines chosen/eval_results.jsonl 2
has err.txt 'matplotlib is not installed'
rm -r sets/packed
expect_message 64 'no such set' "$BIN/ccstream-eval" suite run --sets sets -o x --only nosuch
expect_message 64 'expected one of imagenet' "$BIN/ccstream-eval" suite run --sets sets -o x --group nosuch
expect_message 66 'no such folder' "$BIN/ccstream-eval" suite run --sets nosuch -o x
expect_message 64 'pass --sets DIR' "$BIN/ccstream-eval" suite run -o x

# ---- images that Pillow's convert('RGB') shows otherwise are read so, and counted; sets of other layouts
expect 0 "$BIN/ccstream-eval" suite run --sets more -o more-out -t 1
has out.txt 'Winoground'
lines more-out/eval_results.jsonl 3
grep -q '"folder": "wds_odd".*"exif_ignored": 10, "transparency_ignored": 10.*which is ignored' more-out/eval_results.jsonl || fail "odd images are not counted"
grep -q '"key": "sugar_crepe".*"replace_obj_acc": [0-9.]*, "swap_att_acc": [0-9.]*, "mean_acc"' more-out/eval_results.jsonl || fail "SugarCrepe"
expect 0 "$BIN/ccstream-eval" suite run --sets more -o extras -t 1 -q --group extras
lines extras/eval_results.jsonl 2

# ---- ranks share the sets; a killed one's set is taken up by another
expect 0 "$BIN/ccstream-eval" suite run --sets sets -o ranks -q -t 1 --ranks 3
plain() { sed 's/"seconds": [0-9.]*/"seconds": 0/' "$1" | sort; }
plain ranks/eval_results.jsonl | cmp - <(plain out/eval_results.jsonl) || fail "ranks have other results"
"$BIN/ccstream-eval" suite run --sets sets -o shot -q -t 1 --ranks 2 >out.txt 2>&1 &
pid=$!
until [ "$(pgrep -cP $pid)" = 2 ]; do kill -0 $pid || break; sleep 0.02; done
pkill -9 -oP $pid || true
wait $pid || fail "a killed rank ends the others"
plain shot/eval_results.jsonl | cmp - <(plain out/eval_results.jsonl) || fail "results after a killed rank"

"$BIN/ccstream-eval" suite run --sets sets -o gone -q -t 1 --ranks 2 2>err.txt >out.txt &
pid=$!
until [ "$(pgrep -cP $pid)" = 2 ]; do kill -0 $pid || break; sleep 0.02; done
pkill -9 -P $pid || true
! wait $pid || fail "a suite without ranks has ended well"
has err.txt 'sets are not evaluated yet; run the same command again'

# ---- remote sets
rm -f port.txt
"$python" "$SRC/tests/net/fault_server.py" . >port.txt &
server=$!
until grep -q . port.txt; do sleep 0.05; done
url=http://127.0.0.1:$(head -1 port.txt)/sets
expect 0 "$BIN/ccstream-eval" suite run --sets "$url/wds_{}" -o far -q -t 1 --only vtab-pets,flickr30k --cache cache
[ -s cache/flickr30k/test/1.tar ] || fail "no file in the cache"
expect 0 "$BIN/ccstream-eval" suite run --sets "$url" -o far2 -q -t 1 --group retrieval
for key in vtab/pets flickr_1k; do
    grep "$key" far/eval_results.jsonl | grep -qF "$(grep "$key" out/eval_results.jsonl | grep -o '"metrics": {[^}]*}')" || fail "$key at a server"
done
lines far2/eval_results.jsonl 1
[ ! -e far2/cache ] || fail "far2/cache is left"
expect_message 66 'wds_nosuch/test/nshards.txt' "$BIN/ccstream-eval" suite run --sets "$url" -o x --only wds_nosuch
kill $server

# ---- a killed run continues with the sets that are missing, and ends with the same lines
plain out/eval_results.jsonl >whole.txt
for delay in 0.4 1 1.6; do
    "$BIN/ccstream-eval" suite run --sets sets -o killed -q -t 1 >/dev/null 2>&1 &
    pid=$!
    sleep $delay
    kill -9 $pid 2>/dev/null || true
    wait $pid 2>/dev/null || true
done
before=$(cat killed/eval_results.jsonl 2>/dev/null | wc -l)
expect 0 "$BIN/ccstream-eval" suite run --sets sets -o killed -t 1
[ "$before" = 6 ] || has err.txt "$((6 - before)) of 6 sets to evaluate"
plain killed/eval_results.jsonl | cmp - whole.txt || fail "a continued run has other results"
expect 0 "$BIN/ccstream-eval" suite run --sets sets -o killed -t 1
hasnt err.txt 'to evaluate'
expect_message 73 'another checkpoint' "$BIN/ccstream-eval" suite run --sets sets -o killed -t 1 --transform squash

# ---- broken sets: an image that does not decode is counted, and others keep their labels; a missing label ends the set alone
"$python" - <<'END'
import io
import tarfile


def change(source, target, act):
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for m in old:
            data = act(m.name, old.extractfile(m).read())
            if data is not None:
                m.size = len(data)
                new.addfile(m, io.BytesIO(data))


change("sets/wds_vtab-pets/test/0.tar", "bad.tar", lambda n, d: d[:90] if n == "s0000003.png" else d)
change("sets/wds_vtab-pets/test/0.tar", "nolabel.tar", lambda n, d: None if n.endswith(".cls") else d)
change("sets/wds_vtab-pets/test/0.tar", "beyond.tar", lambda n, d: b"8" if n == "s0000002.cls" else d)
END
mkdir broken
for name in bad nolabel beyond; do
    cp -r sets/wds_vtab-pets broken/$name
    mv $name.tar broken/$name/test/0.tar
done
expect 65 "$BIN/ccstream-eval" suite run --sets broken -o b -t 1
has err.txt 'nolabel: '
has out.txt 'bad'
lines b/eval_results.jsonl 2
[ "$(grep -c '"images": 43' b/eval_results.jsonl)" = 2 ] || fail "one image of each is missing"
grep -q '"folder": "bad".*"key": "s0000003", "reason": "image-damaged"' b/eval_results.jsonl || { cat b/eval_results.jsonl; fail "the image is not named"; }
grep -q '"folder": "beyond".*not a line number of classnames.txt (0-based, 8 lines)' b/eval_results.jsonl || fail "the label is not named"
# A set without an image, and names that no prompt reaches, because the model reads 30 tokens.
mkdir -p odd/empty/test odd/long
cp -r sets/wds_vtab-pets/. odd/long
cp sets/wds_vtab-pets/*.txt odd/empty
echo 1 >odd/empty/test/nshards.txt
tar -cf odd/empty/test/0.tar -T /dev/null
printf '%s {c}\n' "$(seq -s ' of the ' 60)" >odd/long/zeroshot_classification_templates.txt
expect 65 "$BIN/ccstream-eval" suite run --sets odd -o o -t 1
has err.txt 'empty: '
grep -q '"folder": "long".*"notes": \["7 classes have the vector of another' o/eval_results.jsonl || { cat o/eval_results.jsonl; fail "names beyond the context"; }
printf 'a digit\n' >broken/bad/zeroshot_classification_templates.txt
expect_message 65 "templates.txt: line 1: 'a digit' must contain {c}" "$BIN/ccstream-eval" suite run --sets broken -o c -t 1
