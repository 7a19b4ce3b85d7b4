"""parquet_samples.py READER FOLDER: what READER sends of the files that FOLDER/expected.jsonl names has the
SHA-256 that it gives for every column: of values, each a byte (0 null, 1 there), its size as u32 and its bytes;
of lists, the count as u32 (0xFFFFFFFF: null) and the elements; of structs, a byte and the members."""
import hashlib
import json
import os
import struct
import subprocess
import sys

reader, folder = sys.argv[1], sys.argv[2]
NUMBERS = ("<i", "<q", "<f", "<d", "<e", "bool")


def value(v):
    return b"\0" if v is None else b"\1" + struct.pack("<I", len(v)) + v


def texts(v):
    if v is None:
        return b"\xff" * 4
    out, at = [], 0
    while at < len(v):
        n = struct.unpack_from("<I", v, at)[0]
        out.append(value(v[at + 4 : at + 4 + n]))
        at += 4 + n
    return struct.pack("<I", len(out)) + b"".join(out)


def number(v, form, nan):
    if v is None:
        return value(struct.pack(form, float("nan"))) if nan and form in "<d<f<e" else value(None)
    parsed = json.loads(v)
    return value(bytes([parsed]) if form == "bool" else struct.pack(form, float(parsed) if form in "<f<d<e" else int(parsed)))


def read(path):
    p = subprocess.Popen([sys.executable, reader, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    get = p.stdout.read
    assert get(8) == b"CCSROWS1"
    rows, count = struct.unpack("<QI", get(12))
    columns = []
    for _ in range(count):
        kind, size = get(1), struct.unpack("<I", get(4))[0]
        columns.append((kind, get(size).decode(), []))
    wanted = [i for i, c in enumerate(columns) if c[0] != b"X"]
    p.stdin.write((" ".join(map(str, wanted)) + "\n").encode())
    p.stdin.flush()
    while True:
        n = struct.unpack("<I", get(4))[0]
        if n == 0:
            nan = struct.unpack("<Q", get(8))[0]
            break
        for i in wanted:
            flags, at = get(n), struct.unpack(f"<{n + 1}I", get(4 * n + 4))
            data = get(at[-1] - at[0])
            columns[i][2].extend(data[at[k] - at[0] : at[k + 1] - at[0]] if flags[k] else None for k in range(n))
    assert p.wait() == 0 and not get()
    return rows, columns, nan > 0


def digests(kind, values, path_values, nan):
    """Those that the column may have, by the type that the text of a number does not tell."""
    if kind == b"L":
        forms = [b"".join(map(texts, values))]
    elif kind == b"J":
        forms = []
        for form in NUMBERS:
            try:
                forms.append(b"".join(number(v, form, nan) for v in values))
            except (struct.error, ValueError, TypeError, OverflowError):
                pass
    else:
        forms = [b"".join(map(value, values))]
        if path_values is not None:
            forms = [b"".join(b"\0" if a is None and b is None else b"\1" + value(a) + value(b)
                              for a, b in zip(values, path_values))]
    return {hashlib.sha256(f).hexdigest() for f in forms}


files = compared = 0
for line in open(os.path.join(folder, "expected.jsonl"), encoding="utf-8"):
    expected = json.loads(line)
    rows, columns, nan = read(os.path.join(folder, expected["name"] + ".parquet"))
    assert rows == expected["rows"], expected["name"]
    by_name = {name: values for _, name, values in columns}
    for kind, name, values in columns:
        if kind == b"X" or name.endswith(".path"):
            continue
        assert len(values) == rows, (expected["name"], name)
        assert expected["sha256"][name] in digests(kind, values, by_name.get(name + ".path"), nan), (expected["name"], name)
        compared += 1
    files += 1
print(f"{files} files, {compared} columns")
assert files == 16, files
