"""LitData over its own chunks, which are made from a folder of JPEG files with their bytes untouched; torchvision decodes."""

import contextlib
import glob
import importlib.metadata
import os
import sys
import tempfile

import litdata
import torch
import torchvision
from torchvision.transforms import InterpolationMode, v2

import peer


def sample(path):
    with open(path, "rb") as file:
        return file.read()


class Images(litdata.StreamingDataset):
    def __init__(self, folder, size):
        super().__init__(folder, shuffle=True, drop_last=True)
        self.crop = v2.Compose([
            v2.RandomResizedCrop(size, scale=peer.SCALE, ratio=peer.RATIO,
                                 interpolation=InterpolationMode.BICUBIC, antialias=True),
            v2.RandomHorizontalFlip(0.5),
        ])

    def __getitem__(self, index):
        data = torch.frombuffer(bytearray(super().__getitem__(index)), dtype=torch.uint8)
        return self.crop(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB))


def main():
    args = peer.arguments("folder of JPEG files")
    files = sorted(f for d in args.data for f in glob.glob(os.path.join(d, "*.jpg")))
    assert files, "no *.jpg in %s" % args.data
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(sys.stderr):
            litdata.optimize(sample, files, folder, chunk_bytes="64MB", num_workers=args.workers)
        loader = litdata.StreamingDataLoader(Images(folder, args.size), batch_size=args.batch,
                                             num_workers=args.workers, persistent_workers=args.workers > 0)
        peer.measure("litdata", "litdata %s, torchvision %s" % (importlib.metadata.version("litdata"), torchvision.__version__),
                     args, (batch for batch in peer.forever(lambda: iter(loader)) if len(batch) == args.batch))


if __name__ == "__main__":
    main()
