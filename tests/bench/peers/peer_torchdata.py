"""torchdata's nodes over a folder of JPEG files, decoded by torchvision. Its workers are threads, each of which makes whole batches:
processes took twice the CPU time, and ended with "terminate called without an active exception".
"""

import glob
import importlib.metadata
import os

import torch
import torchvision
from torch.utils.data import BatchSampler, RandomSampler, default_collate
from torchdata.nodes import Loader, ParallelMapper, SamplerWrapper
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


def image(path):
    data = torchvision.io.read_file(path)
    return transform(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB))


def make_batch(indices):
    return default_collate([image(files[i]) for i in indices])


def main():
    torch.set_num_threads(1)
    node = SamplerWrapper(BatchSampler(RandomSampler(files), args.batch, drop_last=True))
    node = ParallelMapper(node, make_batch, num_workers=args.workers, in_order=False, method="thread")
    loader = Loader(node)
    peer.measure("torchdata",
                 "torchdata %s, torchvision %s" % (importlib.metadata.version("torchdata"), torchvision.__version__),
                 args, peer.forever(lambda: iter(loader)))
    os._exit(0)  # its threads live on, and would abort the program here


if __name__ == "__main__":
    main()
