# What Python reads for ccpack attach and ccstream-eval suite, made by a stranger: an error within bounded memory and time, never a
# traceback, a file from elsewhere, or a control character on the terminal.
. "$SRC/tests/support/cli.sh"
[ -f "$BIN/../python/ccstream/attach.py" ] || { echo "skipped: the Python package is not built"; exit 77; }
[ -z "${CCS_SANITIZE:-}" ] || { echo "skipped: sanitizers need more memory"; exit 77; }
python=$(sed -n '1s/^#!//p' "$BIN/ccstudy")
"$python" -c "import numpy" 2>err.txt || { echo "skipped: no NumPy"; exit 77; }
refused() { # refused COMMAND...: with a clean message, within 1.5 GB and 20 s
    code=0
    (ulimit -v 1500000 && export OPENBLAS_NUM_THREADS=1 && timeout 20 "$@") >out.txt 2>err.txt </dev/null || code=$?
    case $code in 64 | 65 | 66 | 71) ;; *) tail -c 600 err.txt; fail "exit code $code: $*" ;; esac
    hasnt err.txt Traceback
    ! LC_ALL=C grep -qaP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]' out.txt err.txt || fail "control characters: $*"
}
"$TESTBIN/make_scenes" val 4 1 32 all.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d all.tar
cat >make.py <<'PYTHON'
import io, json, os, struct, sys, zipfile
import numpy
X = "\x1b]0;own\x07\u009b2J\u202eevil"
def put(name, data):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    open(name, "wb").write(data if isinstance(data, bytes) else data.encode())
row = '{"id":0,"v":1'
put("deep.jsonl", row + ',"x":' + "[" * 200000 + "]" * 200000 + "}\n")
put("many.jsonl", row + ',"x":[' + "{}," * 3000000 + "{}]}\n")
put("long.jsonl", b"")
os.truncate("long.jsonl", 6 << 30)
put("digits.jsonl", '{"id":"' + "9" * 5000 + '","v":1}\n')
put("number.jsonl", '{"id":0,"v":1' + "0" * 400 + "}\n")
put("names.jsonl", json.dumps({"id": X, "v": 1}, ensure_ascii=False) + "\n")
put("keys.jsonl", json.dumps({"id": 99, "v": 1, X: X}, ensure_ascii=False) + "\n")
put("long.csv", "id,v\n0," + "1," * (12 << 20) + "\n")
put("quote.csv", 'id,v\n0,"' + "1\n" * (8 << 20))
put("names.csv", f"id,{X}\n0,1\n")
def st(name, header, tail=bytes(16)):
    header = header if isinstance(header, bytes) else json.dumps(header, ensure_ascii=False).encode()
    put(name, struct.pack("<Q", len(header)) + header + tail)
st("list.safetensors", [])
st("text.safetensors", {"v": "x"})
st("minus.safetensors", {"v": {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}})
st("real.safetensors", {"v": {"dtype": "F32", "shape": [4.0], "data_offsets": [0, 16]}})
st("names.safetensors", {X: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})
st("deep.safetensors", b"[" * 1000000)
st("many.safetensors", b'{"v":[' + b"[]," * 4000000 + b"[]]}")
put("size.safetensors", struct.pack("<Q", 1 << 62) + b"{}")
put("half.npz", b"PK\3\4" + bytes(100))
def npy(shape, dtype="<f4", data=b""):
    head = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(118)[:117] + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data
put("large.npy", npy((1 << 60,)))
put("object.npy", npy((4,), "|O", b"cos\nsystem\n(S'touch owned'\ntR."))
with zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED) as z:
    with z.open("v.npy", "w", force_zip64=True) as f:
        f.write(npy((9 << 30,), "|u1"))
        for _ in range(36):
            f.write(bytes(256 << 20) if len(sys.argv) > 1 else bytes(1 << 20))
