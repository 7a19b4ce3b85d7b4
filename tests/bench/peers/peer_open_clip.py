"""open_clip's own WebDataset reader (`open_clip_train.data.get_wds_dataset`), over the source tars; Pillow decodes, PyTorch's worker processes."""

import argparse

import open_clip
import webdataset
from open_clip_train.data import get_wds_dataset
from torchvision.transforms import InterpolationMode, v2

import peer

args = peer.arguments("tars in WebDataset layout")

crop = v2.Compose([
    v2.RandomResizedCrop(args.size, scale=peer.SCALE, ratio=peer.RATIO,
                         interpolation=InterpolationMode.BICUBIC, antialias=True),
    v2.RandomHorizontalFlip(0.5),
])


def transform(image):
    return v2.functional.pil_to_tensor(crop(image.convert("RGB")))


def no_tokens(text):
    return [0]


def main():
    options = argparse.Namespace(train_data="::".join(args.data), train_data_upsampling_factors=None, train_num_samples=1 << 30,
                                 dataset_resampled=True, seed=0, batch_size=args.batch, workers=args.workers, world_size=1)
    loader = get_wds_dataset(options, transform, is_train=True, tokenizer=no_tokens).dataloader
    peer.measure("open_clip", "open_clip %s, webdataset %s" % (open_clip.__version__, webdataset.__version__), args,
                 (images for images, _ in loader))


if __name__ == "__main__":
    main()
