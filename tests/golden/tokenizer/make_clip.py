#!/usr/bin/env python3
"""Makes what CLIP's tokenizer is built from, and what its tests compare with:

    make_clip.py tables    formats/tokenizer/clip/merges.bin: OpenAI's merges as pairs of ids
                           formats/tokenizer/clip/entities.bin: the names of HTML's characters
                           formats/tokenizer/clip/unicode.bin: letters, numbers, normal forms
    make_clip.py golden    clip_ids.bin: texts and the ids that open_clip gives them
                           byte_bpe.json, byte_ids.bin, byte_prefix_ids.bin: a small byte-level tokenizer of Hugging
                           Face's library, texts, and the ids that it gives them, also with
                           add_prefix_space

Needs open_clip_torch==3.3.0 (its tokenizer.py runs without torch), ftfy==6.3.1, regex and tokenizers. The
Unicode data are those of the regex module (classes) and of Python 3.11 (normal forms), as in open_clip itself.
"""
import gzip
import html.entities
import os
import random
import struct
import sys
import unicodedata

import ftfy.chardata
import regex

here = os.path.dirname(os.path.abspath(__file__))
product = os.path.join(here, "../../../formats/tokenizer")
sys.path.insert(0, os.path.join(here, "../../parity"))
from clip_oracle import OpenClip


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


# ---- tables ----------------------------------------------------------------------------------------

def byte_characters():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [chr(b) for b in plain] + [chr(0x100 + i) for i in range(256 - len(plain))]


def make_merges():
    lines = gzip.decompress(OpenClip().merges).decode().split("\n")[1:48895]
    ids = {c: i for i, c in enumerate(byte_characters())}
    ids.update({c + "</w>": i + 256 for c, i in list(ids.items())})
    pairs = []
    for line in lines:
        left, right = line.split()
        pairs.append(struct.pack("<HH", ids[left], ids[right]))
        ids[left + right] = len(ids)
    assert len(ids) == 49406
    write(os.path.join(product, "clip/merges.bin"), b"CLIPBPE1" + b"".join(pairs))


def make_entities():
    """NAME NUL TEXT NUL, sorted by name; a text after 01 is of a name that only ftfy knows."""
    names = {name.encode(): text.encode() for name, text in html.entities.html5.items()}
    for name, text in ftfy.chardata.HTML_ENTITIES.items():
        names.setdefault(name[1:].encode(), b"\1" + text.encode())
    write(os.path.join(product, "clip/entities.bin"),
          b"".join(name + b"\0" + names[name] + b"\0" for name in sorted(names)))


def runs(pattern):
    """How many code points are not, are, are not ... of a class."""
    member = regex.compile(pattern)
    out, inside, since = [], False, 0
    for c in range(0x110000):
        if (member.match(chr(c)) is not None) != inside:
            out.append(c - since)
            inside, since = not inside, c
    return out


def make_unicode():
    """u32 numbers, by sections that their length begins."""
    combining, last, previous = [], 0, 0
    decomposed, composed = [], []
    for c in range(0x110000):
        k = unicodedata.combining(chr(c))
        if k != previous:
            combining += [c - last, k]
            last, previous = c, k
        parts = unicodedata.decomposition(chr(c)).split()
        if parts and parts[0][0] != "<":
            first, second = [*(int(p, 16) for p in parts), 0][:2]
            decomposed += [c, first, second]
            if unicodedata.normalize("NFC", chr(c)) == chr(c):
                composed.append((first, second, c))
    width = [ord(unicodedata.normalize("NFKC", chr(c))[-1]) for c in range(0xFF5F, 0xFFEF)]
    out = b""
    for section in (runs(r"\p{L}"), runs(r"\p{N}"), combining, decomposed, sum(sorted(composed), ()),
                    width):
        out += struct.pack(f"<{len(section) + 1}I", len(section), *section)
    write(os.path.join(product, "clip/unicode.bin"), out)


# ---- golden ----------------------------------------------------------------------------------------

