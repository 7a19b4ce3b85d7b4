#!/bin/bash
# Parquet: without pyarrow a line with the remedy; readers that crash, lie or hang; with pyarrow lists, tables with
# local images, images inside, nulls, lists of captions, numbers as metadata, resume and parts, damaged files.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
real=${CCSTREAM_PYTHON:-python3}

# No pyarrow, no Python: nothing is written.
mkdir bare
cat >bare/python <<'SCRIPT'
#!/bin/bash
echo "ModuleNotFoundError: No module named 'pyarrow'" >&2
exit 69
SCRIPT
cp bare/python none && chmod +x bare/python none
printf 'PAR1 not really' >a.parquet
for python in "$PWD/none" /nowhere/python; do
    for command in "" fetch; do
        expect 69 env CCSTREAM_PYTHON="$python" "$BIN/ccpack" $command -o new a.parquet
        has err.txt "-m pip install pyarrow"
        [ ! -e new ] || fail "a folder is left"
    done
done

# A reader of the user's choice is not trusted.
reader() { cat >"$1" && chmod +x "$1"; }
reader crash <<<$'#!/bin/bash\nkill -SEGV $$'
reader garbage <<<$'#!/bin/bash\nhead -c 100000 /dev/zero'
reader stream <<'SCRIPT'
#!/usr/bin/env python3
import struct, sys
out = sys.stdout.buffer
how = open("how.txt").read()
columns = [(b"T", b"file_name"), (b"T", b"caption"), (b"J", b"n")]
out.write(b"CCSROWS1" + struct.pack("<QI", 3, 1000 if how == "columns" else len(columns)))
for kind, name in columns:
    out.write((b"?" if how == "kind" else kind) + struct.pack("<I", 1 << 30 if how == "name" else len(name)) + name)
out.flush()
sys.stdin.readline()
out.write(struct.pack("<I", 1 << 31 if how == "rows" else 3))
for cells in ([b"a.jpg"] * 3, [b"one", b"two", b"x"], [b"1", b'{"bad', b"3"]):
    ends = [0]
    for c in cells:
        ends.append(ends[-1] + len(c))
    if how == "order":
        ends[1] = 0xFFFFFFF0
    if how == "size":
        ends[3] = 0x7FFFFFFF
    out.write(bytes([1, 1, 1]) + struct.pack("<4I", *ends) + b"".join(cells))
if how == "early":
    sys.stderr.write("no more\n")
    sys.exit(3)
out.write(struct.pack("<IQ", 0, 0))
out.flush()
if how == "hangs":
    import time
    time.sleep(600)
SCRIPT
"$TESTBIN/make_scenes" val 3 1 48 scenes.tar >/dev/null
tar xf scenes.tar && cp "$(ls *.jpg | head -1)" a.jpg
expect 65 env CCSTREAM_PYTHON="$PWD/crash" "$BIN/ccpack" -o new a.parquet
has err.txt "killed by signal 11"
expect 65 env CCSTREAM_PYTHON="$PWD/garbage" "$BIN/ccpack" -o new a.parquet
for how in columns kind name rows order size early; do
    printf '%s' $how >how.txt
    expect 65 env CCSTREAM_PYTHON="$PWD/stream" "$BIN/ccpack" -o new-$how --group-captions never a.parquet
    has err.txt "a.parquet"
done
has err.txt "no more"
printf hangs >how.txt
expect 0 env CCSTREAM_PYTHON="$PWD/stream" "$BIN/ccpack" -o hung --json a.parquet
has out.txt '"samples":1,' # adjacent rows of one image
expect 0 env CCSTREAM_PYTHON="$PWD/stream" "$BIN/ccpack" -o hung3 --json --group-captions never a.parquet
has out.txt '"samples":3,'
has out.txt '"json_dropped":1,'
has err.txt "kept as metadata: 'n'"

