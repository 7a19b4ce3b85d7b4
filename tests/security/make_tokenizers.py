"""make_tokenizers.py GOOD FOLDER: SentencePiece models made from a good one that led libsentencepiece out of its memory."""
import os
import struct
import sys


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def piece(text, kind=1):
    return field(1, field(1, text) + b"\x15" + struct.pack("<f", -5.0) + b"\x18" + varint(kind))


LEAF = 1 << 31
ENDS = 1 << 8


def unit(label, offset, ends=False):
    return offset << 10 | (ENDS if ends else 0) | label


def normaliser(units, strings=b"x\0" * 8):
    units = list(units) + [0] * (-len(units) % 256)
    trie = struct.pack("<%dI" % len(units), *units)
    return field(3, field(2, struct.pack("<I", len(trie)) + trie + strings))


def tries():
    """name: units; only the first is sound."""
    good = [LEAF] * 512
    good[0] = unit(0, 256)
    good[256 + ord("a")] = unit(ord("a"), 256, True)  # the place (256 + 97) ^ 256 = 97
    good[97] = LEAF | 2
    yield "good", good
    yield "root-is-leaf", [LEAF] + [0] * 255
    yield "root-is-leaf-far", [LEAF | 1 << 9] + [0] * 255
    wild = [0] * 512
    for c in range(1, 256):
        wild[c] = unit(c, 256, True)
        wild[256 + c] = unit(255, 128)
    yield "end-without-leaf", wild
    loop = [0] * 256
    for c in range(1, 256):
        loop[c] = unit(c, c)
    yield "cycle", loop
    for c in range(1, 256):
        loop[c] |= ENDS
    yield "cycle-of-ends", loop
    # 40 rules a, aa, aaa ...: node i at 256 * i, its leaf at its place
    many = [0] * (256 * 42)
    many[0] = unit(0, 256)
    for i in range(1, 41):
        at = 256 * i + 97
        many[at] = unit(97, at ^ (256 * (i + 1)), True)
        many[256 * (i + 1)] = LEAF
    yield "40-matches", many


good = open(sys.argv[1], "rb").read()
os.makedirs(sys.argv[2], exist_ok=True)
models = {name: good + normaliser(units) for name, units in tries()}
models["long-piece"] = good + piece(b"a" * (200 << 10))
models["piece-of-513-bytes"] = good + piece(b"a" * 513)
models["nested"] = good + b"".join(piece(b"a" * n, 4) for n in range(2, 120))
models["wild-twice"] = good + normaliser([LEAF] + [0] * 255) + normaliser([0] * 256)
for name, model in models.items():
    open(os.path.join(sys.argv[2], name + ".model"), "wb").write(model)
