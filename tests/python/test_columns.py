"""Columns: joins on every key, kinds and their values, and everything that is refused, with its place."""

import contextlib
import io
import json
import os
import subprocess
import sys

try:
    import numpy
except ImportError:
    print("skipped: no NumPy")
    sys.exit(77)

import ccstream
from ccstream import attach

PNG = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
                    "c9fe92ef0000000049454e44ae426082")
IDS = [0, 1, 2, 5, 100, 70000]


def dataset(path, same_url=False):
    with ccstream.Writer(path, check=False) as w:
        for i in IDS:
            meta = {"url": f"http://x/{0 if same_url else i}", "uid": f"{i:032x}", "sha256": f"{i:064x}", "n": i}
            w.add(PNG, [f"caption {i}"], key=f"k{i}", id=i, metadata=meta)
    return ccstream.Dataset(path)


def run(*words):
    """Report of a command, or (code, message)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            attach.attach([*words, "--json"])
        except (attach.Fault, ccstream.Error, OSError) as e:
            return attach.exit_code(e), str(e)
    return json.loads(out.getvalue())


def table(name, rows):
    with open(name, "w") as f:
        for row in rows:
            f.write(row if isinstance(row, str) else json.dumps(row))
            f.write("\n")
    return name


def refused(code, text, *words):
    got = run("d", *words)
    assert isinstance(got, tuple) and got[0] == code and text in got[1], (got, text)
    assert not os.path.exists("d/columns/x.ccc") and not [n for n in os.listdir("d/columns") if n.endswith(".tmp")]


ds = dataset("d")

# Every key, in JSON, CSV and TSV.
keys = {"id": lambda i: i, "key": lambda i: f"k{i}", "url": lambda i: f"http://x/{i}", "uid": lambda i: f"{i:032x}",
        "sha256": lambda i: f"{i:064x}", "meta.url": lambda i: f"http://x/{i}"}
for n, (on, key) in enumerate(keys.items()):
    rows = [{"k": key(i), "long": f"long, \"{i}\"\nline é"} for i in reversed(IDS)]
    table("t.jsonl", rows)
    for end, delimiter in (("csv", ","), ("tsv", "\t")):
        with open(f"t.{end}", "w", newline="", encoding="utf-8-sig" if end == "csv" else "utf-8") as f:
            out = attach.csv.writer(f, delimiter=delimiter)
            out.writerow(["k", "other", "long"])
            for r in rows:
                out.writerow([r["k"], "x", r["long"]])
    for kind in ("jsonl", "csv", "tsv"):
        report = run("d", f"t.{kind}", "--on", f"{on}=k", "--as", f"c{n}_{kind}=long")
        assert report["matched"] == 6 and report["samples_without"] == 0, (on, kind, report)
        c = ds.column(f"c{n}_{kind}")
        assert c.kind == "captions" and c[IDS] == [[f"long, \"{i}\"\nline é"] for i in IDS]
    os.remove("t.jsonl")

# One url of several samples: all get the row. One key of several is refused, as are repeated rows.
twice = dataset("twice", same_url=True)
table("u.jsonl", [{"url": "http://x/0", "c": "same"}])
assert run("twice", "u.jsonl", "--on", "url", "--as", "c")["samples_without"] == 0
assert twice.column("c")[IDS] == [["same"]] * 6
table("r.jsonl", [{"id": 1, "c": "a"}, {"id": 2, "c": "b"}, {"id": 1, "c": ["c", "d"]}])
refused(65, "row 0 at byte 0 and row 2 at byte 40 both belong to sample 1 (1 such rows); pass --first", "r.jsonl", "--as", "x=c")
for how, want in (("--first", ["a"]), ("--last", ["c", "d"]), ("--all", ["a", "c", "d"])):
    assert run("d", "r.jsonl", "--as", "r=c", "--replace", how)["repeated"] == 1
    assert ds.column("r")[1] == want and ds.column("r")[2] == ["b"]

# Captions with weights, of several columns; a sample without text has none.
table("w.jsonl", [{"id": 0, "a": {"text": "A", "weight": 0.25}, "b": ["B", None, ""]}, {"id": 1, "a": "", "b": None},
                  {"id": 2, "a": None, "b": "only b"}])
assert run("d", "w.jsonl", "--as", "w=a,b")["columns"][0]["rows"] == 2
w = ds.column("w")
assert w.captions(0) == [("A", 0.25, 0), ("B", 1.0, 1)] and w.captions(2) == [("only b", 1.0, 1)] and 1 not in w

# Numbers, vectors, texts, JSON.
table("n.jsonl", [{"id": i, "s": i / 4, "v": [i, 0.5], "i": i << 40, "j": {"a": [i]}, "t": f"t{i}"} for i in IDS[1:]])
run("d", "n.jsonl", "--as", "s", "--as", "v:f16", "--as", "i:i64", "--as", "j", "--as", "t:text", "--as", "s64:f64=s")
assert ds.column("s")[[1, 100]].tolist() == [0.25, 25] and ds.column("s64").kind == "f64"
assert ds.column("v").values.dtype == "f2" and ds.column("v")[2].tolist() == [2, 0.5]
assert ds.column("i")[70000] == 70000 << 40 and ds.column("j")[5] == {"a": [5]} and ds.column("t")[[1, 2]] == ["t1", "t2"]
assert run("d", table("n.csv", ["id,s", "1,2.5", "2,", "5,nan"]), "--as", "n:f32=s")["columns"][0]["rows"] == 2
assert numpy.isnan(ds.column("n")[5]) and 2 not in ds.column("n")

# Arrays: .npy by row, .npz and safetensors with ids of their own; bf16, i8, several vectors of a sample.
for kind, dtype in attach.DTYPES.items():
    if kind == "bf16":
        continue
    values = (numpy.arange(70001 * 3) % 100).reshape(70001, 3).astype(dtype)
    numpy.save("a.npy", values)
    report = run("d", "a.npy", "--as", f"a_{kind}")
    assert report["matched"] == 6 and report["unmatched"] == 69995 and report["columns"][0]["kind"] == kind
    assert (ds.column(f"a_{kind}")[IDS] == values[IDS]).all()
few = numpy.arange(24, dtype="f4").reshape(2, 3, 4)
numpy.savez("z.npz", ids=numpy.array([5, 1]), e=few)
assert run("d", "z.npz", "--on", "id=ids", "--as", "z=e")["columns"][0]["shape"] == [3, 4]
assert (ds.column("z")[[1, 5]] == few[::-1]).all() and 0 not in ds.column("z")


def safetensors(path, items):
    header, data = {}, b""
    for name, (dtype, shape, blob) in items.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


bf16 = numpy.array([[1.5, -2]] * 2, "f4").view("<u4") >> 16
safetensors("b.safetensors", {"ids": ("I64", [2], numpy.array([2, 0]).tobytes()),
                              "e": ("BF16", [2, 2], bf16.astype("u2").tobytes())})
run("d", "b.safetensors", "--on", "id=ids", "--as", "b=e")
assert ds.column("b").kind == "bf16" and ds.column("b")[[0, 2]].tolist() == [[1.5, -2]] * 2

# Rows in the order of samples need their ids, which another file may have.
numpy.save("e.images.npy", numpy.arange(12, dtype="f4").reshape(6, 2))
numpy.save("e.ids.npy", numpy.array(IDS, "u8"))
refused(65, "has a row for each of 6 samples, but their ids go up to 70000: pass their ids", "e.images.npy", "--as", "x")
run("d", "e.images.npy", "--on", "id=e.ids.npy", "--as", "e")
assert ds.column("e")[IDS].tolist() == numpy.arange(12.0).reshape(6, 2).tolist()

# Dataset.attach.
ds.attach("py", IDS[::-1], numpy.arange(6, dtype="i8"))
assert ds.column("py")[IDS].tolist() == [5, 4, 3, 2, 1, 0] and isinstance(ds.column("py").values, numpy.memmap)
ds.attach("texts", [1, 0], [["a", "b"], []])
assert ds.column("texts")[1] == ["a", "b"]
for error, ids, values in ((ccstream.UsageError, [1, 1], [1.0, 2.0]), (ccstream.NotFoundError, [3], [1.0]),
                           (ccstream.UsageError, [1], [1.0, 2.0]), (ccstream.UsageError, [1], [1j]),
                           (ccstream.UsageError, [-1], [1.0])):
    try:
        ds.attach("x", ids, numpy.asarray(values))
    except error:
        pass
    else:
        raise AssertionError((ids, values))
    assert "x" not in ds.columns
try:
    ds.attach("py", [1], numpy.ones(1))
except ccstream.ExistsError:
    pass
ds.detach("py")
assert "py" not in ds.columns and ds.columns == sorted(ds.columns)
try:
    ds.column("s")[[0, 1]]
except LookupError as e:
    assert "sample 0 has no value in column 's'" in str(e)

# Ids of samples that were removed are rows without a sample, and a column that has only them is refused.
gone = dataset("gone")
with open("ids.txt", "w") as f:
    f.write("2\n5\n")
subprocess.run([os.path.join(os.environ["BIN"], "ccpack"), "remove", "gone", "--ids", "ids.txt", "-q"], check=True)
report = run("gone", table("g.jsonl", [{"id": i, "s": i} for i in IDS]), "--as", "s")
assert (report["matched"], report["unmatched"], report["unmatched_keys"]) == (4, 2, ["2", "5"]), report
got = run("gone", table("g.jsonl", [{"id": 2, "s": 1}]), "--as", "t")
assert got[0] == 66 and "no row matches a sample" in got[1], got
try:
    ccstream.Dataset("gone").attach("u", [1, 2], numpy.ones(2))
except ccstream.NotFoundError:
    pass
else:
    raise AssertionError("the id of a removed sample")

# A batch has columns of numbers; a mix has those of each dataset.
other = dataset("other")
ds.attach("w", [0, 5], numpy.array([0.5, 2], "f4"), replace=True)
other.attach("w", IDS, numpy.arange(6, dtype="f4"))
for data, offset in (([ds], 0), ([ds, other], ds.id_space)):
    seen = 0
    with ccstream.DataLoader(data, batch_size=3, image_size=8, drop_last=False, columns=["w"], captions=False, num_threads=1) as dl:
        for batch in dl:
            for id, value, there in zip(numpy.asarray(batch["id"]), batch.columns["w"], batch.present["w"]):
                own = id < ds.id_space
                want = {0: 0.5, 5: 2.0}.get(int(id)) if own else float(IDS.index(id - offset))
                assert there == (want is not None) and value == (want or 0), (id, value, there)
                seen += 1
    assert seen == 6 * len(data)
for name, error in (("long", ccstream.NotFoundError), ("t", ccstream.UsageError)):
    try:
        ccstream.DataLoader(ds, columns=[name])
    except error:
        pass
    else:
        raise AssertionError(name)

# Captions by weight, the same on any threads and ranks; a sample without any shows its own.
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "caption", "own", "long", "short", "no", "one", "two"]
with open("vocab.txt", "w") as f:
    f.write("\n".join(words))
many = list(range(400))
with ccstream.Writer("many", check=False) as w:
    for i in many:
        w.add(PNG, ["own"], id=i)
drawn = ccstream.Dataset("many")
table("m.jsonl", [{"id": i, "long": [{"text": "one", "weight": 3}, {"text": "two", "weight": 1}, {"text": "no", "weight": 0}],
                   "short": "short"} if i >= 100 else {"id": i, "short": "short"} for i in many if i >= 50])
assert isinstance(run("many", "m.jsonl", "--as", "long", "--as", "short"), dict)


def captions(threads, world=1, text="raw:1,long:2", seed=0, epochs=1, batch=80):
    seen = {}
    for rank in range(world):
        with ccstream.DataLoader("many", batch_size=batch, image_size=8, seed=seed, tokenizer="vocab.txt", num_threads=threads, rank=rank,
                                 world_size=world, max_tokens=6, caption_columns=text) as dl:
            for epoch in range(epochs):
                for b in dl:
                    for id, tokens in zip(numpy.asarray(b["id"]), numpy.asarray(b["tokens"])):
                        seen[epoch, int(id)] = words[tokens[1]]
    return seen


# Several texts of a sample in every step: row k has column k where the sample has it.
with ccstream.DataLoader("many", batch_size=80, image_size=8, tokenizer="vocab.txt", max_tokens=6, positives=2, caption_columns="raw+short") as dl:
    for b in dl:
        pairs = [(int(id), words[tokens[1]]) for id, tokens in zip(numpy.asarray(b["id"]), numpy.asarray(b["tokens"]))]
        for (a, first), (c, second) in zip(pairs[::2], pairs[1::2]):
            assert a == c and first == "own" and second == ("short" if a >= 50 else "own"), (a, first, second)
seen = captions(1, epochs=4)
assert seen == captions(3, world=2, epochs=4) and seen != captions(1, seed=1, epochs=4)
count = {word: sum(v == word for (_, i), v in seen.items() if i >= 100) / 1200 for word in words}
assert abs(count["own"] - 1 / 3) < 0.05 and abs(count["one"] - 0.5) < 0.05 and abs(count["two"] - 1 / 6) < 0.05 and count["no"] == 0, count
assert all(v == "own" for (_, i), v in seen.items() if i < 100)
assert {v for (_, i), v in captions(1, text="short").items()} == {"own", "short"}
assert captions(1, text="raw") == {k: "own" for k in captions(1)}
with ccstream.DataLoader("many", batch_size=80, image_size=8, tokenizer="vocab.txt", caption_columns="raw,long") as dl:
    state = dl.state_dict()
for text, error in (("long:0", ccstream.UsageError), ("long:x", ccstream.UsageError), ("", ccstream.UsageError), ("long:1:2", ccstream.UsageError),
                    ("nothing", ccstream.NotFoundError), ("raw,raw,raw,raw,raw,raw,raw,raw,raw", ccstream.LimitError),
                    ("raw+short", ccstream.UsageError), ("raw+short:2", ccstream.UsageError), ("raw:1", ccstream.MismatchError)):
    try:
        with ccstream.DataLoader("many", batch_size=80, image_size=8, tokenizer="vocab.txt", caption_columns=text) as dl:
            dl.load_state_dict(state)
    except error:
        pass
    else:
        raise AssertionError(text)

# One sentence of a long caption beside the sample's own, in every step.
table("sentences.jsonl", [{"id": i, "text": "One. Two. One two."} for i in many if i % 2 == 0])
assert run("many", "sentences.jsonl", "--as", "sentence:sentences=text")["columns"][0]["rows"] == 200
with ccstream.DataLoader("many", batch_size=80, image_size=8, tokenizer="vocab.txt", max_tokens=6, positives=2, caption_columns="raw+sentence") as dl:
    seen_texts = set()
    for b in dl:
        texts = [(int(id), tuple(words[t] for t in tokens[1:3])) for id, tokens in zip(numpy.asarray(b["id"]), numpy.asarray(b["tokens"]))]
        for (a, first), (c, second) in zip(texts[::2], texts[1::2]):
            assert a == c and first[0] == "own" and (second[0] == "own" if a % 2 else second[0] in ("one", "two")), (a, first, second)
            seen_texts.add(second if a % 2 == 0 else ())
    assert len(seen_texts) == 4, seen_texts

# A column that is replaced stays as it was opened, also where nothing of it was read yet.
old, unread = ds.column("s"), ds.column("s")
first = old[1]
run("d", table("s.jsonl", [{"id": 1, "s": 9}]), "--as", "s", "--replace")
assert old[1] == first and ds.column("s")[1] == 9
assert unread[1] == first and len(unread.values) == len(unread.ids) == unread.rows == 5

# Consecutive samples are a view of the file, which cannot be written to; others are a copy.
run_of = ds.column("e")[IDS[:3]]
assert run_of.base is not None and not run_of.flags.writeable and ds.column("e")[[0, 2]].flags.writeable
assert run_of.tolist() == ds.column("e")[[0, 1, 2]].tolist() == [[0, 1], [2, 3], [4, 5]] and ds.column("e")[[2, 1]].tolist() == [[4, 5], [2, 3]]

# Writer: values with the samples; what is refused leaves the writer as it was.
with ccstream.Writer("made", check=False) as w:
    for i in range(10):
        values = {"long": [f"a{i}", ccstream.Caption("b", 2.0, 1)], "note": f"n{i}"} if i % 2 else {"long": []}
        assert w.add(PNG, ["c"], columns={"t": numpy.full(3, i, "f2"), "q": i / 4, **values}) == i
    for bad in ({"t": numpy.zeros(4, "f2")}, {"t": numpy.zeros(3, "f4")}, {"q": None}, {"q": "x"}, {"X": 1}, {"q": (1 << 40) + 1}, {"z": True},
                {"z": [[1], [1, 2]]}, {"z": [ccstream.Caption("a", 0.0, 0)]}, {"z": [ccstream.Caption("a", float("nan"), 0)]},
                {"z": ["a"] * 1025}, {"z": numpy.zeros(40000)}, {"z": {"a": 1}}):
        try:
            w.add(PNG, ["c"], columns=bad)
        except ccstream.UsageError:
            pass
        else:
            raise AssertionError(bad)
made = ccstream.Dataset("made")
assert len(made) == 10 and made.columns == ["long", "note", "q", "t"]
assert made.column("t").kind == "f16" and made.column("t")[range(10)].tolist() == [[i] * 3 for i in range(10)]
assert made.column("q").kind == "f32" and made.column("q")[9] == 2.25 and made.column("note")[3] == "n3" and 2 not in made.column("note")
assert made.column("long").captions(3) == [("a3", 1.0, 0), ("b", 2.0, 1)] and made.column("long").ids.tolist() == [1, 3, 5, 7, 9]
with ccstream.Writer("made", check=False, append=True) as w:
    try:
        w.add(PNG, ["c"], columns={"t": 1.0})
    except ccstream.UsageError as e:
        assert "a value is f32, earlier values are f16[3]" in str(e)
    w.add(PNG, ["c"], columns={"t": numpy.full(3, 77, "f2"), "new": 1})
    w.publish()
    w.add(PNG, ["c"], columns={"t": numpy.full(3, 78, "f2"), "long": ["z"]})
made = ccstream.Dataset("made")
assert made.column("t")[[9, 10, 11]].tolist() == [[9] * 3, [77] * 3, [78] * 3] and made.column("long")[[9, 11]] == [["a9", "b"], ["z"]]
assert made.column("new").ids.tolist() == [10] and len(made) == 12
subprocess.run([os.path.join(os.environ["BIN"], "ccdump"), "verify", "made"], check=True, stdout=subprocess.DEVNULL)
with ccstream.Writer("made", check=False, overwrite=True) as w:
    w.add(PNG, ["c"], columns={"t": 5})
made = ccstream.Dataset("made")
assert made.columns == ["t"] and made.column("t")[0] == 5

# What is refused: nothing is written, and the message has the row and the byte.
good = {"id": 0, "c": "ok", "v": [1, 2]}
line = len(json.dumps(good)) + 1
for bad, text in ((3, "not a text"), ([3], "not a text"), ({"text": 1}, "not a text"),
                  ({"text": "a", "weight": -1}, "a weight must"), ([{"text": "a", "weight": 0}] * 2, "all weights are 0"), ("\ud800", "not UTF-8"),
                  (["a"] * 1025, "more than 1,024 captions"), ("x" * (4 << 20), "the texts of a sample exceed")):
    kind = "text" if bad == 3 else "captions"
    refused(65, f"t.jsonl: line 2, byte {line}: 'c': {text}", table("t.jsonl", [good, {"id": 1, "c": bad}]), "--as", f"x:{kind}=c")
for bad in ("NaN", "Infinity", "1e400", "-0.5", '"1"', "true"):
    table("t.jsonl", [good, '{"id": 1, "c": {"text": "a", "weight": %s}}' % bad])
    refused(65, f"line 2, byte {line}: 'c': a weight must", "t.jsonl", "--as", "x:captions=c")
refused(65, f"line 2, byte {line}: 'c': a text contains a NUL character", table("t.jsonl", [good, {"id": 1, "c": "a\0b"}]), "--as", "x=c")
# Weights are those of a sample: 0 in one of its columns or rows is right where another has more.
zero, one = {"text": "a", "weight": 0}, {"text": "b", "weight": 1}
assert run("d", table("t.jsonl", [{"id": 1, "p": zero, "q": one}]), "--as", "zz=p,q")["columns"][0]["rows"] == 1
assert ds.column("zz").captions(1) == [("a", 0, 0), ("b", 1, 1)]
refused(65, "line 1, byte 0: 'p': all weights are 0", table("t.jsonl", [{"id": 1, "p": zero, "q": zero}]), "--as", "x=p,q")
assert run("d", table("t.jsonl", [{"id": 1, "p": zero}, {"id": 1, "p": one}]), "--as", "zz=p", "--all", "--replace")["repeated"] == 1
refused(65, "all weights are 0", table("t.jsonl", [{"id": 1, "p": zero}, {"id": 1, "p": zero}]), "--as", "x=p", "--all")
for bad, text in (([1], "1 numbers; other rows have 2"), ([1, 2, 3], "3 numbers"), (["a", 1], "not a number"), (True, "not a number"),
                  ([True, 1], "not a number")):
    refused(65, f"line 2, byte {line}: 'v': {text}", table("t.jsonl", [good, {"id": 1, "v": bad}]), "--as", "x=v")
refused(65, f"byte {line}: 'v': out of range of i8", table("t.jsonl", [good, {"id": 1, "v": [1, 300]}]), "--as", "x:i8=v")
refused(65, f"byte {line}: 'v': out of range of i64", table("t.jsonl", [good, {"id": 1, "v": [1, 1.5]}]), "--as", "x:i64=v")
refused(65, f"byte {line}: not JSON", table("t.jsonl", [good, "{"]), "--as", "x=c")
refused(65, f"byte {line}: not a JSON object", table("t.jsonl", [good, "[1]"]), "--as", "x=c")
refused(65, f"byte {line}: 'id' is missing", table("t.jsonl", [good, {"c": "a"}]), "--as", "x=c")
refused(65, "'id' is not an id: \"k1\"", table("t.jsonl", [good, {"id": "k1"}]), "--as", "x=c")
refused(65, "'id' is not an id: -1", table("t.jsonl", [good, {"id": -1}]), "--as", "x=c")
refused(65, "'k' is not a text: 5", table("t.jsonl", [{"k": 5, "c": "a"}]), "--on", "key=k", "--as", "x=c")
refused(66, "the table's keys are zz, the dataset's k0", table("t.jsonl", [{"k": "zz", "c": "a"}]), "--on", "key=k", "--as", "x=c")
refused(66, "no sample has a 'nope'", table("t.jsonl", [{"nope": "zz"}]), "--on", "meta.nope", "--as", "x=c")
refused(65, "no row that matches a sample has a 'zzz'", table("t.jsonl", [good]), "--as", "x=zzz")
got = run("http://127.0.0.1:9/d", "t.jsonl", "--as", "x=c")
assert got[0] == 64 and "a remote dataset is read-only: attach to the folder" in got[1], got
refused(64, "there is no kind 'f99'", "t.jsonl", "--as", "x:f99=c")
refused(64, "is not a valid column name", "t.jsonl", "--as", "X=c")
refused(64, "two --as options have the same name", "t.jsonl", "--as", "x=c", "--as", "x=v")
refused(64, "--all is for captions only", "t.jsonl", "--as", "x=v", "--all")
refused(64, "is .jsonl, .csv, .tsv, .parquet, .npy, .npz or .safetensors", "t.xml", "--as", "x=c")
refused(66, "No such file", "nothing.jsonl", "--as", "x=c")
refused(65, "t.csv: 2 columns are named 'c': rename all but one", table("t.csv", ["id,c,c", "1,a,b"]), "--as", "x=c")
refused(65, "t.csv: 2 columns are named 'id'", table("t.csv", ["id,id,c", "1,2,b"]), "--as", "x=c")
assert run("d", table("t.csv", ["id,c,u,u", "1,a,b,b"]), "--as", "unused_twice=c")["matched"] == 1
refused(66, "t.jsonl: has no rows", table("t.jsonl", []), "--as", "x=c")
refused(66, "t.csv: has no rows", table("t.csv", ["id,c"]), "--as", "x=c")
refused(65, "t.csv: has no header row", table("t.csv", []), "--as", "x=c")
refused(65, "line 3, byte 9: 1 fields, the header row has 2", table("t.csv", ["id,c", "1,a", "2"]), "--as", "x=c")
refused(65, "line 2, byte 5", table("t.csv", ["id,c", '1,"open', "2,b"]), "--as", "x=c")
with open("t.csv", "wb") as f:
    f.write(b"id,c\n1,\xff\n")
refused(65, "line 2, byte 5", "t.csv", "--as", "x=c")
numpy.save("v.npy", numpy.zeros((70001, 4), "f4"))
with open("v.npy", "rb") as f:
    blob = f.read()
with open("short.npy", "wb") as f:
    f.write(blob[:-5])
refused(65, "short.npy", "short.npy", "--as", "x")
refused(64, "arrays are joined --on id", "v.npy", "--on", "key", "--as", "x")
refused(64, "is f32, not f16", "v.npy", "--as", "x:f16")
numpy.save("c.npy", numpy.zeros((4, 2), "c8"))
refused(64, "no column kind stores complex64", "c.npy", "--as", "x")
safetensors("short.safetensors", {"e": ("F32", [2, 2], b"\0" * 15)})
refused(65, "'e' does not have the size of its shape", "short.safetensors", "--as", "x=e")
with open("cut.safetensors", "wb") as f:
    f.write((1 << 40).to_bytes(8, "little"))
refused(65, "not a safetensors file", "cut.safetensors", "--as", "x=e")
refused(64, "has no array 'q'", "z.npz", "--on", "id=ids", "--as", "x=q")
numpy.save("wide.npy", numpy.zeros((2, 40000), "f4"))
refused(65, "at most 131072 bytes", "wide.npy", "--as", "x")

# A full disk at any byte of the file: nothing has changed.
table("big.jsonl", [{"id": i, "c": os.urandom(3000).hex()} for i in IDS])
code = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, ({n}, {n}));" \
       "import sys; sys.argv = ['', 'attach', 'd', 'big.jsonl', '--as', 'x=c']; from ccstream.attach import main; main()"
for n in (0, 1, 1000, 18000, 18100, 18500):
    p = subprocess.run([sys.executable, "-c", code.format(n=n)], capture_output=True, text=True)
    assert p.returncode == 74 and "x.ccc" in p.stderr, (n, p)
    assert "x" not in ds.columns and not [f for f in os.listdir("d/columns") if f.endswith(".tmp")]
assert run("d", "big.jsonl", "--as", "x=c")["columns"][0]["rows"] == 6
