#!/bin/bash
# ccdump duplicates: groups of equal images, and of similar ones as comparing all pairs finds them.
. "$SRC/tests/support/cli.sh"
"$TESTBIN/make_scenes" val 120 1 32 a.tar >/dev/null
"$TESTBIN/make_scenes" train 5 2 32 b.tar >/dev/null
expect 0 "$BIN/ccpack" -q --allow-duplicates -o d --phash a.tar b.tar a.tar
expect 0 "$BIN/ccdump" duplicates d --json -q
lines out.txt 120
[ "$(sed -n 7p out.txt)" = '{"ids":[6,131],"bits":[0,0]}' ] || fail "$(sed -n 7p out.txt)"
expect 0 "$BIN/ccdump" duplicates d --id 0-5,125-127
[ "$(paste -s -d ';' out.txt)" = "0  125 (0);1  126 (0);2  127 (0)" ] || fail "$(cat out.txt)"
has err.txt "3 groups with 6 samples"

# Nothing found, no hashes, a wrong number of bits.
expect 66 "$BIN/ccdump" duplicates d --id 0-124
has err.txt "no two images are equal"
expect 0 "$BIN/ccpack" -q -o plain b.tar
expect 66 "$BIN/ccdump" duplicates plain --phash 3
has err.txt "pack with --phash"
expect 64 "$BIN/ccdump" duplicates d --phash 9
expect 0 "$BIN/ccpack" -q -o mixed --phash a.tar
expect 0 "$BIN/ccpack" -q -o mixed --append --new-settings b.tar
"$BIN/ccdump" duplicates mixed --phash 8 >out.txt 2>err.txt || true
has err.txt "without a perceptual hash: 5 samples"

# Hashes that the source brought, near each other in every block of them: all pairs compared, in Python.
command -v python3 >which.txt || { echo "no python3: not compared with all pairs"; exit 0; }
tar xf b.tar
python3 - "$(ls ./*.jpg | head -1)" <<'PYTHON'
import io, json, random, sys, tarfile
draw, seen, image = random.Random(1), [], open(sys.argv[1], "rb").read()
with tarfile.open("near.tar", "w") as out:
    for row in range(400):
        value = draw.choice(seen) if row % 4 else draw.getrandbits(64)
        for bit in draw.sample(range(64), draw.randrange(10)):
            value ^= 1 << bit
        seen.append(value)
        for extension, data in (("jpg", image), ("txt", b"c"), ("json", json.dumps({"phash": f"{value:016x}"}).encode())):
            member = tarfile.TarInfo(f"{row:04}.{extension}")
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
PYTHON
expect 0 "$BIN/ccpack" -q -o near near.tar
"$BIN/ccdump" cat near --json-text >meta.txt
for bits in 0 1 2 3 4 6 8; do
    expect 0 "$BIN/ccdump" duplicates near --phash $bits --json -q
    python3 - $bits <<'PYTHON' || fail "--phash $bits"
import json, sys
bits = int(sys.argv[1])
hashes = [int(json.loads(line)["phash"], 16) for line in open("meta.txt", encoding="utf-8")]
assert len(hashes) == 400
groups = list(range(len(hashes)))
for i, a in enumerate(hashes):
    for j in range(i):
        if bin(a ^ hashes[j]).count("1") <= bits and groups[i] != groups[j]:
            old, new = max(groups[i], groups[j]), min(groups[i], groups[j])
            groups = [new if g == old else g for g in groups]
want = []
for g in sorted(set(groups)):
    ids = [i for i, x in enumerate(groups) if x == g]
    if len(ids) > 1:
        want.append({"ids": ids, "bits": [bin(hashes[i] ^ hashes[g]).count("1") for i in ids]})
got = [json.loads(line) for line in open("out.txt", encoding="utf-8")]
print(bits, "bits:", len(want), "groups, the largest of", max(len(g["ids"]) for g in want))
assert got == want
PYTHON
done
