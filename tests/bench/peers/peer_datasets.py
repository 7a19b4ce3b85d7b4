"""Hugging Face datasets, streaming the source tars, with PyTorch's worker processes; torchvision decodes and scales tensors."""

import datasets
import torch
import torchvision
from torchvision.transforms import InterpolationMode, v2

import peer


class Decode:
    def __init__(self, size):
        self.crop = v2.Compose([
            v2.RandomResizedCrop(size, scale=peer.SCALE, ratio=peer.RATIO,
                                 interpolation=InterpolationMode.BICUBIC, antialias=True),
            v2.RandomHorizontalFlip(0.5),
        ])

    def __call__(self, sample):
        data = torch.frombuffer(bytearray(sample["jpg"]["bytes"]), dtype=torch.uint8)
        return {"image": self.crop(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB))}


def main():
    args = peer.arguments("tars in WebDataset layout")
    # Workers take whole tars, so that more workers than tars would have nothing to do.
    args.workers = min(args.workers, len(args.data))
    stream = datasets.load_dataset("webdataset", data_files={"train": args.data}, split="train", streaming=True)
    stream = stream.cast_column("jpg", datasets.Image(decode=False)).select_columns(["jpg"])
    stream = stream.shuffle(seed=7, buffer_size=1000).map(Decode(args.size), remove_columns=["jpg"])
    loader = torch.utils.data.DataLoader(stream, batch_size=args.batch, num_workers=args.workers, drop_last=True,
                                         persistent_workers=args.workers > 0)
    peer.measure("datasets", "datasets %s, torchvision %s" % (datasets.__version__, torchvision.__version__), args,
                 (batch["image"] for batch in peer.forever(lambda: iter(loader))))


if __name__ == "__main__":
    main()