"$real" -c 'import pyarrow.parquet' 2>/dev/null || { echo "skipped: no pyarrow in $real (CCSTREAM_PYTHON)"; exit 77; }
export CCSTREAM_PYTHON=$real
"$real" - <<'PYTHON'
import glob, pyarrow as pa, pyarrow.parquet as pq
images = [open(p, "rb").read() for p in sorted(glob.glob("val*.jpg") or glob.glob("*.jpg"))][:3]
rows = [{"bytes": images[0], "path": "first.jpg"}, None, {"bytes": None, "path": "a.jpg"}, {"bytes": images[1], "path": None}]
pq.write_table(pa.table({
    "image": pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
    "captions": pa.array([["a", "b"], ["c"], ["d", None], ["e"]], pa.list_(pa.string())),
    "id": pa.array([1, 2, (1 << 53) + 1, -7], pa.int64()),
    "score": pa.array([0.5, None, float("nan"), 1e20]), "boxes": pa.array([[1.0]] * 4),
    "when": pa.array([0, 1, 2, 3], pa.timestamp("s")), "flag": [True, False, None, True]}), "inside.parquet", row_group_size=2)
pq.write_table(pa.table({"file_name": ["a.jpg", "a.jpg", "b.jpg", "a.jpg"], "caption": ["x", "y", "z", None]}), "beside.parquet")
pq.write_table(pa.table({"jpg": images, "text": ["x", "y", "z"]}), "binary.parquet")
many = 16000
pq.write_table(pa.table({"jpg": [images[0]] * many, "caption": [str(i) for i in range(many)]}), "many.parquet", row_group_size=3000)
PYTHON
expect 0 "$BIN/ccpack" -o inside --json --max-bad 1 inside.parquet
has out.txt '"samples":3,'
has err.txt "1 image-missing"
has err.txt "numbers are not finite"
"$BIN/ccdump" show inside --id 0 --json >show.txt
has show.txt '"key":"first","captions":["a","b"]'
has show.txt '"meta":{"id":1,"score":0.5,"when":"1970-01-01 00:00:00.000","flag":true}'
"$BIN/ccdump" show inside --id 2 --json >show.txt
has show.txt '"captions":["d"]'
has show.txt '"meta":{"id":"9007199254740993","score":null,'
expect 64 "$BIN/ccpack" -o new --keep-columns boxes inside.parquet
has err.txt "cannot be kept as metadata"
expect 64 "$BIN/ccpack" -o new --caption-column id inside.parquet
expect 64 "$BIN/ccpack" -o new --delimiter , inside.parquet
cp a.jpg b.jpg
expect 0 "$BIN/ccpack" -o beside --json --max-bad 1 beside.parquet
has out.txt '"samples":2,"rejected":1,"texts":3,'
has err.txt "1 caption-missing"
expect 0 "$BIN/ccpack" -o grouped --json --max-bad 1 --group-captions all beside.parquet
has out.txt '"samples":2,'
expect 0 "$BIN/ccpack" -o binary --json binary.parquet
has out.txt '"samples":3,'

# The same rows in any way: parts, a kill and a resume.
run() { "$BIN/ccpack" --no-check --shard-samples 2000 "$@"; }
expect 0 run -q -o whole many.parquet
for k in 1 2; do expect 0 run -q -o part-$k --part $k/2 many.parquet; done
expect 0 "$BIN/ccpack" merge -q -o merged part-1 part-2
[ "$("$BIN/ccdump" info --json whole | grep -o '"fingerprint":"[^"]*"')" = "$("$BIN/ccdump" info --json merged | grep -o '"fingerprint":"[^"]*"')" ] || fail "parts differ"
"$BIN/ccpack" --no-check --shard-samples 2000 -q -o killed many.parquet 2>killed.txt &
pid=$!
for i in $(seq 500); do [ -e killed/shard-000001.cci ] && break; sleep 0.01; done
kill -KILL $pid
wait $pid 2>/dev/null || true
expect 0 run -q -o killed --resume many.parquet
cmp whole/dataset.json killed/dataset.json || fail "a killed run differs"
