#!/usr/bin/env python3
"""Makes what test_tokenizer_wordpiece.c compares with, by Hugging Face's BertTokenizerFast and the
normaliser inside it:

    words.bin      text, its words with spaces between (each: u32 size, bytes)
    ids.bin        text (u32 size, bytes), then u32 count and i32 ids, at most 64 with [CLS] and [SEP]
    digests.txt    XXH64 of the words of "a" + c + "b" for every code point c; then for every file of
                   the test data: captions and XXH64 of their i32 ids, rows of 30 with padding
    vocab.txt      only with --train, from the texts of this tree: kept, so that ids stay

    pip install tokenizers==0.22.2 transformers==4.57.6 xxhash
    tests/golden/tokenizer/make_wordpiece.py TESTDATA [--train]
"""
import glob
import os
import random
import struct
import sys

import xxhash
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizerFast

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(here, "../../..")
sys.path.insert(0, os.path.join(here, ".."))
from data_captions import SOURCES, captions

vocab = os.path.join(here, "vocab.txt")
normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True,
                                        strip_accents=None, lowercase=True)
splitter = pre_tokenizers.BertPreTokenizer()

TEXTS = [
    "", " ", "\n", "A dog, running!", "  A  man's (red) hat: #1; \"new\" *best* ~ ok?  \n\n",
    "black-and-white photo / poster", "<PERSON> meets <person>s", "one\ttab\r\nline",
    "x\u00a0y \u00a0 z\u3000\u3000w\u2028v\u2029u\u1680t\u200bs\ufefft\u00adr", "don't \"quote\" me's",
    "CAFÉ ÀÉÎÕÜ ÇÑ ŁÓDŹ ĲSSELMEER", "Một Người Đàn Ông Đang CƯỠI NGỰA, Trên Bãi Biển!",
    "Трое ДЕТЕЙ ИГРАЮТ В СНЕГУ ЙЁ йё", "ΑΒΓ ΔΕΖ ΩΨΧ ΟΔΟΣ Ά", "İSTANBUL IŞIK ı", "Ⱥ Ⱦ ẞ ß K Å Ω ﬁ Ǆ",
    "日本語の「写真」、です。漢字カナ", "한국어 텍스트 각 가", "emoji 😀 -😀- family 👨‍👩‍👧 🥰 🫠", "زیبا عَرَبِيّ हिन्दी ไทย বাংলা",
    "a\u0301\u0327b a\u0327\u0301b \u0301alone", "e\u0302\u0323x ế", "\x00\x01a\x7f\x80\x85b\ufffdc\x0b\x0cd",
    "x" * 99 + " " + "x" * 100 + " " + "x" * 101 + " é" + "é" * 99, "가" * 34 + " " + "가" * 33,
    "[CLS] [SEP]x[PAD] [UNK][MASK] [mask] [ SEP] [[SEP]]", "1/2-3 3.14 $5 €5 5% a_b a@b.c #tag ##ing",
    "\u0378\u0e5c\U0001fae0\U000e0001\ue000a\U000f0000b", "\u302e\u302fㄱ\u302f\u302e \U0001d15f\U0001d160\U0001d165\U0001d16d",
    "a\u302e\u034f\u1b44 a\u302e\u1b44 a\u302e\u0301\u1b44 a\u302eb\u1b44",
    "\u1b44\u0301\u302e\u16ff0 \u0b94\u0bca \u0d4a\u0ddd", "豈更車\uf900 \U0002f800𠀀𫠠",
    "the letters unbelievably tokenization of recovers accumulation; readers' threads", "a" * 64 + " b" * 80,
]
ALPHABET = list("ab zé 漢!'가[]#Σ\u0301\u0327\u0323\u302e\u1b44\u0345\u0334\u0b94\u037e\u2126\u212b\u0130\u200d\u00a0\u034f\u0903\u093c") + [
    "\U0001d15f", "\U0001d16d", "\U0001d165", "\u1dfa", "\u1ab0", "[SEP]", "[UNK]", "ing", "the ", "\U000119e0",
    "\u07fd", "\u0898", "\u1734", "\U00011938", "\ua9c0", "\U00016ff0"]


def texts():
    yield from TEXTS
    draw = random.Random(1)
    for _ in range(300):
        yield "".join(draw.choice(ALPHABET) for _ in range(draw.randrange(1, 24)))


def words(text):
    return " ".join(w for w, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))


def train():
    names = sorted(glob.glob(os.path.join(root, "**/*.md"), recursive=True)
                   + glob.glob(os.path.join(root, "*/*.h")) + glob.glob(os.path.join(root, "*/*.c")))
    lines = [line.strip() for name in names if "/build/" not in name
             for line in open(name, encoding="utf-8")
             if line.lstrip().startswith("*") or name.endswith(".md")]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizer, splitter
    specials = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(lines + TEXTS, trainers.WordPieceTrainer(
        vocab_size=2600, special_tokens=specials, show_progress=False))
    pieces = t.get_vocab()
    with open(vocab, "w", encoding="utf-8") as f:
        f.writelines(p + "\n" for p in sorted(pieces, key=pieces.get))


if "--train" in sys.argv:
    train()
bert = BertTokenizerFast(vocab_file=vocab, tokenizer_file=None, do_lower_case=True)


def sized(data):
    return struct.pack("<I", len(data)) + data


with open(os.path.join(here, "words.bin"), "wb") as f:
    for text in texts():
        if "[SEP]" not in text and "[UNK]" not in text:
            f.write(sized(text.encode()) + sized(words(text).encode()))
with open(os.path.join(here, "ids.bin"), "wb") as f:
    for text in texts():
        ids = bert(text, truncation=True, max_length=64)["input_ids"]
        f.write(sized(text.encode()) + struct.pack(f"<I{len(ids)}i", len(ids), *ids))
with open(os.path.join(here, "digests.txt"), "w") as f:
    digest = xxhash.xxh64()
    count = 0
    for c in range(0x110000):
        if not 0xD800 <= c < 0xE000:
            digest.update(words("a" + chr(c) + "b").encode() + b"\n")
            count += 1
    f.write(f"code_points {count} {digest.hexdigest()}\n")
    for name in SOURCES:
        rows = list(captions(sys.argv[1], name))
        ids = bert(rows, padding="max_length", truncation=True, max_length=30)["input_ids"]
        data = b"".join(struct.pack("<30i", *row) for row in ids)
        f.write(f"{name} {len(rows)} {xxhash.xxh64(data).hexdigest()}\n")
