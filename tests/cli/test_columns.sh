# Columns over a dataset's life: attach by key and id, show, verify, append, remove, compact, subset, merge,
# repair, overwrite, seal; damage; a killed attach loses nothing.
# not under sanitizers: attach is Python, which would need their library before all others
. "$SRC/tests/support/cli.sh"
[ -f "$BIN/../python/ccstream/attach.py" ] || { echo "skipped: the Python package is not built"; exit 77; }
python=$(sed -n '1s/^#!//p' "$BIN/ccstudy")
"$python" -c 'import numpy' 2>/dev/null || { echo "skipped: no NumPy"; exit 77; }
export PYTHONPATH="$BIN/../python" PYTHONDONTWRITEBYTECODE=1

"$TESTBIN/make_scenes" val 60 1 48 rows.tar >scenes.txt
"$TESTBIN/make_scenes" val 20 2 48 more.tar >scenes.txt
"$BIN/ccpack" -q --shard-samples 20 -o d rows.tar
cat >make.py <<'END'
import json, random, sys
import numpy
import ccstream

ds = ccstream.Dataset("d")
with open("long.jsonl", "w") as f:
    for i in range(len(ds) - 1, -1, -1):  # any order gives the same bytes
        s = ds[i]
        if s.id % 7 != 3:
            print(json.dumps({"file": s.key, "caption": [f"a long caption of {s.id}", s.captions[0] + " again"],
                              "score": s.id / 8, "tags": {"id": s.id}}), file=f)
    for i in range(12):
        print(json.dumps({"file": f"nobody{i}", "caption": "none"}), file=f)
numpy.save("feats.npy", numpy.arange(ds.id_space * 6).reshape(ds.id_space, 6).astype("f2"))
END
"$python" make.py

# The report, and what is stored.
expect 0 "$BIN/ccpack" attach d long.jsonl --on key=file --as long=caption --as score --as tags --json
has out.txt '"rows": 63, "matched": 51, "unmatched": 12, "unmatched_keys": ["nobody0", '
has out.txt '"nobody9"], "repeated": 0, "samples": 60, "samples_without": 9'
has err.txt "12 without a sample (nobody0, nobody1"
expect 0 "$BIN/ccpack" attach d feats.npy --as teacher -q
expect 0 "$BIN/ccdump" show d 5 --json
has out.txt '"columns":{"long":{"kind":"captions","captions":[{"text":"a long caption of 5","weight":1,"source":0},{"text":'
has out.txt '"score":{"kind":"f32","values":1,"vectors":1,"first":[0.625]}'
has out.txt '"tags":{"kind":"json","text":"{\"id\": 5}"},"teacher":{"kind":"f16","values":6,"vectors":1,"first":[30,31,32,33,34,35]}}'
expect 0 "$BIN/ccdump" show d 3 --json
hasnt out.txt '"long"'
has out.txt '"teacher"'
expect 0 "$BIN/ccdump" verify d
cp -r d whole

# Servers have no list of files: names.txt is one, which verify compares and repair writes. Datasets of older programs have none.
printf 'long\nscore\ntags\nteacher\n' | cmp - d/columns/names.txt
cp -r d unlisted
echo ghost >>unlisted/columns/names.txt
expect 65 "$BIN/ccdump" verify unlisted
has out.txt "unlisted/columns/names.txt: does not list the existing columns"
expect 0 "$BIN/ccpack" repair unlisted --dry-run
has out.txt "names.txt: would be rebuilt"
expect 0 "$BIN/ccpack" repair unlisted
cmp unlisted/columns/names.txt d/columns/names.txt
rm unlisted/columns/names.txt
expect 0 "$BIN/ccdump" verify unlisted
cp -r unlisted older
expect 0 "$BIN/ccpack" repair unlisted --json
has out.txt '"file":"columns/names.txt",'
cmp unlisted/columns/names.txt d/columns/names.txt
expect 0 "$BIN/ccpack" detach unlisted long
printf 'score\ntags\nteacher\n' | cmp - unlisted/columns/names.txt
for name in score tags teacher; do
    expect 0 "$BIN/ccpack" detach unlisted $name
done
[ -z "$(ls unlisted/columns)" ] || fail "a list of no columns"

