"""A reader of datasets written from formats/SHARD_FORMAT.md alone, so that the page and the program can be compared. It shares
no code with the program and uses neither its libraries nor its tools: Python, and `zstd -dc` for compressed frames.

    read_shard.py DATASET [TAR]

Checks everything that section 12 lists for verification, and prints a JSON line per sample by id. With TAR, the samples must be
those of this tar (as `ccdump cat` writes it), in the same order. Section numbers are those of the page.
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tarfile

END_OF_TAR = bytes.fromhex("28B52FFD64000303200000CDAC85F0")
EXTENSIONS = ["bin", "jpg", "png", "webp", "gif"]
CONTAINERS = {1: "tar.zst", 2: "tar", 3: "tar-foreign"}
BLOCK = 131072


class Refused(Exception):
    pass


def need(holds, what):
    if not holds:
        raise Refused(what)


# ---- XXH64, seed 0

P1, P2, P3, P4, P5 = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579,
                      2870177450012600261)
MASK = (1 << 64) - 1


def rotl(v, n):
    return (v << n | v >> (64 - n)) & MASK


def xxh64(data):
    n, at = len(data), 0
    if n >= 32:
        a, b, c, d = (P1 + P2) & MASK, P2, 0, -P1 & MASK
        for at in range(0, n - 31, 32):
            w, x, y, z = struct.unpack_from("<4Q", data, at)
            a = rotl((a + w * P2) & MASK, 31) * P1 & MASK
            b = rotl((b + x * P2) & MASK, 31) * P1 & MASK
            c = rotl((c + y * P2) & MASK, 31) * P1 & MASK
            d = rotl((d + z * P2) & MASK, 31) * P1 & MASK
        at = n // 32 * 32
        h = (rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18)) & MASK
        for v in (a, b, c, d):
            h = ((h ^ rotl(v * P2 & MASK, 31) * P1 & MASK) * P1 + P4) & MASK
    else:
        h = P5
    h = (h + n) & MASK
    while n - at >= 8:
        v = rotl(struct.unpack_from("<Q", data, at)[0] * P2 & MASK, 31) * P1 & MASK
        h = (rotl(h ^ v, 27) * P1 + P4) & MASK
        at += 8
    if n - at >= 4:
        h = (rotl(h ^ struct.unpack_from("<I", data, at)[0] * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for v in data[at:]:
        h = rotl(h ^ v * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def low(data):
    return xxh64(data) & 0xFFFFFFFF


def unzstd(frame):
    """The content of zstd frames; their checksums are compared by zstd."""
    run = subprocess.run(["zstd", "-dcq"], input=frame, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    need(run.returncode == 0, "zstd: " + run.stderr.decode())
    return run.stdout


# ---- tar headers and members, sections 3.2 and 3.3

def padded(n):
    return (n + 511) // 512 * 512


def header(name, size):
    h = bytearray(512)
    for at, field in ((0, name), (100, b"0000644"), (108, b"0000000"), (116, b"0000000"), (124, b"%011o" % size),
                      (136, b"0" * 11), (148, b" " * 8), (156, b"0"), (257, b"ustar\x0000")):
        h[at:at + len(field)] = field
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h)


def take_member(content, at, name):
    """(body, end) of the member `name`, which must be at `at`."""
    size = int(content[at + 124:at + 135], 8)
    need(content[at:at + 512] == header(name, size), "header of %r" % name)
    body, end = content[at + 512:at + 512 + size], at + 512 + padded(size)
    need(len(body) == size and content[at + 512 + size:end].strip(b"\0") == b"", "body of %r" % name)
    return body, end


def take_sample(content, record):
    key = content[:100].split(b"\0")[0].split(b".")[0]
    need(1 <= len(key) <= 80 and all(0x21 <= c <= 0x7E and c not in b"./\\" for c in key), "key")
    captions, at, text = [], 0, None
    for k in range(record["texts"]):
        body, at = take_member(content, at, key + (b".txt" if k == 0 else b".%d.txt" % k))
        captions.append(body)
    if content[at:at + 100].rstrip(b"\0") == key + b".json":
        text, at = take_member(content, at, key + b".json")
        need(is_text(text, 1, 4 << 20), "JSON text")
    need(at + 512 <= 8 << 20, "head")
    image, at = take_member(content, at, key + b"." + EXTENSIONS[record["format"]].encode())
    need(at == len(content), "more than the members")
    return key, captions, text, image


# ---- section 3.4

def frame_content(frame, record):
    """Content of a sample's zstd frame, whose blocks are checked as well; and the image from its span."""
    need(frame[:4] == b"\x28\xb5\x2f\xfd", "magic")
    if frame[4] == 0x64:
        size, at = struct.unpack_from("<H", frame, 5)[0] + 256, 7
    elif frame[4] == 0xA4:
        size, at = struct.unpack_from("<I", frame, 5)[0], 9
        need(65791 < size <= 8 << 20, "descriptor")
    else:
        need(frame[4] == 0x84 and frame[5] == 0x38, "descriptor")
        size, at = struct.unpack_from("<I", frame, 6)[0], 10
        need(size > 8 << 20, "descriptor")
    blocks, last = [], 0
    while not last:
        h = int.from_bytes(frame[at:at + 3], "little")
        last, kind, n = h & 1, h >> 1 & 3, h >> 3
        blocks.append((kind, n, at + 3))
        at += 3 + (1 if kind == 1 else n)
    content = unzstd(frame)
    need(len(content) == size and len(frame) == at + 4, "sizes")
    need(struct.unpack_from("<I", frame, at)[0] == low(content), "checksum")
    n = record["image_size"]
    expected = [(0, BLOCK)] * (n // BLOCK) + ([(0, n % BLOCK)] if n % BLOCK else [])
    expected += [(1, padded(n) - n)] if n % 512 else []
    tail = blocks[len(blocks) - len(expected):]
    need([b[:2] for b in tail] == expected and tail[0][2] == record["image_start"], "image blocks")
    head = size - padded(n)
    if blocks[0][0] == 2:
        need(head <= BLOCK and len(blocks) == 1 + len(expected) and blocks[0][1] < head, "head block")
    else:
        raw = [(0, BLOCK)] * (head // BLOCK) + ([(0, head % BLOCK)] if head % BLOCK else [])
        need([b[:2] for b in blocks[:len(blocks) - len(expected)]] == raw, "raw head")
    span = frame[record["image_start"]:record["image_start"] + n + 3 * ((n - 1) // BLOCK)]
    image = span[:BLOCK]
    while len(image) < n:
        begin = len(image) + 3 * (len(image) // BLOCK)
        image += span[begin:begin + BLOCK]
    return content, image


# ---- foreign tars, section 5

def number(field):
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.lstrip(b" ").split(b" ")[0].split(b"\0")[0]
    need(digits and digits.strip(b"01234567") == b"", "number")
    return int(digits, 8)


def foreign_members(data):
    at, name, size = 0, None, None
    while at < len(data):
        h = data[at:at + 512]
        blank = h[:148] + b" " * 8 + h[156:]
        signed = sum(b - 256 if b > 127 else b for b in blank)
        need(len(h) == 512 and number(h[148:156]) in (sum(blank), signed), "foreign header")
        kind, n = h[156:157], number(h[124:136])
        describes = kind in (b"L", b"K", b"x", b"X", b"g")
        if size is not None and not describes:
            n = size
        body, begin = data[at + 512:at + 512 + n], at + 512
        need(len(body) == n and at + 512 + padded(n) <= len(data), "foreign body")
        at += 512 + padded(n)
        if kind == b"L":
            name = body.split(b"\0")[0]
        elif kind in (b"x", b"X"):
            while body:
                record_size = int(body.split(b" ")[0])
                record, body = body[:record_size], body[record_size:]
                k, v = record[record.index(b" ") + 1:-1].split(b"=", 1)
                need(record[-1:] == b"\n" and not k.startswith(b"GNU.sparse"), "pax")
                name, size = (v if k == b"path" else name), (int(v) if k == b"size" else size)
        elif not describes:
            own = h[:100].split(b"\0")[0]
            prefix = h[345:500].split(b"\0")[0]
            own = prefix + b"/" + own if h[257:263] == b"ustar\0" and prefix else own
            full = own if name is None else name
            is_file = kind in (b"0", b"7", b"\0")
            need(is_file or (kind in (b"1", b"2", b"3", b"4", b"5", b"6") and n == 0), "type")
            yield (full[2:] if full.startswith(b"./") else full), body, begin, is_file
            name = size = None
    need(name is None and size is None, "a name without member")


def take_foreign(data, record):
    members = list(foreign_members(data))
    found = [m for m in members if m[3] and m[2] == record["image_start"] and len(m[1]) == record["image_size"]]
    need(found, "image")
    folder, slash, base = found[0][0].rpartition(b"/")
    stem = folder + slash + base.split(b".")[0]
    key = bytes(c if 0x21 <= c <= 0x7E and c not in b"./\\" else 0x5F for c in stem[-80:]) or b"_"
    texts = [m[1] for m in members
             if m[3] and m[0][:len(stem)] == stem and m[0][len(stem):].lower() == b".json"]
    text = texts[0] if texts and is_text(texts[0], 1, 4 << 20) else None
    return key, text, found[0][1]


# ---- texts and index, sections 7 and 8

def is_text(data, least, most):
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return least <= len(data) <= most


def caption_hash(captions):
    return xxh64(b"".join(struct.pack("<I", len(c)) + c for c in captions))


class Index:
    def __init__(self, data):
        need(data[:8] == b"CCSINDEX" and struct.unpack_from("<Q", data, 120)[0] == xxh64(data[:120]), "header")
        (self.version, self.container, record_size, size, self.samples, self.texts, self.data_bytes, self.image_bytes,
         self.first_id, self.last_id, per_chunk, self.chunks, self.largest_chunk, self.largest_image) = struct.unpack_from(
             "<IHHQIIQQQQIIII", data, 8)
        need(self.version == 1 and self.container in CONTAINERS, "version")
        need(record_size == 64 and size == len(data) and per_chunk == 64 and data[80:112] == bytes(32), "sizes")
        need(1 <= self.samples <= 1 << 20 and self.chunks == (self.samples + 63) // 64, "counts")
        need(struct.unpack_from("<Q", data, 112)[0] == xxh64(data[128:]), "body hash")
        self.bytes, self.hash = data, struct.unpack_from("<Q", data, 120)[0]
        self.records = [self.record(i) for i in range(self.samples)]
        at = 128 + 64 * self.samples
        self.checks = None
        if self.container != 1:
            self.checks = struct.unpack_from("<%dI" % self.samples, data, at)
            at += 4 * self.samples
        offsets = struct.unpack_from("<%dI" % (self.chunks + 1), data, at)
        body = data[at + 4 * (self.chunks + 1):]
        need(offsets[0] == 0 and offsets[-1] == len(body), "chunks")
        self.captions = []
        for c in range(self.chunks):
            first = self.records[64 * c]["first_text"]
            end = self.records[64 * c + 64]["first_text"] if 64 * c + 64 < self.samples else self.texts
            content, count = unzstd(body[offsets[c]:offsets[c + 1]]), end - first
            need(len(content) <= self.largest_chunk, "chunk")
            sizes, at = struct.unpack_from("<%dI" % count, content), 4 * count
            for n in sizes:
                self.captions.append(content[at:at + n])
                at += n
            need(at == len(content), "chunk content")

    def record(self, i):
        data = self.bytes[128 + 64 * i:192 + 64 * i]
        need(struct.unpack_from("<I", data, 60)[0] == low(data[:60]), "record check")
        names = ("id frame frame_size image_start image_size first_text label texts width height format flags "
                 "image_hash caption_hash").split()
        (id_, frame, image_hash, hash_, frame_size, start, image_size, first, label, texts, width, height, format_,
         flags) = struct.unpack_from("<QQQQIIIIiHHHBB", data)
        r = dict(zip(names, (id_, frame, frame_size, start, image_size, first, label, texts, width, height, format_,
                             flags, image_hash, hash_)))
        need(self.first_id <= id_ <= self.last_id and frame + frame_size <= self.data_bytes, "record place")
        need(1 <= image_size <= self.largest_image and label >= -1 and format_ <= 4 and flags <= 3, "record fields")
        return r


# ---- shards

def check_zst_end(data, index, at):
    need(data[index.data_bytes:index.data_bytes + 15] == END_OF_TAR, "end of tar")
    table = at + 8 + len(index.bytes)
    n = index.samples + 2
    need(struct.unpack_from("<II", data, table) == (0x184D2A5E, 8 * n + 9), "seek table")
    entries = [struct.unpack_from("<II", data, table + 8 + 8 * i) for i in range(n)]
    in_order = sorted(index.records, key=lambda r: r["frame"])
    need([e[0] for e in entries] == [r["frame_size"] for r in in_order] + [15, len(index.bytes) + 8], "seek sizes")
    need(entries[-2][1] == 1024 and entries[-1][1] == 0, "seek contents")
    need(data[table + 8 + 8 * n:] == struct.pack("<IBI", n, 0, 0x8F92EAB1), "footer")
    return {r["id"]: e[1] for r, e in zip(in_order, entries)}


def check_tar_end(data, index, at):
    rest = padded(len(index.bytes)) - len(index.bytes)
    need(at == index.data_bytes + 512, "index offset")
    need(data[at - 512:at] == header(b"__ccstream-index__", len(index.bytes) + rest + 512), "index member")
    need(data[at + len(index.bytes):at + len(index.bytes) + rest] == bytes(rest), "zeros")


def find_index(path, data):
    """(index bytes, offset of its frame or of itself), section 6."""
    if data[-4:] == struct.pack("<I", 0x8F92EAB1):
        size, _, n = struct.unpack_from("<III", data, len(data) - 17)
        at = len(data) - (8 + 8 * n + 9) - size
        need(n >= 3 and at >= 0 and struct.unpack_from("<II", data, at) == (0x184D2A5C, size - 8), "index frame")
        return data[at + 8:at + size], at
    trailer = data[-1536:-1024]
    if trailer[:8] == b"CCSTRAIL" and data[-1024:] == bytes(1024):
        offset, size, whole, check = struct.unpack_from("<QQQ472xQ", trailer, 8)
        need(check == xxh64(trailer[:504]) and whole == len(data), "trailer")
        return data[offset:offset + size], offset
    with open(sidecar(path), "rb") as f:
        return f.read(), None


def sidecar(path):
    for ending in (".tar.zst", ".tar"):
        if path.endswith(ending):
            return path[:-len(ending)] + ".cci"
    return path + ".cci"


def read_shard(path, entry, container):
    with open(path, "rb") as f:
        data = f.read()
    need(len(data) == entry["bytes"] and "%016x" % xxh64(data) == entry["xxh64"], "size or hash of the file")
    bytes_, at = find_index(path, data)
    x = Index(bytes_)
    need(CONTAINERS[x.container] == container and "%016x" % x.hash == entry["index"], "another index")
    need((x.samples, x.texts, x.image_bytes, x.first_id, x.last_id) ==
         tuple(entry[k] for k in ("samples", "texts", "image_bytes", "first_id", "last_id")), "counts")
    contents = check_zst_end(data, x, at) if x.container == 1 else None
    if x.container == 2:
        check_tar_end(data, x, at)
    if os.path.exists(sidecar(path)):
        with open(sidecar(path), "rb") as f:
            need(f.read() == x.bytes, "sidecar")
    samples, texts, keys = [], 0, set()
    for i, r in enumerate(x.records):
        need(r["first_text"] == texts and (i == 0 or x.records[i - 1]["id"] < r["id"]), "order of records")
        captions = x.captions[texts:texts + r["texts"]]
        texts += r["texts"]
        frame = data[r["frame"]:r["frame"] + r["frame_size"]]
        if x.container == 3:
            key, text, image = take_foreign(frame, r)
        else:
            content = frame
            if x.container == 1:
                content, image = frame_content(frame, r)
                need(contents[r["id"]] == len(content), "seek entry")
            key, stored, text, body = take_sample(content, r)
            need(stored == captions and (x.container == 2 or image == body), "two copies differ")
            need(key not in keys, "key twice")
            keys.add(key)
            image = body
        if x.container != 1:
            need(x.checks[i] == low(frame) and frame[r["image_start"]:][:r["image_size"]] == image, "check")
        need(xxh64(image) == r["image_hash"] and len(image) == r["image_size"], "image hash")
        need(caption_hash(captions) == r["caption_hash"], "caption hash")
        need(all(is_text(c, 0, 256 << 10) for c in captions), "caption")
        samples.append((r, key, captions, text, image))
    need(texts == x.texts and sum(r["image_size"] for r in x.records) == x.image_bytes, "sums")
    return samples


def read_dataset(directory):
    with open(os.path.join(directory, "dataset.json"), "rb") as f:
        m = json.loads(f.read())
    need(m["format"] == "ccstream-dataset" and m["version"] in (1, 2), "manifest")
    removed = m["removed"] if m["version"] == 2 else {"ids": [], "samples": 0, "texts": 0, "image_bytes": 0}
    need(removed["ids"] == sorted(set(removed["ids"])), "removed ids")
    samples = []
    for entry in m["shards"]:
        samples += read_shard(os.path.join(directory, entry["name"]), entry, m["container"])
    gone = [s for s in samples if s[0]["id"] in set(removed["ids"])]
    need(len(gone) == removed["samples"] and sum(len(s[2]) for s in gone) == removed["texts"] and
         sum(len(s[4]) for s in gone) == removed["image_bytes"], "counts of removed samples")
    samples = [s for s in samples if s[0]["id"] not in set(removed["ids"])]
    need(sum(len(s[2]) for s in samples) == m["texts"] and
         sum(len(s[4]) for s in samples) == m["image_bytes"], "totals")
    samples.sort(key=lambda s: s[0]["id"])
    ids = [s[0]["id"] for s in samples]
    need(len(set(ids)) == len(ids) == m["samples"] and m["id_space"] > max(ids, default=-1), "ids")
    need(sum(e["bytes"] for e in m["shards"]) == m["bytes"], "bytes")
    fingerprint = xxh64(b"".join(struct.pack("<QQQ", s[0]["id"], s[0]["image_hash"], s[0]["caption_hash"])
                                 for s in samples))
    need("%016x" % fingerprint == m["fingerprint"] == m["generations"][-1]["fingerprint"], "fingerprint")
    return samples


def same_as_tar(samples, path):
    bodies = []
    with tarfile.open(path) as tar:
        for member in tar:
            bodies.append(tar.extractfile(member).read())
    expected = []
    for _, _, captions, text, image in samples:
        expected += captions + ([text] if text is not None else []) + [image]
    need(bodies == expected, "%s has other samples" % path)


def main():
    samples = read_dataset(sys.argv[1])
    if len(sys.argv) > 2:
        same_as_tar(samples, sys.argv[2])
    for r, key, captions, text, image in samples:
        print(json.dumps({"id": r["id"], "key": key.decode(), "captions": [c.decode() for c in captions],
                          "json": text and text.decode(), "sha256": hashlib.sha256(image).hexdigest()}))


if __name__ == "__main__":
    try:
        main()
    except Refused as e:
        sys.exit("refused: %s" % e)
