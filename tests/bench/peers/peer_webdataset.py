"""WebDataset over the source tars, decoded by Pillow, with PyTorch's worker processes."""

import io

import torch
import webdataset as wds
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

import peer

args = peer.arguments("tars in WebDataset layout")

transform = v2.Compose([
    v2.RandomResizedCrop(args.size, scale=peer.SCALE, ratio=peer.RATIO,
                         interpolation=InterpolationMode.BICUBIC, antialias=True),
    v2.RandomHorizontalFlip(0.5),
])


def decode(sample):
    with Image.open(io.BytesIO(sample["jpg"])) as image:
        return v2.functional.pil_to_tensor(transform(image.convert("RGB")))


def main():
    # Workers take whole tars, so that more workers than tars would have nothing to do.
    workers = min(args.workers, len(args.data))
    pipeline = wds.DataPipeline(
        wds.ResampledShards(args.data),
        wds.tarfile_to_samples(),
        wds.shuffle(1000),
        wds.select(lambda sample: "jpg" in sample),
        wds.map(decode),
        wds.batched(args.batch, partial=False, collation_fn=torch.utils.data.default_collate),
    )
    args.workers = workers
    loader = wds.WebLoader(pipeline, batch_size=None, num_workers=workers)
    peer.measure("webdataset", "webdataset " + wds.__version__, args, peer.forever(lambda: iter(loader)))


if __name__ == "__main__":
    main()
