"""DALI's dynamic mode on the CPU, over a folder of JPEG files: fused decode of the crop, resize, mirror, called batch by batch."""

import glob
import os

import numpy as np
import nvidia.dali as dali
import nvidia.dali.experimental.dynamic as ndd
from nvidia.dali import types

import peer

args = peer.arguments("folder of JPEG files")
files = sorted(f for d in args.data for f in glob.glob(os.path.join(d, "*.jpg")))
assert files, "no *.jpg in %s" % args.data


def epoch(reader):
    for data, _ in reader.next_epoch(batch_size=args.batch):
        crop = ndd.decoders.image_random_crop(data, device="cpu", output_type=types.RGB, random_area=list(peer.SCALE),
                                              random_aspect_ratio=list(peer.RATIO))
        image = ndd.resize(crop, size=[args.size, args.size], interp_type=types.INTERP_CUBIC, antialias=True)
        mirror = ndd.random.coin_flip(probability=0.5, batch_size=args.batch)
        image = ndd.flip(image, horizontal=mirror)
        yield np.asarray(ndd.as_tensor(image))


def main():
    ndd.set_num_threads(args.workers)
    reader = ndd.readers.File(files=files, random_shuffle=True, initial_fill=4096)
    peer.measure("dali-dynamic", "dali " + dali.__version__, args,
                 (batch for batch in peer.forever(lambda: epoch(reader)) if len(batch) == args.batch))


if __name__ == "__main__":
    main()
