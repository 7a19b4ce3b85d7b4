#!/usr/bin/env python3
"""Bytes, operations and the shortest time of each kind of kernel in a training step in bf16, by arithmetic: no GPU is needed.

    tests/gpu/roofline.py                                   ResNet-50 and DistilBERT's shape, batch 512, on an H200
    tests/gpu/roofline.py --gpu H100 --image-tower resnet18 --text-tower tiny --image-size 112
    tests/gpu/roofline.py --image-tower ViT-B-16 --text-tower clip --batch-size 512
    tests/gpu/roofline.py --measured tests/bench/results/gpu-2026-11-28/kernels.txt

A kernel reads its operands once from memory and writes its results once: its time is the larger of bytes by the copy
rate and operations by the rate of matrix products. The columns are designs of the kernels, each with all before it:

    first   as an H200 first ran them: the mask of every ReLU from its output, dy computed in both passes
    now     the mask from `pre` where that is the ReLU's whole input, else dy left in the residual's gradient; the stem over 2x2
            squares
    bits    a mask of one bit for units with a residual (not built)
    text    the text tower on a second stream beside the image tower: the best case (not built)

--measured compares bytes with those that ncu counted on a GPU. Exit code: 0; 1 where one differs by more than a tenth.
"""

import argparse
import collections
import json
import re
import sys

# Name: copy rate in GB/s and bf16 products in TFLOP/s; H200: measured (tests/bench/results/gpu.md); the others: 0.85 and
# 0.79 of NVIDIA's figures, which are the H200's shares.
GPUS = {"A100": (1733, 246), "L40S": (734, 286), "RTX-4090": (857, 130), "H100": (2848, 781), "H200": (4072, 781),
        "B200": (6800, 1777)}
RESNETS = {"tiny": (16, False, (1, 1, 1, 1)), "resnet10t": (64, False, (1, 1, 1, 1)), "resnet18": (64, False, (2, 2, 2, 2)),
           "resnet34": (64, False, (3, 4, 6, 3)), "resnet50": (64, True, (3, 4, 6, 3)), "resnet101": (64, True, (3, 4, 23, 3)),
           "resnet152": (64, True, (3, 8, 36, 3))}
VITS = {"ViT-S-16": (12, 384, 16), "ViT-B-32": (12, 768, 32), "ViT-B-16": (12, 768, 16), "ViT-L-14": (24, 1024, 14)}
TEXTS = {"distil": (6, 768, 30522), "small": (4, 384, 30522), "tiny": (2, 192, 30522), "clip": (12, 512, 49408),
         "clip-large": (12, 768, 49408)}
DESIGNS = ("first", "now", "bits", "text")
E = 2  # bytes of a bf16


