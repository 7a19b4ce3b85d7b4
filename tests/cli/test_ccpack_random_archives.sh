# Random archives against a model of WebDataset's grouping: every member is packed, listed or counted. 40 of them, or
# as many as CCSTREAM_RANDOM_ARCHIVES says.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
"$TESTBIN/make_scenes" val 1 1 48 scenes.tar >scenes.txt
mkdir images && tar xf scenes.tar -C images
cat >check.py <<'PYTHON'
import glob, gzip, io, json, os, random, re, shutil, subprocess, sys, tarfile, warnings, zipfile
warnings.simplefilter('ignore')
bin_folder, count = sys.argv[1], int(sys.argv[2])
jpeg = open(glob.glob('images/*.jpg')[0], 'rb').read()
words = ['photo', 'caf\u00e9', 'cafe\u0301', '\u65e5\u672c', '\ud55c\uad6d', '\u1112\u1161\u11ab', '\u03b1\u03b2', '\u0444\u043e\u0442\u043e',
         '\u05ea\u05de\u05d5\u05e0\u05d4', '\u0635\u0648\u0631\u0629', '\u091a\u093f\u0924\u094d\u0930', '\u0e20\u0e32\u0e1e', '\u10e1\u10e3\u10e0\u10d0\u10d7\u10d8', 'Mr Smith', '\U0001f600', '007']
extensions = ['jpg', 'png', 'jpeg', 'webp', 'JPG', 'gif', 'depth.png', '1.jpg', '2.png', '1.depth.png', 'final.v2.jpg', 'seg', 'bin', 'npy', 'cls',
              'txt', 'txt', 'TXT', '1.txt', '2.txt', '10.txt', '01.txt', 'v2.txt', 'final.v2.txt', 'json', 'meta.json']
known = ['jpg', 'jpeg', 'png', 'webp', 'gif', 'bmp', 'tif', 'tiff', 'heic']

def make(rng):
    members, size = [], 1
    def add(name, kind='file'):
        nonlocal size
        ext = name.rsplit('.', 1)[-1].lower()
        size += 1
        if ext in known + ['seg', 'bin']: # each image has a size of its own
            body = jpeg + b'#' * size if rng.random() < (0.9 if ext in known else 0.5) else b'no image' * size
        elif ext == 'txt':
            body = rng.choice(['caption %d\n' % size] * 8 + ['', ' \n', '\u3000', '\u200b', '\xa0']).encode()
        else:
            body = b'{"a": %d}' % size
        members.append((name, kind, body))
    for _ in range(rng.randint(1, 8)):
        stem = rng.choice(['', '', 'folder/', 'a.b/']) + rng.choice(words) + str(rng.randint(0, 99))
        names = [stem + '.' + e for e in rng.sample(extensions, rng.randint(1, 8))]
        names += [stem + '.jpg', stem + '.txt'] if rng.random() < 0.6 else []
        names = names if rng.random() < 0.2 else list(dict.fromkeys(names))
        rng.shuffle(names)
        for name in names:
            add(name)
            if rng.random() < 0.08:
                add(rng.choice(['.hidden.jpg', 'README', 'a.b/plain', 'folder/._x.txt']))
            if rng.random() < 0.04:
                add(rng.choice(['link.jpg', 'folder']), rng.choice(['link', 'folder']))
    add('zz.jpg')
    members[-1] = ('zz.jpg', 'file', jpeg + b'#' * size)
    members.append(('zz.txt', 'file', b'last'))
    return members

def write(rng, members, path):
    kind = rng.choice(['gnu', 'pax', 'tar.gz', 'two.gz', 'tar.zst', 'zip', 'deflated'])
    if kind == 'tar.zst' and not shutil.which('zstd'):
        kind = 'gnu'
    out = io.BytesIO()
    if kind in ('zip', 'deflated'):
        members[:] = [m for m in members if m[1] != 'link']
        with zipfile.ZipFile(out, 'w', zipfile.ZIP_STORED if kind == 'zip' else zipfile.ZIP_DEFLATED) as z:
            for name, what, body in members:
                z.writestr(name + '/' if what == 'folder' else name, b'' if what == 'folder' else body)
    else:
        with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT if kind == 'pax' else tarfile.GNU_FORMAT) as t:
            for name, what, body in members:
                info = tarfile.TarInfo(name)
                info.type = {'file': tarfile.REGTYPE, 'link': tarfile.SYMTYPE, 'folder': tarfile.DIRTYPE}[what]
                info.linkname = 'zz.jpg' if what == 'link' else ''
                info.size = len(body) if what == 'file' else 0
                t.addfile(info, io.BytesIO(body) if what == 'file' else None)
    data = out.getvalue()
    if kind == 'tar.gz':
        data = gzip.compress(data, 1)
    elif kind == 'two.gz':
        at = rng.randrange(len(data))
        data = gzip.compress(data[:at], 1) + gzip.compress(data[at:], 1)
    elif kind == 'tar.zst':
        data = subprocess.run(['zstd', '-qc'], input=data, capture_output=True, check=True).stdout
    open(path, 'wb').write(data)
    return kind

