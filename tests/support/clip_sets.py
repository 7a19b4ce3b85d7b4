#!/usr/bin/env python3
"""clip_sets.py OUT: small test sets in clip-benchmark's layout, of coloured squares and crosses, with the standard library.

    sets/wds_shapes         two tars, templates, an absent class, one name twice, an empty name, a line that begins with #
    sets/wds_vtab-pets      mean per-class recall; classes of unequal sizes
    sets/wds_flickr30k      retrieval, 4 to 6 captions a line each
    sets/wds_wilds-fmow_test, sets/wds_fairface_test, sets/winogavil     groups, several labels, candidates
    more/wds_odd            transparent images, and images that EXIF would turn
    more/winoground, more/sugar_crepe       images and captions that belong together
    train.tar               images with captions
"""
import io
import json
import random
import struct
import sys
import tarfile
import zlib
from pathlib import Path

COLOURS = {"red": (214, 40, 40), "green": (40, 160, 60), "blue": (40, 80, 210), "yellow": (235, 205, 50)}
SHAPES = ("square", "cross")
CLASSES = [f"{c} {s}" for c in COLOURS for s in SHAPES]


def png(rng, name, odd=""):
    """odd: "alpha": the shape is in pixels that are transparent; "exif": to be turned by a quarter."""
    colour, shape = name.split()
    w, h = rng.choice([(40, 32), (32, 48), (36, 36)])
    x, y, r = w // 2 + rng.randint(-2, 2), h // 2 + rng.randint(-2, 2), rng.randint(7, 11)
    rows = b""
    for j in range(h):
        rows += b"\0"
        for i in range(w):
            dx, dy = abs(i - x), abs(j - y)
            inside = max(dx, dy) <= r and (shape == "square" or min(dx, dy) <= r // 3)
            rows += bytes(max(0, min(255, v + rng.randint(-6, 6))) for v in (COLOURS[colour] if inside else (230, 230, 230)))
            rows += bytes([0 if inside else 200]) if odd == "alpha" else b""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 6 if odd == "alpha" else 2, 0, 0, 0)) +
            (chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0") if odd == "exif" else b"") +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def npy(values):
    head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({len(values)},), }}".encode()
    head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + struct.pack(f"<{len(values)}q", *values)


def tar(path, rows):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        for i, members in enumerate(rows):
            for ext in sorted(members):
                info = tarfile.TarInfo(f"s{i:07d}.{ext}")
                info.size = len(members[ext])
                out.addfile(info, io.BytesIO(members[ext]))


def write(folder, tars, **texts):
    (folder / "test").mkdir(parents=True)
    for name, lines in texts.items():
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    for i, rows in enumerate(tars):
        tar(folder / f"test/{i}.tar", rows)
    (folder / "test/nshards.txt").write_text(f"{len(tars)}\n")


def captions(name, number):
    """No two images have an equal one: equal captions have equal scores, whose order is a matter of taste."""
    return [f"a photo of a {name}, number {number}.", f"there is a {name} on grey, {number}", f"the {name} {number}",
            f"{number}: one {name}, in the middle", f"a small {name}: {number}", f"«{name}» {number}"]


