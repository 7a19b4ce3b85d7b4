"""SPDL over a folder of JPEG files: its threads, FFmpeg's decoder and filters (crop, bicubic scale without antialiasing, mirror)."""

import glob
import importlib.metadata
import math
import os
import random

import spdl.io
from spdl.pipeline import PipelineBuilder

import peer

args = peer.arguments("folder of JPEG files")
files = sorted(f for d in args.data for f in glob.glob(os.path.join(d, "*.jpg")))
assert files, "no *.jpg in %s" % args.data


def crop(width, height):
    """Left, top, width, height of a random resized crop."""
    for _ in range(10):
        area = width * height * random.uniform(*peer.SCALE)
        ratio = math.exp(random.uniform(math.log(peer.RATIO[0]), math.log(peer.RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    return 0, 0, width, height


def image(path):
    packets = spdl.io.demux_image(path)
    x, y, w, h = crop(packets.codec.width, packets.codec.height)
    mirror = "hflip," if random.random() < 0.5 else ""
    return spdl.io.decode_packets(packets, filter_desc=f"crop={w}:{h}:{x}:{y}:exact=1,scale={args.size}:{args.size}:flags=bicubic,"
                                                       f"{mirror}format=pix_fmts=rgb24")


def shuffled():
    while True:
        yield from random.sample(files, len(files))


def batches():
    pipeline = (PipelineBuilder()
                .add_source(shuffled())
                .pipe(image, concurrency=args.workers)
                .aggregate(args.batch)
                .pipe(lambda frames: spdl.io.to_numpy(spdl.io.convert_frames(frames)))
                .add_sink(2)
                .build(num_threads=args.workers + 1))
    with pipeline.auto_stop():
        yield from pipeline


if __name__ == "__main__":
    peer.measure("spdl", "spdl " + importlib.metadata.version("spdl"), args, batches())
    os._exit(0)  # its source is without end
