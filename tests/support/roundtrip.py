"""Lists the source of a dataset and its content, both read by Python's tarfile and json, so that they
are compared without code of ours.

    roundtrip.py expected wds TAR...            of WebDataset tars
    roundtrip.py expected tsv TABLE IMAGES      caption TAB file name
    roundtrip.py expected coco JSON IMAGES
    roundtrip.py expected karpathy JSON IMAGES
    roundtrip.py expected folders ROOT          class folders; a sample's class is its captions' place
    roundtrip.py actual CCDUMP DATASET [classes]

Each prints a JSON line per sample by id: id, captions (or class), SHA-256 of the image, metadata.
"""
import hashlib
import json
import os
import subprocess
import sys
import tarfile

SPACE = b" \t\n\v\f\r"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def text(data):
    return data.strip(SPACE).decode("utf-8")


def emit(number, captions, image, meta):
    line = {"id": number, "captions": captions, "sha256": sha256(image), "meta": meta}
    print(json.dumps(line, ensure_ascii=False, sort_keys=True))


def members(stream):
    """(key, {extension: body}) of the samples of an open tar stream."""
    key, parts = None, {}
    for member in stream:
        if not member.isfile():
            continue
        name, dot, extension = os.path.basename(member.name).partition(".")
        if not dot:  # of no sample: the index of a plain tar
            continue
        if name != key and parts:
            yield key, parts
            parts = {}
        key = name
        assert extension not in parts, "a member comes twice: " + member.name
        parts[extension] = stream.extractfile(member).read()
    if parts:
        yield key, parts


def image_of(parts):
    imgs = [e for e in parts if not e.endswith("txt") and e != "json"]
    assert len(imgs) == 1, parts.keys()
    return parts[imgs[0]]


def captions_of(parts):
    found, k = [], 0
    while ("txt" if k == 0 else "%d.txt" % k) in parts:
        found.append(parts["txt" if k == 0 else "%d.txt" % k].decode("utf-8"))
        k += 1
    return found


def expected_wds(paths):
    number = 0
    for path in paths:
        with tarfile.open(path, "r|*") as stream:
            for _, parts in members(stream):
                emit(number, [text(parts["txt"])], image_of(parts), json.loads(parts["json"]))
                number += 1


def expected_tsv(table, images):
    for number, line in enumerate(read(table).rstrip(b"\n").split(b"\n")):
        caption, name = line.split(b"\t")
        emit(number, [text(caption)], read(images, name.decode()), None)


def others(image, *used):
    return {name: value for name, value in image.items() if name not in used} or None


def expected_coco(path, images):
    data = json.loads(read(path))
    captions = {}
    for note in data["annotations"]:
        captions.setdefault(note["image_id"], []).append(text(note["caption"].encode()))
    for number, image in enumerate(data["images"]):
        emit(number, captions[image["id"]], read(images, image["file_name"]),
             others(image, "id", "file_name"))


def expected_karpathy(path, images):
    for number, image in enumerate(json.loads(read(path))["images"]):
        captions = [text(s["raw"].encode()) for s in image["sentences"]]
        name = os.path.join(image.get("filepath", ""), image["filename"])
        emit(number, captions, read(images, name), others(image, "filename", "filepath", "sentences", "sentids"))


def expected_folders(root):
    lines = []
    for name in sorted(os.listdir(root), key=os.fsencode):
        for file in sorted(os.listdir(os.path.join(root, name)), key=os.fsencode):
            lines.append((name, sha256(read(root, name, file))))
    for number, (name, digest) in enumerate(lines):
        print(json.dumps({"id": number, "class": name, "sha256": digest}, sort_keys=True))


def open_shard(path):
    """The tar in a shard, through a pipe, as a WebDataset pipeline reads it."""
    if not path.endswith(".zst"):
        return tarfile.open(path, "r|"), None
    pipe = subprocess.Popen(["zstd", "-dcq", path], stdout=subprocess.PIPE)
    return tarfile.open(fileobj=pipe.stdout, mode="r|"), pipe


def shard_samples(directory):
    """(shard, key): parts, out of every shard that the manifest names."""
    found = {}
    for shard in json.loads(read(directory, "dataset.json"))["shards"]:
        stream, pipe = open_shard(os.path.join(directory, shard["name"]))
        for key, parts in members(stream):
            assert (shard["name"], key) not in found
            found[shard["name"], key] = parts
        assert len(found) > 0 and (pipe is None or pipe.wait() == 0)
    return found


def listing(ccdump, directory):
    out = subprocess.run([ccdump, "ls", directory, "--keys", "--json"], stdout=subprocess.PIPE,
                         check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def actual(ccdump, directory, classes=None):
    samples = shard_samples(directory)
    rows = listing(ccdump, directory)
    assert len(rows) == len(samples), (len(rows), len(samples))
    last = -1
    for row in rows:
        parts = samples[row["shard"], row["key"]]
        image = image_of(parts)
        assert row["id"] > last and row["image_bytes"] == len(image)
        last = row["id"]
        assert row["captions"] == captions_of(parts), "index and tar differ"
        meta = json.loads(parts["json"]) if "json" in parts else None
        assert row["meta"] == meta
        if classes:
            print(json.dumps({"id": row["id"], "class": row["class"], "sha256": sha256(image)},
                             sort_keys=True))
        else:
            emit(row["id"], row["captions"], image, meta)


def main(arguments):
    what, rest = arguments[1], arguments[2:]
    if what == "actual":
        actual(*rest)
    elif rest[0] == "wds":
        expected_wds(rest[1:])
    else:
        globals()["expected_" + rest[0]](*rest[1:])


if __name__ == "__main__":
    main(sys.argv)
