"""Megatron-Energon over the source tars, after its `energon prepare`, with its worker processes; torchvision decodes and scales tensors."""

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import tempfile

import torch
import torchvision
from megatron.energon import DefaultTaskEncoder, SkipSample, WorkerConfig, get_loader, get_train_dataset, stateless
from megatron.energon.task_encoder.cooking import Cooker
from torchvision.transforms import InterpolationMode, v2

import peer


@stateless
def cook(sample):
    if "jpg" not in sample:
        raise SkipSample()
    return sample


class Decode(DefaultTaskEncoder):
    decoder = None
    cookers = [Cooker(cook)]

    def __init__(self, size):
        super().__init__()
        self.crop = v2.Compose([
            v2.RandomResizedCrop(size, scale=peer.SCALE, ratio=peer.RATIO,
                                 interpolation=InterpolationMode.BICUBIC, antialias=True),
            v2.RandomHorizontalFlip(0.5),
        ])

    @stateless(restore_seeds=True)
    def encode_sample(self, sample):
        data = torch.frombuffer(bytearray(sample["jpg"]), dtype=torch.uint8)
        return self.crop(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB))

    def batch(self, samples):
        return torch.stack(samples)


def main():
    args = peer.arguments("tars in WebDataset layout")
    with tempfile.TemporaryDirectory() as folder:
        for path in args.data:
            os.symlink(os.path.abspath(path), os.path.join(folder, os.path.basename(path)))
        with contextlib.redirect_stdout(sys.stderr):
            subprocess.run([os.path.join(os.path.dirname(sys.executable), "energon"), "prepare", folder, "--non-interactive",
                            "--split-ratio", "1,0,0", "--sample-type", "CrudeWebdataset", "--no-progress"], check=True, stdout=sys.stderr)
        dataset = get_train_dataset(folder, batch_size=args.batch, shuffle_buffer_size=1000, max_samples_per_sequence=100,
                                    worker_config=WorkerConfig.default_worker_config(args.workers), task_encoder=Decode(args.size))
        peer.measure("energon", "megatron-energon %s, torchvision %s" %
                     (importlib.metadata.version("megatron-energon"), torchvision.__version__), args, iter(get_loader(dataset)))


if __name__ == "__main__":
    main()