with zipfile.ZipFile("bad.npz", "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("v.npy", npy((4,), data=bytes(16)))
data = bytearray(open("bad.npz", "rb").read())
data[50:60] = b"\xff" * 10
put("bad.npz", bytes(data))

# Sets: each is wrong in one way.
def folder(name, **files):
    good = {"test/nshards.txt": "1", "test/0.tar": bytes(10240), "classnames.txt": "a\nb\n",
            "zeroshot_classification_templates.txt": "a {c}\n"}
    for file, data in {**good, **files}.items():
        if data is not None:
            put(f"sets-{name}/wds_x/{file}", data)
folder("escapes", **{"zeroshot_classification_templates.txt": X + "\n"})
folder("product", **{"classnames.txt": "c" * 60000 + "\n", "zeroshot_classification_templates.txt": "{c}" * 20000 + "\n"})
folder("names", **{"classnames.txt": "name\n" * 100000, "zeroshot_classification_templates.txt": "a {c}\n" * 100000})
folder("shards", **{"test/nshards.txt": "9" * 5000})
folder("pipe", **{"classnames.txt": None})
os.mkfifo("sets-pipe/wds_x/classnames.txt")
folder("link", **{"classnames.txt": None})
put("outside/secret.txt", "a secret\n")
os.symlink(os.path.abspath("outside/secret.txt"), "sets-link/wds_x/classnames.txt")
os.makedirs("sets-linked")
os.symlink(os.path.abspath("sets-names/wds_x"), "sets-linked/wds_x")
for name, text in (("deep", "[" * 100000), ("classes", '{"classes":{"a":1}}'), ("texts", '{"classes":[1]}'), ("many", '{"x":[' + "{}," * 2000000 + "{}]}")):
    put(f"sets-json-{name}/x/dataset.json", text)
put("sets-instances/x/instances.jsonl", json.dumps({"cue": X, "candidates": ["../../outside/secret.txt"], "associations": ["../../outside/secret.txt"]}) + "\n")
os.makedirs("sets-name/wds_" + X)
put("sets-name/wds_" + X + "/test/nshards.txt", "x")
PYTHON
"$python" make.py
for table in deep.jsonl many.jsonl long.jsonl digits.jsonl number.jsonl names.jsonl keys.jsonl long.csv quote.csv names.csv list.safetensors text.safetensors \
    minus.safetensors real.safetensors names.safetensors deep.safetensors many.safetensors size.safetensors half.npz large.npy object.npy bomb.npz bad.npz; do
    refused "$BIN/ccpack" attach d $table --as v:f32
done
[ ! -e owned ] || fail "a pickle was run"

for sets in sets-*; do
    refused "$BIN/ccstream-eval" suite nowhere --sets "$sets" -o out
    hasnt err.txt "a secret"
done
# With the user's leave a link is followed, as the cache of the Hub needs it.
code=0
"$BIN/ccstream-eval" suite nowhere --sets sets-link -o out --follow-links >out.txt 2>err.txt || code=$?
has err.txt "nowhere: neither a checkpoint nor"

# Numbers of images in tars: sparse members, archives in the place of arrays, shapes larger than their bytes.
cat >meta.py <<'PYTHON'
import io, os, sys, tarfile
sys.path[:0] = [sys.argv[1] + "/ccstream", sys.argv[1]]
import studies.study as study, studies.suite as suite
from pathlib import Path
import numpy, struct
def npy(shape, dtype="<f4", data=b""):
    head = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode().ljust(118)[:117] + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data
def tar(name, data, sparse=0):
    with tarfile.open(name, "w") as t:
        info = tarfile.TarInfo("0.npy")
        info.size = len(data)
        if sparse: # GNU's: one block of data at the end of a large hole
            info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "0.npy", "GNU.sparse.size": str(sparse),
                                "GNU.sparse.map": f"{sparse - len(data)},{len(data)}"}
        t.addfile(info, io.BytesIO(data))
    return Path(name)
good = io.BytesIO(); numpy.save(good, numpy.arange(3))
archive = open("../bad.npz", "rb").read()
for name, data, sparse in (("sparse.tar", bytes(512), 1 << 40), ("zip.tar", archive, 0), ("large.tar", npy((1 << 40,)), 0),
                           ("minus.tar", npy((-1, -4), data=bytes(16)), 0), ("object.tar", npy((4,), "|O", bytes(64)), 0), ("empty.tar", b"", 0)):
    try:
        suite.read_meta([tar(name, data, sparse)], [0], 1)
        sys.exit(f"{name} was read")
    except study.DataError as e:
        print(name, e)
assert suite.read_meta([tar("good.tar", good.getvalue())], [0], 3).tolist() == [[0, 1, 2]]
deep = tarfile.TarInfo("x"); deep.type = tarfile.GNUTYPE_LONGNAME
Path("chain.tar").write_bytes(deep.tobuf(tarfile.GNU_FORMAT) * 5000 + bytes(1024))
try:
    suite.read_meta([Path("chain.tar")], [0], 1)
except study.DataError as e:
    print(e)
PYTHON
mkdir m && cd m
(ulimit -v 3000000 && timeout 60 "$python" ../meta.py "$BIN/../python") >out.txt 2>err.txt || { cat out.txt err.txt; fail "read_meta"; }