def main():
    top, rng = Path(sys.argv[1]), random.Random(0)
    sets = top / "sets"
    names = CLASSES[:3] + ["orange star", ""] + CLASSES[3:] + [CLASSES[0]]
    shown = [CLASSES.index(n) if n in CLASSES else 5 for n in names]
    labels = [i % len(names) for i in range(60) if i % len(names) != 3]
    rng.shuffle(labels)
    rows = [{"png": png(rng, CLASSES[shown[c]]), "cls": b"%d\n" % c} for c in labels]
    write(sets / "wds_shapes", [rows[:30], rows[30:]], classnames=names,
          zeroshot_classification_templates=["a photo of a {c}.", "#{c}, {{one}} {c}"])
    labels = [c for c in range(8) for _ in range(2 + c)]
    rng.shuffle(labels)
    write(sets / "wds_vtab-pets", [[{"png": png(rng, CLASSES[c]), "cls": b"%d" % c} for c in labels]], classnames=CLASSES,
          zeroshot_classification_templates=["the {c}"])
    rows = []
    for i in range(24):
        name = CLASSES[i % 8]
        lines = captions(name, i)[:{3: 4, 9: 6}.get(i, 5)]
        rows.append({"png": png(rng, name), "txt": "\n".join(lines).encode()})
    write(sets / "wds_flickr30k", [rows[:10], rows[10:]], dataset_type=["retrieval"])
    rows = []
    for i in range(40):
        c = i * 5 % 8
        rows.append({"png": png(rng, CLASSES[c]), "cls": b"%d" % c, "npy": npy([5 if i == 7 else i % 4, 14 + i % 2, c, 0])})
    write(sets / "wds_wilds-fmow_test", [rows], classnames=CLASSES, zeroshot_classification_templates=["the {c}"])
    rows = [{"png": png(rng, CLASSES[i % 8]), "npy": npy([i % 2, i // 2 % 2, i % 3, int(i % 3 != 1)])} for i in range(24)]
    write(sets / "wds_fairface_test", [rows], classnames=["race:red", "race:green", "race:blue", "gender:small",
          "gender:large", "age:square", "age:cross", *(f"toxic:thing {i}" for i in range(20))],
          zeroshot_classification_templates=["race:a {c} one", "race:{c}", "gender:a {c} thing", "age:a {c}", "toxic:a {c}"])
    (sets / "winogavil/images").mkdir(parents=True)
    with (sets / "winogavil/instances.jsonl").open("w") as out:
        for i in range(12):
            good = rng.sample([c for c in CLASSES if c.startswith("blue")], 2)
            rest = [rng.choice([c for c in CLASSES if not c.startswith("blue")]) for _ in range((5, 6, 10, 12)[i % 4] - 2)]
            files = [f"{i}-{j}.png" for j in range(len(good + rest))]
            for file, name in zip(files, good + rest):
                (sets / "winogavil/images" / file).write_bytes(png(rng, name))
            candidates = rng.sample(files, len(files))
            out.write(json.dumps({"cue": rng.choice(["Blue", "azure blue"]), "candidates": candidates,
                                  "associations": files[:2]}) + "\n")
    more = top / "more"
    write(more / "wds_odd", [[{"png": png(rng, CLASSES[i % 8], ("", "alpha", "exif")[i % 3]), "cls": b"%d" % (i % 8)}
                              for i in range(30)]], classnames=CLASSES, zeroshot_classification_templates=["the {c}"])
    (more / "winoground/images").mkdir(parents=True)
    (more / "sugar_crepe/val2017").mkdir(parents=True)
    pairs = [rng.sample(CLASSES, 2) for _ in range(12)]
    with (more / "winoground/examples.jsonl").open("w") as out:
        for i, names in enumerate(pairs):
            for k, name in enumerate(names):
                (more / f"winoground/images/ex_{i}_img_{k}.png").write_bytes(png(rng, name))
            out.write(json.dumps({"id": i, "caption_0": f"a {names[0]}", "caption_1": f"a {names[1]}", "image_0": f"ex_{i}_img_0",
                                  "image_1": f"ex_{i}_img_1"}) + "\n")
    for i, names in enumerate(pairs):
        (more / f"sugar_crepe/val2017/{i:012d}.png").write_bytes(png(rng, names[0]))
    for task in ("replace_obj", "swap_att"):
        rows = {str(i): {"filename": f"{i:012d}.png", "caption": f"{task} {names[0]}", "negative_caption": f"{task} {names[1]}"}
                for i, names in enumerate(pairs)}
        (more / f"sugar_crepe/{task}.json").write_text(json.dumps(rows))
    tar(top / "train.tar", [{"png": png(rng, CLASSES[i % 8]), "txt": captions(CLASSES[i % 8], i)[i % 6].encode()}
                            for i in range(128)])


main()
