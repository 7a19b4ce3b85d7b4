"""PyTorch's DataLoader over a folder of JPEG files, decoded by Pillow or by torchvision."""

import glob
import os

import torch
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

import peer

args = peer.arguments("folder of JPEG files")
files = sorted(f for d in args.data for f in glob.glob(os.path.join(d, "*.jpg")))
assert files, "no *.jpg in %s" % args.data

transform = v2.Compose([
    v2.RandomResizedCrop(args.size, scale=peer.SCALE, ratio=peer.RATIO,
                         interpolation=InterpolationMode.BICUBIC, antialias=True),
    v2.RandomHorizontalFlip(0.5),
])


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return len(files)

    def __getitem__(self, i):
        if args.decode == "torchvision":
            data = torchvision.io.read_file(files[i])
            return transform(torchvision.io.decode_jpeg(
                data, mode=torchvision.io.ImageReadMode.RGB))
        with Image.open(files[i]) as image:
            return v2.functional.pil_to_tensor(transform(image.convert("RGB")))


def main():
    loader = torch.utils.data.DataLoader(
        Images(), batch_size=args.batch, shuffle=True, num_workers=args.workers, drop_last=True,
        persistent_workers=args.workers > 0)
    if args.workers == 0:
        torch.set_num_threads(1)
    peer.measure("torch-" + args.decode,
                 "torch %s, torchvision %s" % (torch.__version__, torchvision.__version__),
                 args, peer.forever(lambda: iter(loader)))


if __name__ == "__main__":
    main()