# Equal bytes in any order of the table, and with the rows attached again.
{ tail -n 30 long.jsonl; head -n 33 long.jsonl; } >other.jsonl
expect_message 73 "a column 'long' exists; pass --replace" "$BIN/ccpack" attach d other.jsonl --on key=file --as long=caption
mv other.jsonl keep && mkdir o && mv keep o/long.jsonl
expect 0 "$BIN/ccpack" attach d o/long.jsonl --on key=file --as long=caption --replace -q
cmp d/columns/long.ccc whole/columns/long.ccc

# Captions by sentence; Parquet, where pyarrow is there.
echo '{"id":8,"text":"A dog, e.g. a poodle, runs. It is 3.5 years old!  \"Good\" boy? yes."}' >sentences.jsonl
expect 0 "$BIN/ccpack" attach d sentences.jsonl --as parts:sentences=text -q
expect 0 "$BIN/ccdump" show d 8 --json
has out.txt '"parts":{"kind":"captions","captions":[{"text":"A dog, e.g. a poodle, runs.","weight":1,"source":0},{"text":"It is 3.5 years old!",'
has out.txt '{"text":"\"Good\" boy? yes.",'
expect 0 "$BIN/ccpack" detach d parts
if "$python" -c 'import pyarrow' 2>/dev/null; then
    "$python" -c '
import json, pyarrow, pyarrow.parquet
rows = [json.loads(line) for line in open("long.jsonl")]
pyarrow.parquet.write_table(pyarrow.table({"file": [r["file"] for r in rows], "caption": [r["caption"] if isinstance(r["caption"], list) else [r["caption"]] for r in rows], "score": [r.get("score") for r in rows], "vector": [[1.5, float(i)] for i in range(len(rows))]}), "long.parquet", row_group_size=7)
pyarrow.parquet.write_table(pyarrow.table({"file": [r["file"] for r in rows], "score": ["no number"] * len(rows)}), "bad.parquet")
open("torn.parquet", "wb").write(open("long.parquet", "rb").read()[:-100])'
    cp d/columns/long.ccc jsonl.ccc
    expect 0 "$BIN/ccpack" attach d long.parquet --on key=file --as long=caption --as vector --replace --json
    has out.txt '"rows": 63, "matched": 51,'
    "$python" -c '
import ccstream, sys
c = ccstream.Dataset("d").column("long")
assert c.captions(5)[0].text == "a long caption of 5" and c.rows == 51
assert list(ccstream.Dataset("d").column("vector")[0]) [0] == 1.5'
    expect_message 65 "bad.parquet: row [0-9]*: 'score'" "$BIN/ccpack" attach d bad.parquet --on key=file --as n:f32=score
    expect_message 65 'torn.parquet: ' "$BIN/ccpack" attach d torn.parquet --on key=file --as n=score
    expect_message 65 "bad.parquet: row 0: 'nothing' is missing" "$BIN/ccpack" attach d bad.parquet --on key=nothing --as n=score
    mv jsonl.ccc d/columns/long.ccc
    expect 0 "$BIN/ccpack" detach d vector
fi

# Lists of samples have them too.
for command in ls "find --max-side 999"; do
    # shellcheck disable=SC2086 # words
    expect 0 "$BIN/ccdump" $command d --id 5 --keys --json
    has out.txt '"columns":{"long":{"kind":"captions","captions":[{"text":"a long caption of 5",'
done

# A dry run writes nothing; detach removes one.
expect 0 "$BIN/ccpack" attach d feats.npy --as more --dry-run
[ ! -e d/columns/more.ccc ] || fail "a dry run wrote a column"
expect 0 "$BIN/ccpack" detach d tags
expect_message 66 "there is no column 'tags'" "$BIN/ccpack" detach d tags
[ ! -e d/columns/tags.ccc ] || fail "the column is there"

# While another process writes, attach is refused.
cat >hold.py <<'END'
import subprocess, sys
from ccstream.column import Writer
with Writer("d", "held", "f32", (), {}, False):
    sys.exit(subprocess.run([sys.argv[1], "attach", "d", "feats.npy", "--as", "other"]).returncode)
END
expect_message 73 "in use by process" "$python" hold.py "$BIN/ccpack"
[ ! -e d/columns/held.ccc ] || fail "an unfinished column is there"

