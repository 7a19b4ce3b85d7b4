# Archives: names in any script, whatever the locale, and damage that each container can detect.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
export LC_ALL=C

"$TESTBIN/make_scenes" val 12 1 48 scenes.tar >scenes.txt
mkdir images && tar xf scenes.tar -C images
cat >make.py <<'PYTHON'
import glob, gzip, io, os, sys, tarfile, unicodedata, zipfile
stems = ['caf\u00e9', unicodedata.normalize('NFD', 'cafe\u0301 2'), '\u65e5\u672c\u8a9e', '\ud55c\uad6d',
         unicodedata.normalize('NFD', '\ud55c\uad6d 2'), '\u03b1\u03b2\u03b3', '\u0444\u043e\u0442\u043e',
         '\u05ea\u05de\u05d5\u05e0\u05d4', '\u0635\u0648\u0631\u0629', '\u091a\u093f\u0924\u094d\u0930', '\u0e20\u0e32\u0e1e',
         '\U0001f600']
images = [open(f, 'rb').read() for f in sorted(glob.glob('images/*.jpg'))]
members = []
for i, stem in enumerate(stems):
    members += [(stem + '.jpg', images[i]), (stem + '.txt', b'caption %d' % i)]
for i, (name, body) in enumerate(members):
    folder = 'plain/' + ('c\u00e9', 'd')[i // 2 % 2]
    os.makedirs(folder, exist_ok=True)
    open(folder + '/' + name, 'wb').write(body)
with tarfile.open('plain.tar', 'w', format=tarfile.GNU_FORMAT) as t, tarfile.open('pax.tar', 'w') as p, \
        zipfile.ZipFile('names.zip', 'w', zipfile.ZIP_DEFLATED) as z, zipfile.ZipFile('classes.zip', 'w') as c:
    for i, (name, body) in enumerate(members):
        info = tarfile.TarInfo(name)
        info.size = len(body)
        t.addfile(info, io.BytesIO(body))
        p.addfile(info, io.BytesIO(body))
        z.writestr(name, body)
        c.writestr(('c\u00e9', 'd')[i // 2 % 2] + '/' + name, body)
z = open('names.zip', 'rb').read()
with zipfile.ZipFile('names.zip', 'a') as a:
    a.writestr('plain.jpg', images[0])
    a.writestr('plain.txt', 'plain')
bad = open('names.zip', 'rb').read().replace(stems[0].encode(), b'caf\xff\xfe')
open('names.zip', 'wb').write(z)
open('bad.zip', 'wb').write(bad)
open('names.zip.gz', 'wb').write(gzip.compress(z))
tar = open('plain.tar', 'rb').read()
open('whole.tar.gz', 'wb').write(gzip.compress(tar, mtime=0))
middle = len(tar) // 2 + 100
open('joined.tar.gz', 'wb').write(gzip.compress(tar[:middle], mtime=0) + gzip.compress(tar[middle:], mtime=0) + bytes(900))
PYTHON
python3 make.py

# --- one dataset, whatever the container
expect 0 "$BIN/ccpack" -q --json -o plain.d plain.tar
whole=$(field out.txt fingerprint)
"$BIN/ccdump" ls plain.d --keys --json >keys.txt
lines keys.txt 12
for file in pax.tar names.zip names.zip.gz whole.tar.gz joined.tar.gz; do
    expect 0 "$BIN/ccpack" -q --json --overwrite -o d $file
    [ "$(field out.txt fingerprint)" = "$whole" ] || fail "$file: another dataset than plain.tar"
    expect 0 sh -c "cat $file | '$BIN/ccpack' -q --json --overwrite -o d -"
    [ "$(field out.txt fingerprint)" = "$whole" ] || fail "$file on a pipe: another dataset than plain.tar"
done
expect 0 "$BIN/ccpack" -q --json --overwrite --from folders -o d classes.zip
has out.txt '"samples":12'
python3 - <<'PYTHON'
import json
assert json.load(open('d/dataset.json'))['classes'] == ['c\u00e9', 'd']
PYTHON
expect 0 "$BIN/ccpack" -q --json --overwrite -o d bad.zip # bytes that are no UTF-8 are kept
has out.txt '"samples":13'

# --- a member whose name cannot be had is listed
if command -v zstd >which.txt; then
    zstd -q bad.zip -o bad.zip.zst # libarchive decompresses it, and converts names in the locale C
    expect 0 "$BIN/ccpack" -q --json --overwrite --max-bad 24 -o d bad.zip.zst
    has out.txt '"samples":1,"rejected":24'
    grep -c 'of the archive has no name' d/rejects.jsonl >count.txt && has count.txt 24
    zstd -q -f --check plain.tar -o plain.tar.zst
else
    cp whole.tar.gz plain.tar.zst
fi

# --- one bit after another: a container that detects it is damaged, or nothing changes
cat >flip.py <<'PYTHON'
import subprocess, sys
ccpack, want, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for name in sys.argv[4:]:
    data = open(name, 'rb').read()
    failed = 0
    for i in range(count):
        at = i * (len(data) * 8 - 1) // (count - 1)
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        open('flipped', 'wb').write(changed)
        r = subprocess.run([ccpack, '-q', '--json', '--overwrite', '--from', 'wds', '-o', 'f', 'flipped'], capture_output=True)
        out = r.stdout.decode()
        failed += r.returncode == 65
        # Names in a zip have no checksum: a pair whose member got another one is a reject.
        listed = name == 'names.zip' and '"rejected":0' not in out
        if r.returncode != 65 and '"fingerprint":"%s"' % want not in out and not listed:
            sys.exit('%s: bit %d: exit %d, %s %s' % (name, at, r.returncode, out, r.stderr))
    if failed < count * 3 // 4:
        sys.exit('%s: %d of %d flips detected' % (name, failed, count))
PYTHON
python3 flip.py "$BIN/ccpack" "$whole" 40 whole.tar.gz joined.tar.gz plain.tar.zst names.zip

# --- the ends of gzip
head -c -1 whole.tar.gz >cut.tar.gz
(cat whole.tar.gz && printf 'more') >more.tar.gz
expect_message 65 'the gzip is truncated' "$BIN/ccpack" --overwrite -o f cut.tar.gz
expect_message 65 'the gzip is damaged' "$BIN/ccpack" --overwrite -o f more.tar.gz

# --- ignored files, with a line for each reason
mkdir odd && cp "images/$(ls images | head -1)" odd/0.jpg && echo text >odd/0.txt && cp odd/0.jpg odd/.hidden.jpg
echo readme >odd/README && ln -s 0.jpg odd/link.jpg && echo more >odd/0.npy
tar cf odd.tar -C odd 0.jpg 0.npy 0.txt .hidden.jpg README link.jpg
expect_message 0 '1 file ignored: hidden' "$BIN/ccpack" --overwrite -o d odd.tar
has err.txt '1 file ignored: no extension'
has err.txt '1 file ignored: a link'
has err.txt '1 file ignored: neither an image'
expect 0 "$BIN/ccpack" -q --json --overwrite -o d odd.tar
has out.txt '"ignored":4,"ignored_by":{"hidden":1,"no-extension":1,"not-file":1,"unused":1}'
# --- other encodings than UTF-8, and NUL
printf 'image\tcaption\n0.jpg\tone\n' >utf8.tsv
printf '[{"image": "0.jpg", "caption": "one"}]' >utf8.json
for encoding in UTF-16 UTF-16LE UTF-16BE UTF-32; do
    for kind in tsv json; do
        [ $encoding$kind = UTF-32json ] && continue # looks like a file of tensors
        python3 -c 'import sys; sys.stdout.buffer.write(open(sys.argv[1]).read().encode(sys.argv[2]))' utf8.$kind $encoding >other.$kind
        [ $encoding = UTF-32 ] && iconv=UTF-32LE || iconv=${encoding%LE}
        expect_message 65 "iconv -f $iconv" "$BIN/ccpack" --overwrite -o d other.$kind
        expect_message 65 "iconv -f $iconv" "$BIN/ccpack" --overwrite --from $kind -o d other.$kind
    done
done
printf '0.jpg\tbefore\0after\n' >nul.tsv
expect_message 65 'nul.tsv: a NUL at byte 12' "$BIN/ccpack" --overwrite -o d nul.tsv

echo "archives: names, damage and reasons as documented"
