"""parquet_pack.py BIN MAKE: makes the Parquet samples of MAKE with URLs of a server on loopback, and lets ccpack read
all of them: lists by `fetch`, files with images by packing, features by `attach`. Every column is rebuilt from what
ccdump and the Python package find in the datasets, and must have the SHA-256 of expected.jsonl. Values of rejected rows
are taken from the file, where they must be null or empty. A NaN is kept as null, a caption without spaces around it."""
import importlib.util
import json
import math
import socket
import subprocess
import sys
import tarfile
import threading

import pyarrow as pa
import pyarrow.parquet as pq

BIN = sys.argv[1]
spec = importlib.util.spec_from_file_location("make", sys.argv[2])
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def answer(connection):
    with connection, connection.makefile("rb") as requests:
        while line := requests.readline():
            name = line.split()[1].split(b"/")[1]
            while requests.readline() != b"\r\n":
                pass
            body = make.png(int(name)) if name.isdigit() else b""  # else it is robots.txt
            connection.sendall(b"HTTP/1.1 %d .\r\nContent-Length: %d\r\n\r\n" % (200 if body else 404, len(body)) + body)


def serve():
    while True:
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()


server = socket.create_server(("127.0.0.1", 0), backlog=64)
threading.Thread(target=serve, daemon=True).start()
make.url = lambda i: f"http://127.0.0.1:{server.getsockname()[1]}/{i:06d}/picture%20{i}.png?w=640&h={i % 5}"
sys.argv[1:] = ["here"]
make.main()
expected = {e["name"]: e for e in map(json.loads, open("here/expected.jsonl"))}
tables = {name: pq.read_table(f"here/{name}.parquet") for name in expected}
compared = {name: set() for name in expected}
FETCH = ["--allow-private", "--rate-per-host", "0", "--per-host", "8"]


def ccpack(*words, code=0):
    p = subprocess.run([f"{BIN}/ccpack", *words], capture_output=True, text=True)
    assert p.returncode == code, (words, p.returncode, p.stderr)
    return p.stderr


def samples(folder):
    """id -> (key, captions, metadata, image)"""
    rows = [json.loads(line) for line in
            subprocess.run([f"{BIN}/ccdump", "ls", "--json", folder], capture_output=True, check=True).stdout.splitlines()]
    p = subprocess.Popen([f"{BIN}/ccdump", "cat", "-q", folder], stdout=subprocess.PIPE)
    members = {}
    with tarfile.open(fileobj=p.stdout, mode="r|") as tar:
        for m in tar:
            key, end = m.name.split(".", 1)
            members.setdefault(key, {})[end] = tar.extractfile(m).read()
    assert p.wait() == 0 and len(members) == len(rows)
    out = {}
    for row, (key, m) in zip(rows, members.items()): # both in the order of ids
        texts = [m["txt"]] + [m[f"{k}.txt"] for k in range(1, sum(e.endswith(".txt") for e in m) + 1)]
        assert row["captions"] == [t.decode() for t in texts]
        out[row["id"]] = (key, row["captions"], json.loads(m.get("json", b"{}")), m["png"])
    return out


def compare(name, column, value_of, found):
    """value_of(sample): its value in the column"""
    there = tables[name][column].to_pylist()
    values = [value_of(found[i]) if i in found else v for i, v in enumerate(there)]
    kind = tables[name][column].type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    for i, v in enumerate(there):
        nan = isinstance(v, float) and math.isnan(v) and values[i] is None
        trimmed = isinstance(v, str) and isinstance(values[i], str) and v.strip() == values[i]
        values[i] = v if nan or trimmed else values[i]
    if pa.types.is_integer(kind):
        values = [v if v is None else int(v) for v in values] # texts beyond 2^53
    assert make.digest(pa.chunked_array([pa.array(values, kind)])) == expected[name]["sha256"][column], (name, column)
    compared[name].add(column)


