#!/usr/bin/env python3
"""Trains with PyTorch Lightning: its checkpoints have the position in the data and the loss's state.

    python3 train_lightning.py cc3m --out runs/a [--devices 2]

pip install lightning timm. The dataset needs a vocabulary: ccpack tokenizer cc3m. Repeat the command to continue, also inside an epoch.
"""
import argparse
import os

import lightning
import timm
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy

import ccstream
from ccstream.torch import GlobalContrastiveLoss, NormalizeOnDevice


class Towers(lightning.LightningModule):
    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.args, self.ds = args, ccstream.Dataset(args.data)
        self.normalize = NormalizeOnDevice()
        self.image = timm.create_model(args.image_model, pretrained=False, num_classes=256)
        self.text = torch.nn.EmbeddingBag(len(ccstream.Tokenizer(self.ds)), 256, padding_idx=0)
        self.loss = GlobalContrastiveLoss("sogclr", len(self.ds), id_space=self.ds.id_space, compute="float32")

    def train_dataloader(self) -> ccstream.DataLoader:  # here the ranks are known
        return ccstream.DataLoader(self.ds, self.args.batch_size, self.args.size, augment="crop",
                                   pin_memory=self.device.type == "cuda")

    def training_step(self, batch: ccstream.Batch, index: int) -> torch.Tensor:  # a Batch with tensors on the device
        embeddings = self.image(self.normalize(batch["image"])), self.text(batch["tokens"])
        value: torch.Tensor = self.loss(*(torch.nn.functional.normalize(e.float(), dim=-1) for e in embeddings), batch["id"])
        self.log("objective", self.loss.objective, prog_bar=True)
        return value

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data")
parser.add_argument("--out", required=True)
parser.add_argument("--batch-size", type=int, default=512, help="of all devices together")
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--max-steps", type=int, default=-1)
parser.add_argument("--devices", type=int, default=1)
parser.add_argument("--image-model", default="resnet50")
args = parser.parse_args()
lightning.seed_everything(0, verbose=False)
trainer = lightning.Trainer(
    max_epochs=args.epochs, max_steps=args.max_steps, devices=args.devices, logger=False, enable_model_summary=False,
    # the state is the same on all ranks, and large: no broadcast of it in every step
    strategy=DDPStrategy(broadcast_buffers=False) if args.devices > 1 else "auto",
    callbacks=[ModelCheckpoint(args.out, save_last=True, enable_version_counter=False,
                               every_n_train_steps=1 if args.max_steps > 0 else 1000,
                               save_on_train_epoch_end=True)])
last = os.path.join(args.out, "last.ckpt")
trainer.fit(Towers(args), ckpt_path=last if os.path.exists(last) else None, weights_only=False)
