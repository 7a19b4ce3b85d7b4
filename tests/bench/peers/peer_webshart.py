"""webshart over the source tars and the indexes it makes of them, read at random, with PyTorch's worker processes; torchvision decodes."""

import contextlib
import importlib.metadata
import os
import sys
import tempfile

import torch
import torchvision
import webshart
from torchvision.transforms import InterpolationMode, v2

import peer


class Images(torch.utils.data.Dataset):
    def __init__(self, folder, size):
        self.folder, self.readers = folder, None
        dataset = webshart.discover_dataset(folder)
        self.samples = [(shard, i) for shard in range(dataset.num_shards)
                        for i, name in enumerate(dataset.list_files_in_shard(shard)) if name.endswith(".jpg")]
        self.crop = v2.Compose([
            v2.RandomResizedCrop(size, scale=peer.SCALE, ratio=peer.RATIO,
                                 interpolation=InterpolationMode.BICUBIC, antialias=True),
            v2.RandomHorizontalFlip(0.5),
        ])

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        if self.readers is None:  # opened in the worker
            dataset = webshart.discover_dataset(self.folder)
            self.readers = [dataset.open_shard(shard) for shard in range(dataset.num_shards)]
        shard, i = self.samples[index]
        data = torch.frombuffer(bytearray(self.readers[shard].read_file(i)), dtype=torch.uint8)
        return self.crop(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB))


def main():
    args = peer.arguments("tars in WebDataset layout")
    with tempfile.TemporaryDirectory() as folder:
        for path in args.data:
            os.symlink(os.path.abspath(path), os.path.join(folder, os.path.basename(path)))
        with contextlib.redirect_stdout(sys.stderr):
            webshart.MetadataExtractor().extract_metadata(folder, folder)
        loader = torch.utils.data.DataLoader(Images(folder, args.size), batch_size=args.batch, shuffle=True, num_workers=args.workers,
                                             drop_last=True, persistent_workers=args.workers > 0)
        peer.measure("webshart", "webshart %s, torchvision %s" % (importlib.metadata.version("webshart"), torchvision.__version__),
                     args, peer.forever(lambda: iter(loader)))


if __name__ == "__main__":
    main()