def columns(name, folder, caption, errors, image=None):
    """Compares the caption, all metadata and the image; what is neither must be named as not kept."""
    table, found = tables[name], samples(folder)
    texts = table[caption].to_pylist()
    images = table[image].to_pylist() if image else [1] * len(texts)
    usable = {i for i in range(len(texts)) if texts[i] and images[i] is not None}
    assert set(found) == usable, (name, set(found) ^ usable)
    is_list = not pa.types.is_string(table[caption].type) and not pa.types.is_large_string(table[caption].type)
    compare(name, caption, lambda s: s[1] if is_list else s[1][0], found)
    for column in table.column_names:
        if column == image:
            struct = pa.types.is_struct(table[image].type)
            compare(name, column, lambda s: {"bytes": s[3], "path": s[0] + ".png"} if struct else s[3], found)
        elif column != caption and f"'{column}'" in errors.split("not kept: ")[-1] and "not kept: " in errors:
            assert pa.types.is_nested(table[column].type) or column == "jpg", (name, column)
        elif column != caption:
            compare(name, column, lambda s, c=column: s[2][c], found)


for name in expected:
    file = f"here/{name}.parquet"
    if name == "empty":
        for command in ([], ["fetch"]):
            assert "no images" in ccpack(*command, "-o", "d-empty", file, code=65)
        compared[name].update(tables[name].column_names)
    elif "url" in tables[name].column_names:
        caption = {"datacomp-meta": "text", "recaption": "re_caption"}.get(name, "caption")
        errors = ccpack("fetch", "-o", f"f-{name}", "--caption-column", caption, *FETCH, file)
        columns(name, f"f-{name}", caption, errors)
    if name in ("img2dataset-images", "hf-image-struct", "hf-list-captions", "large-types"):
        for caption in {"large-types": ("caption", "captions")}.get(name, ("captions",) if "list" in name else ("caption",)):
            errors = ccpack("-o", f"p-{name}-{caption}", "--caption-column", caption, "--max-bad", "100%", file)
            columns(name, f"p-{name}-{caption}", caption, errors, "jpg" if name == "img2dataset-images" else "image")
ccpack("fetch", "-o", "f-lists", "--caption-column", "captions", *FETCH, "here/pages-v2-delta.parquet")
columns("pages-v2-delta", "f-lists", "captions", "")

try:
    import ccstream # needs NumPy
except ImportError as e:
    print(f"without attach: {e}")
    sys.exit(0)
ccpack("attach", "-q", "f-datacomp-meta", "here/features.parquet", "--on", "uid",
       *(w for c in ("image_emb:f32", "text_emb:f16", "score:f64", "l14:f16") for w in ("--as", c)))
ccpack("attach", "-q", "f-datacomp-meta", "here/datacomp-meta.parquet", "--on", "uid", "--as", "face_bboxes:json")
dataset = ccstream.Dataset("f-datacomp-meta")
uids = {i: s[2]["uid"] for i, s in samples("f-datacomp-meta").items()}
for name, names in (("features", ("image_emb", "text_emb", "score", "l14")), ("datacomp-meta", ("face_bboxes",))):
    for column in names:
        found = {}
        for i, uid in uids.items():
            values = dataset.column(column)[i] if i in dataset.column(column) else None
            at = tables[name]["uid"].to_pylist().index(uid)
            many = values is not None and pa.types.is_nested(tables[name][column].type)
            found[at] = values if column == "face_bboxes" else \
                values.reshape(-1).tolist() if many else None if values is None else float(values.reshape(-1)[0])
        compare(name, column, lambda v: v, found)
compare("features", "uid", lambda v: v, {i: tables["features"]["uid"][i].as_py() for i in range(250)})
for name, names in compared.items():
    missing = set(tables[name].column_names) - names - {"sentids", "objects", "uid_raw"}
    assert not missing, (name, missing)
print(f"{len(compared)} files, {sum(map(len, compared.values()))} columns")
assert len(compared) == 16