class Step:
    """Bytes and operations of a step in one design, by tower and kernel."""

    def __init__(self, design, batch):
        self.design = DESIGNS.index(design)
        self.batch = batch
        self.parameters = 0
        self.tower = "image"
        self.kernels = collections.defaultdict(list)  # (tower, kernel) -> [(bytes, operations)] of each call

    def has(self, design):
        return self.design >= DESIGNS.index(design)

    def add(self, kernel, size, operations=0.0):
        self.kernels[self.tower, kernel].append((size, operations))

    # ---- convolutions with batch norm ----

    def unit(self, px, cin, cout, size, stride, relu=True, residual=False, data="set"):
        """A convolution, its batch norm and what follows; `data`: the gradient of its input is set, added or none."""
        out = (px + 2 * (size // 2) - size) // stride + 1
        rows = self.batch * out * out
        i, o, w = self.batch * px * px * cin * E, rows * cout * E, size * size * cin * cout * E
        flops = 2.0 * rows * cout * size * size * cin
        self.parameters += size * size * cin * cout + 2 * cout
        if cin <= 4 and stride == 2:
            i, w, flops = self.stem_input(px, cout, size, out, flops)
        self.add("convolution", i + w + o, flops)
        self.add("convolution of weights", i + w + o, flops)
        if data != "none":
            self.add("convolution of data", o + w + (2 * i if data == "added" else i), flops)
        self.add("statistics", o)
        self.add("apply", (3 if residual else 2) * o)
        masked = relu and not self.has("now")
        if masked:
            self.add("backward_partials, mask from out", 3 * o)
            self.add("backward_apply, mask from out", (5 if residual else 4) * o)
        elif residual:
            bits = self.has("bits")
            self.add("backward_partials, mask of bits" if bits else "backward_partials, mask from out", (3 + 1 / 16 if bits else 4) * o)
            self.add("backward_apply", 3 * o)
            if bits:
                self.add("apply", o / 16)
        elif relu:
            self.add("backward_partials, mask from pre", 2 * o)
            self.add("backward_apply, mask from pre", 3 * o)
        else:
            self.add("backward_partials", 2 * o)
            self.add("backward_apply", 3 * o)
        return out

    def stem_input(self, px, cout, size, out, flops):
        """What the first convolution reads: 3 channels that cuDNN fills up to 8 each time, or squares of 2x2."""
        plain = self.batch * px * px * 3 * E
        if self.has("now"):
            side = out - 1 + (size + 1) // 2
            blocks = self.batch * side * side * 16 * E
            for _ in range(2):  # forward, and for the gradient of the weights
                self.add("pack_images", plain + blocks)
            taps = ((size + 1) // 2) ** 2 * 16
            return blocks, taps * cout * E, flops * taps / (size * size * 3)
        padded = self.batch * px * px * 8 * E
        for _ in range(2):
            self.add("filling up by cuDNN", plain + padded)
        return padded, size * size * 8 * cout * E, flops * 8 / 3

    def resnet(self, name, px):
        width, bottleneck, blocks = RESNETS[name]
        self.add("normalise_u8", self.batch * px * px * 3 * (1 + E))
        at = self.unit(px, 3, width, 7, 2, data="none")
        pooled = (at - 1) // 2 + 1
        pool = self.batch * width * (at * at * E + pooled * pooled * (E + 4))  # and the place of each maximum
        self.add("maxpool", pool)
        self.add("maxpool_bwd", pool)
        cin, at = width, pooled
        for stage, count in enumerate(blocks):
            inner = width << stage
            cout = inner * (4 if bottleneck else 1)
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                if stride != 1 or cin != cout:
                    self.unit(at, cin, cout, 1, stride, relu=False)
                if bottleneck:
                    self.unit(at, cin, inner, 1, 1, data="added")
                    end = self.unit(at, inner, inner, 3, stride)
                    self.unit(end, inner, cout, 1, 1, residual=True)
                else:
                    end = self.unit(at, cin, inner, 3, stride, data="added")
                    self.unit(end, inner, cout, 3, 1, residual=True)
                cin, at = cout, end
        self.add("average pool", 2 * self.batch * at * at * cin * E)
        return cin

    # ---- transformers ----

    def product(self, rows, width, inner):
        """A linear layer, forward and backward."""
        x, w, y = rows * inner * E, inner * width * E, rows * width * E
        self.parameters += inner * width + width
        for size in (x + w + y, y + w + x, y + x + 2 * w):
            self.add("matrix product", size, 2.0 * rows * width * inner)

    def blocks(self, layers, dim, rows, tokens):
        """`tokens`: keys that a row sees."""
        for _ in range(layers):
            self.product(rows, 3 * dim, dim)
            self.product(rows, dim, dim)
            self.product(rows, 4 * dim, dim)
            self.product(rows, dim, 4 * dim)
            self.parameters += 4 * dim
            line = rows * dim * E
            self.add("attention", 4 * line, 4.0 * rows * tokens * dim)
            self.add("attention_bwd", 8 * line, 10.0 * rows * tokens * dim)
            for _ in range(2):  # with the addition of the skip, and dropout in it
                self.add("layernorm", 4 * line)
                self.add("layernorm_bwd", 4 * line)
            self.add("gelu_bwd", 3 * 4 * line)

    def vit(self, name, px):
        layers, dim, patch = VITS[name]
        count = (px // patch) ** 2
        self.add("normalise_u8", self.batch * px * px * 3 * (1 + E))
        self.product(self.batch * count, dim, 3 * patch * patch)
        self.blocks(layers, dim, self.batch * (count + 1), count + 1)
        return dim

    def text(self, name, rows):
        layers, dim, vocabulary = TEXTS[name]
        self.tower = "text"
        self.blocks(layers, dim, rows, rows / self.batch)
        self.parameters += vocabulary * dim
        self.add("embedding", 2 * rows * dim * E)
        self.add("embedding_bwd", rows * dim * E + vocabulary * dim * 4)
        return dim

    def end(self):
        self.tower = "end"
        self.add("adamw", 30 * self.parameters)
        self.add("norm of the gradient", 4 * self.parameters)

    # ---- results ----

    def seconds(self, tower, gpu):
        rate, products = gpu[0] * 1e9, gpu[1] * 1e12
        return sum(max(b / rate, f / products) for (t, _), calls in self.kernels.items() if t == tower for b, f in calls)

    def total(self, gpu):
        image, text, rest = (self.seconds(t, gpu) for t in ("image", "text", "end"))
        if not self.has("text"):
            return image + text + rest
        # Beside each other, neither the bytes nor the operations of both become fewer.
        size = sum(b for (t, _), calls in self.kernels.items() if t != "end" for b, _ in calls)
        operations = sum(f for calls in self.kernels.values() for _, f in calls)
        return max(image, text, size / (gpu[0] * 1e9), operations / (gpu[1] * 1e12)) + rest


def step_of(design, o):
    s = Step(design, o.batch_size)
    dim = s.resnet(o.image_tower, o.image_size) if o.image_tower in RESNETS else s.vit(o.image_tower, o.image_size)
    s.product(s.batch, o.embed_dim, dim)
    if o.text_tower != "none":
        dim = s.text(o.text_tower, o.caption_tokens)
        s.product(s.batch, o.embed_dim, dim)
    s.end()
    return s


def rows_of(s, gpu):
    rate, products = gpu[0] * 1e9, gpu[1] * 1e12
    table = []
    for (tower, kernel), calls in s.kernels.items():
        size, operations = (sum(x) for x in zip(*calls, strict=True))
        table.append({"tower": tower, "kernel": kernel, "calls": len(calls), "gb": size / 1e9, "tflop": operations / 1e12,
                      "ms": 1e3 * sum(max(b / rate, f / products) for b, f in calls)})
    return sorted(table, key=lambda r: -r["ms"])


# Kernels of ours whose calls are all in the profile: name in kernels.txt, design, names here.
MEASURED = {"before": ("first", {"backward_partials<__nv_bfloat16, 8>": ("backward_partials, mask from out", "backward_partials"),
                                 "backward_apply<__nv_bfloat16, 8>": ("backward_apply, mask from out", "backward_apply"),
                                 "maxpool_bwd<__nv_bfloat16, 8>": ("maxpool_bwd",), "adamw<4>": ("adamw",)}),
            "after": ("now", {"backward_partials<1, __nv_bfloat16, 8>": ("backward_partials, mask from out",),
                              "backward_partials<2, __nv_bfloat16, 8>": ("backward_partials, mask from pre",),
                              "backward_partials<0, __nv_bfloat16, 8>": ("backward_partials",),
                              "backward_apply<0, __nv_bfloat16, 8>": ("backward_apply",),
                              "backward_apply<2, __nv_bfloat16, 8>": ("backward_apply, mask from pre",),
                              "maxpool<__nv_bfloat16, 8>": ("maxpool",), "maxpool_bwd<__nv_bfloat16, 8>": ("maxpool_bwd",),
                              "adamw<4>": ("adamw",)})}


def compare(path, o):
    """Bytes here beside those of a profile; whether they agree to a tenth."""
    part, good = None, True
    with open(path, encoding="utf-8") as f:
        for line in f:
            part = next((p for p in MEASURED if line.startswith(p)), part)
            m = re.match(r" +([\d.]+) +(\d+) +(\d+) +([\d.]+) +(.*\S)", line)
            if part and m and m[5] in MEASURED[part][1]:
                design, names = MEASURED[part][0], MEASURED[part][1][m[5]]
                here = sum(r["gb"] for r in rows_of(step_of(design, o), GPUS["H200"]) if r["kernel"] in names)
                near = abs(here - float(m[4])) <= 0.1 * float(m[4])
                good = good and near
                print(f"{part:7} {m[5]:45} {float(m[4]):7.2f} GB measured {here:7.2f} here{'' if near else '  DIFFERS'}")
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gpu", choices=GPUS, default="H200")
    p.add_argument("--bandwidth", type=float, metavar="GB/S", help="copy rate of another GPU")
    p.add_argument("--tflops", type=float, metavar="N", help="rate of bf16 products of another GPU")
    p.add_argument("--image-tower", choices=(*RESNETS, *VITS), default="resnet50")
    p.add_argument("--text-tower", choices=(*TEXTS, "none"), default="distil")
    p.add_argument("--image-size", type=int, default=224, metavar="PX")
    p.add_argument("--batch-size", type=int, default=512, metavar="N")
    p.add_argument("--embed-dim", type=int, default=256, metavar="N")
    p.add_argument("--caption-tokens", type=int, metavar="N", help="of all captions of a batch [21 per caption]")
    p.add_argument("--design", choices=DESIGNS, default="now", help="whose kernels are listed [now]")
    p.add_argument("--measured", metavar="FILE", help="compare bytes with a profile of ResNet-50 and distil")
    p.add_argument("--json", action="store_true", help="one JSON object")
    o = p.parse_args()
    o.caption_tokens = o.caption_tokens or 21 * o.batch_size
    if o.measured:
        return 0 if compare(o.measured, o) else 1
    gpu = (o.bandwidth or GPUS[o.gpu][0], o.tflops or GPUS[o.gpu][1])
    shown = step_of(o.design, o)
    totals = {d: 1e3 * step_of(d, o).total(gpu) for d in DESIGNS}
    if o.json:
        print(json.dumps({"gpu": o.gpu, "parameters": shown.parameters, "kernels": rows_of(shown, gpu), "step_ms": totals}))
        return 0
    for r in rows_of(shown, gpu):
        print(f"{r['tower']:6}{r['kernel']:36}{r['calls']:4} calls {r['gb']:7.2f} GB {r['tflop']:7.3f} TFLOP {r['ms']:7.2f} ms")
    print(f"{shown.parameters / 1e6:.1f} million parameters; {gpu[0]:.0f} GB/s, {gpu[1]:.0f} TFLOP/s")
    for design, ms in totals.items():
        print(f"{design:6} {ms:7.2f} ms {o.batch_size / ms * 1e3:9.0f} pairs/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