# Append: new samples have no value.
"$BIN/ccpack" -q --append -o d more.tar 2>err.txt || fail "append: $(cat err.txt)"
expect 0 "$BIN/ccdump" show d 70 --json
hasnt out.txt '"columns":{"'
expect 0 "$BIN/ccdump" verify d
expect 0 "$BIN/ccpack" attach d feats.npy --as later --json
has out.txt '"samples": 80, "samples_without": 20'

# Remove and compact: the values of removed samples go too.
printf '5\n6\n7\n' >ids.txt
"$BIN/ccpack" remove d --ids ids.txt -q
expect 0 "$BIN/ccdump" verify d
"$python" -c '
import ccstream
ds = ccstream.Dataset("d")
c = ds.column("long")
assert 5 not in c and 8 in c and c[8][0] == "a long caption of 8"
assert c.get(5)'
before=$(stat -c %i d/columns/later.ccc)
expect 0 "$BIN/ccpack" compact d
expect 0 "$BIN/ccdump" verify d
[ "$(stat -c %i d/columns/later.ccc)" != "$before" ] || fail "the column still has the removed rows"
"$python" -c '
import ccstream
ds = ccstream.Dataset("d")
c = ds.column("teacher")
assert 5 not in c.ids and len(c) == 57 and (c[8] == [48, 49, 50, 51, 52, 53]).all()
try:
    ds.column("long").get(5)
except LookupError:
    pass
else:
    raise SystemExit("the caption is still there")'
before=$(stat -c %i d/columns/later.ccc)
expect 0 "$BIN/ccpack" compact d
[ "$(stat -c %i d/columns/later.ccc)" = "$before" ] || fail "a column that loses nothing was rewritten"

# A subset has the chosen rows, a copy of everything the same bytes.
expect 0 "$BIN/ccpack" subset whole --where 'id >= 0' -o same -q
cmp same/columns/teacher.ccc whole/columns/teacher.ccc
cmp same/columns/tags.ccc whole/columns/tags.ccc
expect 0 "$BIN/ccpack" subset whole --where 'id < 20' -o some -q
expect 0 "$BIN/ccdump" verify some
"$python" -c '
import ccstream
c = ccstream.Dataset("some").column("teacher")
assert c.ids.tolist() == list(range(20)), c.ids'

# Conditions on a column; damage is found, and what has no number is refused.
expect 0 "$BIN/ccpack" subset whole --where 'col.score >= 50% and col.score != 6' --dry-run --json
has out.txt '"samples":25,'
expect 0 "$BIN/ccpack" subset whole --where 'col.score < 0.5' --dry-run --json
has out.txt '"samples":3,'
expect_message 64 "column 'teacher' is f16 of 6: conditions need one number" "$BIN/ccpack" subset whole --where 'col.teacher > 1' --dry-run
expect_message 66 "there is no column 'nothing'" "$BIN/ccpack" subset whole --where 'col.nothing > 1' --dry-run

# The samples with the highest values: of equal ones the lowest ids; those without a value are counted; NaN has no order.
expect 0 "$BIN/ccpack" subset whole --top 20% --by col.score --dry-run --json
has out.txt '"samples":10,"of":60,'
has out.txt '"with_value":51,"without_value":9,"lowest":6'
expect 0 "$BIN/ccpack" subset whole --top 3 --by col.score --where 'id < 20' -o best --json
has out.txt '"samples":3,'
has out.txt '"with_value":17,"without_value":3,"lowest":2'
has err.txt '3 of 17 samples with a value of col.score, the lowest 2; 3 without one'
"$python" -c '
import ccstream, json, numpy
assert ccstream.Dataset("best").ids.tolist() == [16, 18, 19]
ds = ccstream.Dataset("whole")
ds.attach("tied", ds.ids, (ds.ids % 4).astype("f4"))
ds.attach("nan", ds.ids[:9], numpy.array([1, 2, 3, 4, 5, 6, 7, 8, numpy.nan], "f4"))'
expect 0 "$BIN/ccpack" subset whole --top 20 --by col.tied -o tied -q
"$python" -c '
import ccstream
assert ccstream.Dataset("tied").ids.tolist() == sorted([*range(3, 60, 4), 2, 6, 10, 14, 18])'
expect_message 64 "the column has NaN for sample 8, which has no order" "$BIN/ccpack" subset whole --top 3 --by col.nan --dry-run
expect 0 "$BIN/ccpack" subset whole --top 3 --by col.nan --where 'id != 8' --dry-run --json
has out.txt '"with_value":8,"without_value":51,"lowest":6'
expect_message 66 "no sample fits" "$BIN/ccpack" subset whole --top 3 --by label --dry-run
for bad in 0 -1 0% 101% nan% 1.5 x; do
    expect_message 64 "neither a number of samples nor a percentage" "$BIN/ccpack" subset whole --top=$bad --by col.score --dry-run
