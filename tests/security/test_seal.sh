# SHA-256 of a dataset: what 'ccpack seal' writes, sha256sum and 'ccdump verify' check; two files that XXH64 cannot tell
# apart are told apart.
. "$SRC/tests/support/cli.sh"
"$TESTBIN/make_scenes" val 20 1 48 all.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d all.tar --shard-samples 7
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60 --cache
expect 0 "$BIN/ccpack" seal d -o d.sha256
root=$(sed -n 's/^d: sha256 //p' err.txt)
[ "$root" = "$(sha256sum <d.sha256 | cut -c1-64)" ] || fail "the root is not the hash of the lines"
(cd d && sha256sum -c --quiet ../d.sha256) || fail "sha256sum does not agree"
lines d.sha256 9
expect 73 "$BIN/ccpack" seal d -o all.tar
expect 0 "$BIN/ccpack" seal d
cmp out.txt d.sha256
expect 0 "$BIN/ccdump" verify -q d --sha256 --seal d.sha256
has out.txt "d: sha256 $root"
expect 0 "$BIN/ccdump" verify -q d --sha256 --json
has out.txt "\"sha256\":\"$root\""

cp -r d e
sed -i 's/"created_by":"ccpack/"created_by":"ccpicK/' e/dataset.json
expect 65 "$BIN/ccdump" verify -q e --seal d.sha256
has out.txt "dataset.json: differs from the seal"
cp d/dataset.json e/
rm e/tokens.cct
expect 65 "$BIN/ccdump" verify -q e --seal d.sha256
has out.txt "tokens.cct: is in the seal, but not in the dataset"
grep -v tokens.cct d.sha256 >less.sha256
expect 65 "$BIN/ccdump" verify -q d --seal less.sha256
has out.txt "tokens.cct: is not in the seal"
expect 64 "$BIN/ccdump" verify -q all.tar --sha256
expect 66 "$BIN/ccdump" verify -q d --seal nosuch

# Two files of one size and one XXH64: the last 32 bytes are chosen (XXH64 can be run backwards).
command -v python3 >which.txt || exit 0
python3 - <<'PYTHON'
import struct
M = (1 << 64) - 1
P1, P2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
I1, I2 = pow(P1, -1, 1 << 64), pow(P2, -1, 1 << 64)
turn = lambda x, r: ((x << r) | (x >> (64 - r))) & M
def lanes(data):
    v = [(P1 + P2) & M, P2, 0, -P1 & M]
    for at in range(0, len(data), 8):
        i = at // 8 % 4
        v[i] = turn((v[i] + struct.unpack_from("<Q", data, at)[0] * P2) & M, 31) * P1 & M
    return v
one, two = open("d/shard-000000.tar.zst", "rb").read(), b""
one = one[: len(one) // 32 * 32] + bytes(32)
two = b"something else".ljust(len(one) - 32, b"\0")
two += b"".join(struct.pack("<Q", ((turn(w * I1 & M, 33) - v) * I2) & M) for v, w in zip(lanes(two), lanes(one)))
open("one.bin", "wb").write(one); open("two.bin", "wb").write(two)
PYTHON
mkdir f
cp d/* f/
if command -v xxhsum >/dev/null; then
    [ "$(xxhsum -H64 <one.bin | cut -c1-16)" = "$(xxhsum -H64 <two.bin | cut -c1-16)" ] || fail "no twins"
fi
cp one.bin f/shard-000000.tar.zst
expect 0 "$BIN/ccpack" seal f -o f.sha256
cp two.bin f/shard-000000.tar.zst
expect 65 "$BIN/ccdump" verify -q f --seal f.sha256
has out.txt "shard-000000.tar.zst: differs from the seal"