TEXTS = [
    "", " ", "\n\t", "a photo of a cat.", "A Photo  of\ta CAT, running!!", "it's we're I'll they've I'd I'm don't 'TIS",
    "''s 'sup 'team 'S 'LL \u2019s \u2019LL", "2020 1/2 3.14 \u00bd \u2167 \u0663\u0664 \u0967\u0968 x\u00b2 \u2460", "<start_of_text> a <END_OF_TEXT> <start_of_text",
    "black-and-white photo / poster #1 @home $5 50% a_b a+b=c {x} [y] ~z^ `q` \\ |", "&amp;lt;b&amp;gt; &copy2 &notit; &#128; &#0; &#xD800; &#1; &unknown; &amp",
    "&EACUTE; &eacute; &NewLine;x &nGt; &#x1F600; &#59; &#; &#x; & a&b &lt", "P&EACUTE;REZ\n<b>P&EACUTE;REZ</b>\nP&EACUTE;REZ", "&quot;x&quot; &nbsp; y&#39;s",
    "\ufb01ne \ufb03 \u0132 \u01c4 \u0149 \ufb05", "\uff21\uff42\uff13\uff01 \uff76\uff9e\uff70 \uffe5 \uffe3 \u3000x", "e\u0301 q\u0323\u0307 q\u0307\u0323 \u212b \u0958 \ufb2f",
    "\u1112\u1161\u11ab \uac00\u11a8 \ud55c\uad6d\uc5b4", "\u0130stanbul I\u0130 \u03a3\u03a3 \u039f\u0394\u039f\u03a3 \u03a3. \u1e9e \u212a \u017ftart '\u017f <\u017ftart_of_text>",
    "a\u0345b \u0345\u0345 !\u0345! \u03b1\u0345", "\x1b[31mred\x1b[0m \x1b[ \x00\x07\x7f\u206a\ufeff\ufffc x", "\x80\x85\x93q\x94 \x81", "a\u200bb\u00adc\u2060d \u202ee\u200ff",
    "caf\u00e9 na\u00efve \u00fcber stra\u00dfe \u00c5ngstr\u00f6m", "M\u1ed9t Ng\u01b0\u1eddi \u0110\u00e0n \u00d4ng \u0110ang C\u01af\u1ee0I NG\u1ef0A", "\u0422\u0440\u043e\u0435 \u0414\u0415\u0422\u0415\u0419",
    "\u65e5\u672c\u8a9e\u306e\u300c\u5199\u771f\u300d\u3001\u3067\u3059\u3002", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947 \u0e44\u0e17\u0e22",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea 1\ufe0f\u20e3 \u2764\ufe0f", "x" * 300, "\U0001f600" * 80, " ".join(["word"] * 81), "wo" * 40 + "rd's",
    "one\r\ntwo\rthree\u2028four\u0085five\x1csix\u1680seven", "\u201cquoted\u201d \u2018it\u2019 \u2026 \u2013 \u2014 \u00ab\u00bb", "\uf900\U0002f800 \u0340 \u0374 \u2126 \u1f71",
]
ALPHABET = list("ab zAZ'&;#<>019!.-\n\t") + ["the ", "dog", "'s", "'re", "&amp;", "&#39;", "\u00e9", "\u0301", "\u0323", "\u3000", "\u4e2d", "\uac00",
                                           "\u2019", "\u03a3", "\u0130", "\U0001f600", "\u0345", "\u00bd", "<|end|>", "<mask>", "  "]


def texts():
    draw = random.Random(1)
    yield from TEXTS
    while True:
        yield "".join(draw.choice(ALPHABET) for _ in range(draw.randrange(1, 24)))


def write_ids(name, cases):
    write(os.path.join(here, name), b"".join(
        struct.pack("<I", len(text)) + text + struct.pack(f"<I{len(ids)}i", len(ids), *ids)
        for text, ids in cases))


def make_golden():
    oracle, cases = OpenClip(), []
    for text in texts():
        fixed = [ftfy.fix_text(text, fix_encoding=repair) for repair in (True, False)]
        if fixed[0] == fixed[1]:
            cases.append((text.encode(), [49406, *oracle.encode(text), 49407]))
        if len(cases) == 220:
            break
    write_ids("clip_ids.bin", cases)


def train_byte_bpe(path):
    """From the texts of this tree: kept, so that ids stay."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<s>", "<pad>", "</s>", "<|end|>", AddedToken("<mask>", lstrip=True)])
    root = os.path.join(here, "../../..")
    t.train([os.path.join(root, name) for name in ("README.md", "CONTRIBUTING.md", "formats/README.md")], trainer)
    t.save(path, pretty=False)


def make_byte_bpe():
    from tokenizers import Tokenizer, pre_tokenizers
    path = os.path.join(here, "byte_bpe.json")
    if not os.path.exists(path):
        train_byte_bpe(path)
    t = Tokenizer.from_file(path)
    draw = texts()
    cases = [next(draw) for _ in range(220)]
    write_ids("byte_ids.bin", [(text.encode(), [0, *t.encode(text).ids, 2]) for text in cases])
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    write_ids("byte_prefix_ids.bin", [(text.encode(), [0, *t.encode(text).ids, 2]) for text in cases])


if __name__ == "__main__":
    if sys.argv[1:] == ["tables"]:
        make_merges()
        make_entities()
        make_unicode()
    else:
        make_golden()
        make_byte_bpe()