def rank(ext, real):
    last = ext.rsplit('.', 1)[-1].lower()
    return ('.' not in ext, last in known, real, ['webp', 'jpeg', 'png', 'jpg'].index(last) + 1 if last in ('webp', 'jpeg', 'png', 'jpg') else 0)

def model(members):
    ignored, rows, groups = {}, [], []
    def ignore(why):
        ignored[why] = ignored.get(why, 0) + 1
    for name, what, body in members:
        base = name.rsplit('/', 1)[-1]
        if what != 'file':
            what == 'folder' or ignore('not-file')
            continue
        if '.' not in base or base[0] == '.':
            ignore('hidden' if base[0] == '.' else 'no-extension')
            continue
        ext = base.split('.', 1)[1]
        stem = name[:len(name) - len(ext) - 1]
        number = re.fullmatch(r'(?:([1-9]\d{0,3})\.)?txt', ext, re.I)
        once = int(number[1] or 0) if number else 'json' if ext.lower() == 'json' else name if ext.rsplit('.', 1)[-1].lower() in known else None
        if not groups or groups[-1]['stem'] != stem or (once is not None and once in groups[-1]['once']):
            groups.append({'stem': stem, 'once': {}, 'images': []})
        g = groups[-1]
        if isinstance(once, int) or once == 'json':
            g['once'][once] = body
        elif once or body.startswith(jpeg):
            g['once'][once] = body
            g['images'].append((ext, body))
        else:
            ignore('unused')
    for g in groups:
        best = max(g['images'], key=lambda i: rank(i[0], i[1].startswith(jpeg)), default=None) # the first of equal ones
        others = [ext for ext, body in g['images']]
        texts = [b for k, b in sorted((k, b) for k, b in g['once'].items() if isinstance(k, int))
                 if k == 0 or not any(re.fullmatch('%d\\.(%s)' % (k, '|'.join(known)), e, re.I) for e in others)]
        texts = [t.decode().strip() for t in texts]
        texts = [t for t in texts if t.strip('\u200b\u3000\xa0 ')]
        reason = ('image-missing' if not best else 'caption-missing' if 0 not in g['once'] else 'caption-empty' if not texts else
                  None if best[1].startswith(jpeg) else 'image-unsupported')
        row = (len(best[1]), texts, json.loads(g['once']['json'])['a'] if 'json' in g['once'] else None) if not reason else None
        rows += [reason or row] + ['image-extra'] * (len(g['images']) - 1 if best else 0)
    return rows, ignored

def run(*command, **how):
    return subprocess.run([bin_folder + '/' + command[0], *command[1:]], capture_output=True, **how)

for seed in range(count):
    rng = random.Random(seed)
    members = make(rng)
    kind = write(rng, members, 'a')
    rows, ignored = model(members)
    pipe = rng.random() < 0.2
    r = run('ccpack', '-q', '--json', '--overwrite', '--no-check', '--max-bad', '100%', '--from', 'wds', '-o', 'd', '-' if pipe else 'a', stdin=open('a', 'rb'))
    if r.returncode != 0:
        sys.exit('archive %d (%s): %s' % (seed, kind, r.stderr.decode(errors='replace')))
    got = {}
    for line in open('d/rejects.jsonl', encoding='utf-8', errors='replace'):
        reject = json.loads(line)
        got[reject['row']] = reject['reason']
    for line in run('ccdump', 'ls', '--keys', '--json', 'd').stdout.decode().splitlines():
        s = json.loads(line)
        if 'captions' in s:
            got[s['id']] = (s['image_bytes'], s['captions'], (s['meta'] or {}).get('a'))
    summary = json.loads(r.stdout)
    if got != dict(enumerate(rows)) or summary['ignored_by'] != ignored:
        print([m[0] for m in members])
        for i, row in enumerate(rows):
            got.get(i) == row or print('row', i, 'is', got.get(i), 'not', row)
        sys.exit('archive %d (%s): %s, not %s; %d rows, not %d' % (seed, kind, summary['ignored_by'], ignored, len(got), len(rows)))
print(count, 'archives: every member accounted for')
PYTHON
PYTHONHASHSEED=0 python3 check.py "$BIN" "${CCSTREAM_RANDOM_ARCHIVES:-40}" || fail "a member is not accounted for"
