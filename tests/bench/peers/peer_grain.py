"""Grain over a folder of JPEG files: its worker processes; Pillow decodes and scales the crop, NumPy mirrors."""

import glob
import importlib.metadata
import math
import os

import grain
import numpy as np
from PIL import Image

import peer


class Crop(grain.transforms.RandomMap):
    """Random resized crop, antialiased bicubic, and mirror."""

    def __init__(self, size):
        self.size = size

    def random_map(self, path, rng):
        with Image.open(path) as image:
            image = image.convert("RGB").resize((self.size, self.size), Image.BICUBIC, box=self.box(*image.size, rng))
        pixels = np.asarray(image)
        return pixels[:, ::-1] if rng.random() < 0.5 else pixels

    @staticmethod
    def box(width, height, rng):
        for _ in range(10):
            area = width * height * rng.uniform(*peer.SCALE)
            ratio = math.exp(rng.uniform(math.log(peer.RATIO[0]), math.log(peer.RATIO[1])))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                x, y = rng.integers(0, width - w + 1), rng.integers(0, height - h + 1)
                return x, y, x + w, y + h
        return 0, 0, width, height


def main():
    args = peer.arguments("folder of JPEG files")
    files = sorted(f for d in args.data for f in glob.glob(os.path.join(d, "*.jpg")))
    assert files, "no *.jpg in %s" % args.data
    dataset = grain.MapDataset.source(files).seed(7).shuffle().repeat().random_map(Crop(args.size))
    dataset = dataset.batch(args.batch, drop_remainder=True)
    dataset = dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=2))
    dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=args.workers))
    peer.measure("grain", "grain " + importlib.metadata.version("grain"), args, iter(dataset))
    os._exit(0)  # its workers make batches without end


if __name__ == "__main__":
    main()