done
expect_message 64 "--top and --by need each other" "$BIN/ccpack" subset whole --top 3 --dry-run
expect_message 64 "is not the name of a number" "$BIN/ccpack" subset whole --top 3 --by class --dry-run
expect_message 64 "is not the name of a number" "$BIN/ccpack" subset whole --top 3 --by 'col.score > 3' --dry-run
expect_message 64 "column 'teacher' is f16 of 6" "$BIN/ccpack" subset whole --top 3 --by col.teacher --dry-run
expect 0 "$BIN/ccpack" detach whole tied
expect 0 "$BIN/ccpack" detach whole nan

# What columns have, over a dataset and for a sample of a run.
expect 0 "$BIN/ccdump" stats whole --json
has out.txt '"columns":{"long":{"kind":"captions","samples":51,"values":null,"captions":102,"mean_characters":37.65686'
has out.txt '"score":{"kind":"f32","samples":51,"values":1,"captions":null,"mean_characters":null,"nan":0,"min":0,"mean":3.65441176'
has out.txt '"median":3.625,"max":7.25},"tags":{"kind":"json","samples":51,"values":null,'
has out.txt '"teacher":{"kind":"f16","samples":60,"values":6,'
expect 0 "$BIN/ccdump" stats whole
has out.txt 'kind      samples  values  captions  mean_characters'
"$python" -c 'import ccstream, numpy; ccstream.Dataset("whole").attach("wide", [5], numpy.arange(20, dtype="f4")[None])'
expect 0 "$BIN/ccdump" cat whole --id 3,5 --columns
has out.txt '{"id":3,"columns":{"teacher":{"kind":"f16","values":6,"vectors":1,"numbers":[18,19,20,21,22,23]}}}'
has out.txt '"wide":{"kind":"f32","values":20,"vectors":1,"numbers":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]}}}'
[ "$(wc -l <out.txt)" = 2 ] || fail "not a line per sample: $(cat out.txt)"
expect_message 64 "exclude each other" "$BIN/ccdump" cat whole --id 3 --columns --caption
expect 0 "$BIN/ccpack" detach whole wide
"$BIN/ccpack" tokenizer whole --vocab-size 80 >out.txt 2>&1
expect 0 "$BIN/ccstream-train" -q --preset cpu-demo --image-tower tiny --data whole --out run --image-size 16 --batch-size 16 --steps 1
expect 0 "$BIN/ccdump" why run whole 5 --encode 0 --near 0 --json
has out.txt '"columns":{"long":{"kind":"captions","captions":[{"text":"a long caption of 5","weight":1,"source":0},'

# Parts with columns become one dataset with them.
for part in 1 2; do
    "$BIN/ccpack" -q --shard-samples 20 --part $part/2 -o p$part rows.tar
done
"$BIN/ccpack" attach p1 feats.npy --as teacher -q
"$BIN/ccpack" attach p2 feats.npy --as teacher -q
expect 0 "$BIN/ccpack" merge -q -o merged p1 p2
expect 0 "$BIN/ccdump" verify merged
"$python" -c '
import ccstream
ds = ccstream.Dataset("merged")
c = ds.column("teacher")
assert (c.ids == ds.ids).all() and (c[59] == range(354, 360)).all()'

# Repair makes a manifest without earlier generations: the columns stay those of the dataset.
cp -r d repaired
f=$("$BIN/ccdump" info d --json >a.txt && field a.txt fingerprint)
rm repaired/dataset.json
expect 0 "$BIN/ccpack" repair repaired --fingerprint "$f" -q
expect 0 "$BIN/ccdump" verify repaired
expect 0 "$BIN/ccdump" show repaired 8 --json
has out.txt '"long":{"kind":"captions"'

