"""FFCV's DatasetWriter, one file, on worker processes. It takes pixels and encodes each image again, also those that keep their size."""

import os

import numpy as np
from ffcv.fields import BytesField, RGBImageField
from ffcv.writer import DatasetWriter
from PIL import Image

import pack


class Samples:
    def __init__(self, a):
        self.files, self.size = a.files, a.size

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with Image.open(self.files[i]) as image:
            if self.size and min(image.size) > self.size:
                image = pack.small(image, self.size)
            pixels = np.array(image.convert("RGB"))
        return pixels, np.frombuffer(pack.caption(self.files[i]).encode(), dtype=np.uint8)


if __name__ == "__main__":
    args = pack.arguments()
    os.makedirs(args.out)
    writer = DatasetWriter(os.path.join(args.out, "images.beton"),
                           {"image": RGBImageField(write_mode="jpg", jpeg_quality=args.quality), "caption": BytesField()},
                           num_workers=args.workers)
    writer.from_indexed_dataset(Samples(args))
