"""FFCV over its own file, which is made from a folder of JPEG files with their bytes untouched.

Its crop is scaled by OpenCV's area filter, not by an antialiased bicubic one: less work than the others'.
"""

import glob
import importlib.metadata
import os
import tempfile

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip
from ffcv.writer import DatasetWriter
from PIL import Image

import peer

args = peer.arguments("folder of JPEG files")
files = sorted(f for d in args.data for f in glob.glob(os.path.join(d, "*.jpg")))
assert files, "no *.jpg in %s" % args.data


class Images:
    def __len__(self):
        return len(files)

    def __getitem__(self, i):
        with Image.open(files[i]) as image:
            return np.array(image.convert("RGB")), i


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "images.beton")
        # Its writer takes pixels, so the images are encoded once more.
        writer = DatasetWriter(path, {"image": RGBImageField(write_mode="jpg", jpeg_quality=90),
                                      "label": IntField()}, num_workers=args.workers)
        writer.from_indexed_dataset(Images())
        decoder = RandomResizedCropRGBImageDecoder((args.size, args.size), scale=peer.SCALE,
                                                   ratio=peer.RATIO)
        loader = Loader(path, batch_size=args.batch, num_workers=args.workers,
                        order=OrderOption.RANDOM, drop_last=True, os_cache=True,
                        pipelines={"image": [decoder, RandomHorizontalFlip(0.5)], "label": None})
        peer.measure("ffcv", "ffcv " + importlib.metadata.version("ffcv"), args,
                     peer.forever(lambda: (batch[0] for batch in loader)))


if __name__ == "__main__":
    main()