# A damaged column is named, the others are counted.
cp -r repaired torn
rm torn/columns/long.ccc
head -c 100 repaired/columns/long.ccc >torn/columns/long.ccc
expect 0 "$BIN/ccdump" stats torn --json
has out.txt '"long":{"error":"torn/columns/long.ccc: is not a column, or is truncated'
has out.txt '"teacher":{"kind":"f16","samples":57,'

# A seal has the columns; another dataset's are refused; a new dataset in the folder has none.
expect 0 "$BIN/ccpack" seal whole -o whole.sha256
has whole.sha256 "columns/teacher.ccc"
has whole.sha256 "columns/names.txt"
(cd whole && sha256sum -c --quiet ../whole.sha256) || fail "the seal"
"$BIN/ccpack" -q -o foreign more.tar
cp -r whole/columns foreign/
expect_message 65 "" "$BIN/ccdump" verify foreign
has out.txt "was attached to dataset"
expect 0 "$BIN/ccdump" show foreign 0 --json
has out.txt '"long":{"error":"foreign/columns/long.ccc: was attached to dataset'
"$BIN/ccpack" -q --overwrite -o foreign more.tar
[ -z "$(ls foreign/columns)" ] || fail "columns of the dataset before are there"

# Every flipped bit is found, and every truncation.
cat >damage.py <<'END'
import os, random, subprocess, sys
random.seed(1)
for name in ("long", "teacher"):
    path = f"whole/columns/{name}.ccc"
    good = open(path, "rb").read()
    for i in range(6):
        bad = bytearray(good)
        if i < 4:
            bit = random.randrange(8 * len(good))
            bad[bit // 8] ^= 1 << bit % 8
        else:
            bad = bad[: random.randrange(len(good))]
        os.unlink(path)  # readers keep what they have mapped
        open(path, "wb").write(bad)
        p = subprocess.run([sys.argv[1], "verify", "whole"], capture_output=True, text=True)
        assert p.returncode == 65 and path in p.stdout, (name, i, p)
    os.unlink(path)
    open(path, "wb").write(good)
END
"$python" damage.py "$BIN/ccdump"
expect 0 "$BIN/ccdump" verify whole

# A version that this program does not know.
cp -r whole newer
"$python" -c '
p = "newer/columns/long.ccc"
b = bytearray(open(p, "rb").read())
b[-16] = 9
import os; os.unlink(p)
open(p, "wb").write(b)'
expect 65 "$BIN/ccdump" verify newer
has out.txt "version 9, this program reads version 2"

# At a server columns are found by the list, and read by name without it; nothing is written there.
"$python" "$SRC/tests/net/fault_server.py" . >port.txt 2>server.txt &
server=$!
until [ "$(wc -l <port.txt)" -ge 1 ] || ! kill -0 $server; do sleep 0.05; done
url=http://127.0.0.1:$(head -n 1 port.txt)/whole
"$python" - "$url" <<'END'
import sys
import numpy
import ccstream

here, there = ccstream.Dataset("whole"), ccstream.Dataset(sys.argv[1])
for name in ("teacher", "score"):
    a, b = here.column(name), there.column(name)
    assert (a[[5, 8, 16]] == b[[5, 8, 16]]).all() and (a.values == b.values).all() and a.hash == b.hash
assert there.column("long").captions(5) == here.column("long").captions(5)
with ccstream.DataLoader(there, batch_size=20, image_size=8, columns=["teacher"], captions=False, num_threads=1) as dl:
    for b in dl:
        assert (b.columns["teacher"] == here.column("teacher")[numpy.asarray(b["id"])]).all()
END
at_both() { # at_both COMMAND...: with whole and with $url in place of HERE, the same is printed
    expect 0 "$BIN/ccdump" "${@/HERE/whole}"
    sed "s|whole|$url|g" out.txt >local.txt
    expect 0 "$BIN/ccdump" "${@/HERE/$url}"
    cmp out.txt local.txt || fail "ccdump $*"
    has out.txt '"teacher"'
}
at_both show HERE 5 --json
at_both cat HERE --id 3,5 --columns
at_both stats HERE --json
expect 0 "$BIN/ccdump" why run "$url" 5 --encode 0 --near 0 --json
has out.txt '"columns":{"long":{"kind":"captions","captions":[{"text":"a long caption of 5","weight":1,"source":0},'
expect 0 "$BIN/ccdump" verify "$url"
for data in whole "$url"; do
    expect 0 "$BIN/ccpack" subset "$data" --where 'col.score > 3' -o "chosen-${#data}" -q
done
diff -r chosen-5 "chosen-${#url}" || fail "another subset of a remote dataset"
has chosen-5/columns/names.txt teacher
"$python" -c '
import ccstream, sys
assert ccstream.Dataset(sys.argv[1]).columns == ["long", "score", "tags", "teacher"]
assert ccstream.Dataset(sys.argv[1].replace("whole", "older")).columns == []' "$url"
truncate -s 65M whole/columns/big.ccc
echo big >>whole/columns/names.txt
expect 0 "$BIN/ccdump" show "$url" 5 --json
has out.txt '"big":{"error":"has 68157440 bytes at the server, which stats and cat --columns read"}'
expect 0 "$BIN/ccdump" cat "$url" --id 5 --columns
has out.txt '"big":{"error":"'"$url/columns/big.ccc: is not a column"
rm whole/columns/big.ccc
sed -i /big/d whole/columns/names.txt
mv whole/columns/tags.ccc .
expect 0 "$BIN/ccdump" show "$url" 5 --json
has out.txt '"tags":{"error":"'"$url: there is no column 'tags'"
expect 65 "$BIN/ccdump" verify "$url"
has out.txt "there is no column 'tags'"
mv tags.ccc whole/columns/
expect 0 "$BIN/ccdump" show "${url%whole}older" 5 --json
hasnt out.txt '"columns":{'
expect_message 64 "a remote dataset is read-only" "$BIN/ccpack" attach "$url" feats.npy --as other
expect_message 64 "a remote dataset is read-only" "$BIN/ccpack" detach "$url" teacher

# A signed link; a column that was replaced is not taken from the cache, without a server it is.
expect 0 "$BIN/ccdump" show "$url?signature=1" 5 --json
has out.txt '"score":{"kind":"f32","values":1,"vectors":1,"first":[0.625]}'
cp whole/columns/score.ccc score.ccc
expect 0 "$BIN/ccdump" show "$url" 5 --json --cache cache
has out.txt '"score":{"kind":"f32","values":1,"vectors":1,"first":[0.625]}'
echo '{"id":5,"score":-7}' >other.jsonl
expect 0 "$BIN/ccpack" attach whole other.jsonl --as score --replace -q
expect 0 "$BIN/ccdump" show "$url" 5 --json --cache cache
has out.txt '"score":{"kind":"f32","values":1,"vectors":1,"first":[-7]}'
kill $server
expect 0 "$BIN/ccdump" show "$url" 5 --json --cache cache
has out.txt '"score":{"kind":"f32","values":1,"vectors":1,"first":[-7]}'
mv score.ccc whole/columns/

# Killed at any moment, an attach leaves the column as it was, or as it becomes.
cat >kill.py <<'END'
import json, random, signal, subprocess, sys, time
import numpy
import ccstream

random.seed(2)
kills, command = int(sys.argv[2]), [sys.argv[1], "attach", "whole", "new.npy", "--as", "teacher", "--replace", "-q"]
ds = ccstream.Dataset("whole")
old = ds.column("teacher")[ds.ids].copy()
new = old + numpy.float16(1)
numpy.save("new.npy", new)
start = time.monotonic()
subprocess.run(command, check=True)
took = time.monotonic() - start
seen = set()
for i in range(kills):
    numpy.save("new.npy", (old, new)[i % 2])
    p = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(random.uniform(0.5 * took, 1.1 * took))
    p.send_signal(signal.SIGKILL)
    p.wait()
    with ccstream.Dataset("whole") as d:
        now = d.column("teacher")[d.ids]
        which = [(now == x).all() for x in (old, new)]
        assert any(which), i
        seen.add(which.index(True))
        for name in d.columns:
            assert len(d.column(name)) > 0
assert seen == {0, 1} or kills < 100, seen
END
"$python" kill.py "$BIN/ccpack" "${CCSTREAM_KILLS:-4}"
"$BIN/ccpack" attach whole new.npy --as teacher --replace -q
expect 0 "$BIN/ccdump" verify whole
[ "$(cat whole/columns/names.txt)" = "$(printf 'long\nscore\ntags\nteacher')" ] || fail "the list"
[ -z "$(find whole/columns -name '*.tmp')" ] || fail "a killed attach left $(ls whole/columns)"
