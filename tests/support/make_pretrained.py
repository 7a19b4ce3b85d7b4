#!/usr/bin/env python3
"""Random weights in the layout of another program, as safetensors; or whether two such files agree.

    make_pretrained.py LIST OUT [OLD=NEW]... [--prefix P] [--more NAME=EXTENT,...]...
        LIST: lines "NAME TYPE [EXTENT,...]" as in tests/golden/export. OLD=NEW replaces an extent; --prefix comes before
        all names of LIST; --more adds a tensor that ccstream does not read, such as a classifier
    make_pretrained.py --equal A B [--except WORD]...
        every tensor of B whose name has none of the words is in A, or with the prefix distilbert., and has the same bytes
"""
import array
import json
import random
import struct
import sys


def read(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: data[slice(*t["data_offsets"])] for name, t in header.items()}


def equal(first, second, words):
    there = read(first)
    compared = 0
    for name, data in read(second).items():
        if any(word in name for word in words):
            continue
        if data not in (there.get(prefix + name) for prefix in ("", "distilbert.")):
            sys.exit(f"{second}: {name} is not that of {first}")
        compared += 1
    print(f"{compared} tensors are equal")
    return compared == 0


def write(path, tensors):
    draw = random.Random(1)
    values = array.array("f", (draw.uniform(-0.05, 0.05) for _ in range(65536)))
    header, parts, end = {}, [], 0
    for name, kind, shape in tensors:
        count = 1
        for extent in shape:
            count *= extent
        if kind == "int64":
            data = bytes(8 * count)
        elif len(shape) == 1 and not name.endswith(("bias", "running_mean")):  # weights of norms and variances
            data = array.array("f", (1 + values[i % 65536] for i in range(count))).tobytes()
        else:
            start = draw.randrange(65536)
            data = (values[start:] + values[:start]).tobytes() * (count // 65536 + 1)
            data = data[:4 * count]
        header[name] = {"dtype": {"int64": "I64", "float32": "F32"}[kind], "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def main(words):
    options = {"--prefix": [], "--more": [], "--except": []}
    rest = []
    while words:
        word = words.pop(0)
        (options[word] if word in options else rest).append(words.pop(0) if word in options else word)
    if rest[0] == "--equal":
        return equal(rest[1], rest[2], options["--except"])
    replaced = {int(old): int(new) for old, new in (word.split("=") for word in rest[2:])}
    tensors = []
    with open(rest[0], encoding="utf-8") as lines:
        for line in lines:
            name, kind, shape = line.split()
            tensors.append(("".join(options["--prefix"]) + name, kind, [replaced.get(n, n) for n in json.loads(shape)]))
    for word in options["--more"]:
        name, shape = word.split("=")
        tensors.append((name, "float32", [int(n) for n in shape.split(",")]))
    write(rest[1], tensors)
    return 0


sys.exit(main(sys.argv[1:]))
