#!/usr/bin/env python3
"""Makes ops.txt and ops.bin: the results of the libraries that the papers' code uses, for the cases below.

    pip install "opencv-python-headless==4.8.1.78" "numpy<2" pillow torch torchvision xxhash
    tests/golden/augment/make_golden.py

A line of ops.txt: op, its numbers, kind and sides of the input (see picture()), then either the
XXH64 of the result, where ours has to be the same to the byte, or the word "bytes" and the sides of
the result, which then follows in ops.bin. The op "crop_eval SIZE RATIO" changes the sides.
"""
import os

import cv2
import numpy as np
import PIL
import torch
import torchvision
import torchvision.transforms.functional as F
import xxhash
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import InterpolationMode

FILL = (128, 128, 128)
EXACT_SIZES = [(256, 256), (61, 47), (224, 224), (33, 3), (3, 19), (2, 2), (1, 1), (1, 9), (300, 20)]
BYTES_SIZES = [(45, 38), (7, 5)]


def picture(kind, width, height):
    """As test_ops.c makes it: 0 pattern, 1 noise, 2 narrow range, 3 flat, 4 smooth."""
    x, y, c = np.meshgrid(np.arange(width), np.arange(height), np.arange(3), indexing="xy")
    x, y, c = (a.astype(np.uint32) for a in (x, y, c))
    noise = ((x * 73856093) ^ (y * 19349663) ^ (c * 83492791)) * np.uint32(2654435761) >> 24
    if kind == 0:
        v = (x * 7 + y * 13 + c * 50) ^ ((x * y) >> 3)
    elif kind == 1:
        v = noise
    elif kind == 2:
        v = 60 + c * 20 + noise % 64 + x * 40 // width
    elif kind == 3:
        v = 77 + c
    else:
        v = (x * (200 - 60 * c) // width + y * (20 + 90 * c) // height + noise % 4) % 256
    return (v & 255).astype(np.uint8)


def on_pil(function):
    return lambda a, *args: np.array(function(Image.fromarray(a), *args))


def sharpness(a):
    kernel = np.ones((3, 3), np.float32)
    kernel[1, 1] = 5
    smooth = cv2.filter2D(a, -1, kernel / np.float32(13)).astype(np.float32)
    out = a.astype(np.float32)
    inner = (slice(1, -1), slice(1, -1))
    factor = 7 / 10 * 1.8 + 0.1
    out[inner] = smooth[inner] + factor * (out[inner] - smooth[inner])
    return out.astype(np.int32).astype(np.uint8)  # past the ends it wraps around


def warp(a, matrix):
    return cv2.warpAffine(a, matrix, (a.shape[1], a.shape[0]), borderValue=FILL,
                          flags=cv2.INTER_LINEAR)


def rotate(a, degrees):
    height, width = a.shape[:2]
    return warp(a, cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1))


def crop_eval(image, size, ratio):
    shorter = round(size * ratio)
    return F.center_crop(F.resize(image, shorter, InterpolationMode.BILINEAR), size)


OPS = {
    "autocontrast": on_pil(ImageOps.autocontrast),
    "equalize": on_pil(ImageOps.equalize),
    "brightness": on_pil(lambda i, f: F.adjust_brightness(i, f)),
    "contrast": on_pil(lambda i, f: F.adjust_contrast(i, f)),
    "saturation": on_pil(lambda i, f: F.adjust_saturation(i, f)),
    "gray": on_pil(lambda i: F.to_grayscale(i, 3)),
    "hue": on_pil(lambda i, f: F.adjust_hue(i, f)),
    "blur": on_pil(lambda i, sigma, radius: F.gaussian_blur(i, 2 * int(radius) + 1, sigma)),
    "crop_eval": on_pil(crop_eval),
    "sharpness": sharpness,
    "shear_x": lambda a, f: warp(a, np.float32([[1, f, 0], [0, 1, 0]])),
    "shear_y": lambda a, f: warp(a, np.float32([[1, 0, 0], [f, 1, 0]])),
    "rotate": rotate,
    "translate": lambda a, x, y: warp(a, np.float32([[1, 0, x], [0, 1, y]])),
}
EXACT = [
    ("autocontrast", []), ("equalize", []), ("gray", []), ("sharpness", []),
    ("brightness", [1.36]), ("brightness", [0.2]), ("brightness", [1.7999]), ("brightness", [1.0]),
    ("contrast", [0.0]), ("contrast", [0.37]), ("contrast", [1.62]),
    ("saturation", [0.0]), ("saturation", [0.55]), ("saturation", [1.8]),
    ("shear_x", [0.21]), ("shear_x", [-0.21]), ("shear_y", [0.21]), ("shear_y", [-0.21]),
    ("rotate", [21.0]), ("rotate", [-21.0]), ("rotate", [90.0]),
    ("translate", [7, 0]), ("translate", [-7, 0]), ("translate", [0, 7]), ("translate", [0, -7]),
]
NEAR = [
    ("hue", [0.2]), ("hue", [-0.2]), ("hue", [-0.071]), ("hue", [0.0]),
    ("blur", [0.1, 2]), ("blur", [0.7, 3]), ("blur", [2.0, 4]),
]
CROPS = [((90, 60), [32, 1.0]), ((60, 91), [32, 256 / 224]), ((200, 333), [48, 256 / 224]),
         ((31, 20), [40, 1.0]), ((64, 64), [32, 1.0])]


def cases():
    for name, args in EXACT:
        for i, (width, height) in enumerate(EXACT_SIZES):
            for kind in range(5) if i < 2 else [i % 5]:
                yield name, args, kind, (width, height), True
    for name, args in NEAR:
        for width, height in BYTES_SIZES:
            for kind in (0, 1, 4):
                yield name, args, kind, (width, height), False
    for size, args in CROPS:
        for kind in (0, 4):
            yield "crop_eval", args, kind, size, False


here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "ops.txt"), "w") as lines, \
        open(os.path.join(here, "ops.bin"), "wb") as pixels:
    lines.write(f"# Pillow {PIL.__version__}, OpenCV {cv2.__version__}, "
                f"torchvision {torchvision.__version__}, torch {torch.__version__}\n")
    for name, args, kind, (width, height), exact in cases():
        out = np.ascontiguousarray(OPS[name](picture(kind, width, height), *args))
        numbers = " ".join(repr(a) for a in args + [0] * (2 - len(args)))
        if exact:
            end = xxhash.xxh64(out.tobytes()).hexdigest()
        else:
            end = f"bytes {out.shape[1]} {out.shape[0]}"
            pixels.write(out.tobytes())
        lines.write(f"{name} {numbers} {kind} {width} {height} {end}\n")
