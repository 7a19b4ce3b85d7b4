#!/usr/bin/env python3
"""Trains with Hugging Face accelerate: its saved states have the position in the data and the loss's state.

    accelerate launch train_accelerate.py cc3m --out runs/a

pip install accelerate timm. The dataset needs a vocabulary: ccpack tokenizer cc3m. Repeat the command to continue, also inside an epoch.
"""
import argparse
import os

import timm
import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import send_to_device, set_seed

import ccstream
from ccstream.torch import NormalizeOnDevice, make_loss


class Towers(torch.nn.Module):
    def __init__(self, image_model: str, vocabulary: int):
        super().__init__()
        self.image = timm.create_model(image_model, pretrained=False, num_classes=256)
        self.text = torch.nn.EmbeddingBag(vocabulary, 256, padding_idx=0)

    def forward(self, images: torch.Tensor, tokens: torch.Tensor) -> list[torch.Tensor]:
        return [torch.nn.functional.normalize(e.float(), dim=-1) for e in (self.image(images), self.text(tokens))]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data")
parser.add_argument("--out", required=True)
parser.add_argument("--loss", default="nuclr", help="any of ccstream-train")
parser.add_argument("--batch-size", type=int, default=512, help="of all processes together")
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--max-steps", type=int, default=0, help="stop then, to be continued")
parser.add_argument("--image-model", default="resnet50")
args = parser.parse_args()

accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)])
set_seed(0)
ds = ccstream.Dataset(args.data)
dl = ccstream.DataLoader(ds, args.batch_size, args.size, augment="crop", pin_memory=accelerator.device.type == "cuda")
towers = Towers(args.image_model, len(ccstream.Tokenizer(ds)))
model, optimizer = accelerator.prepare(towers, torch.optim.AdamW(towers.parameters(), lr=1e-3))
normalize = NormalizeOnDevice().to(accelerator.device)
loss = make_loss(args.loss, len(ds), id_space=ds.id_space, steps_per_epoch=len(dl), epochs=args.epochs).to(accelerator.device)
accelerator.register_for_checkpointing(loss, dl)
if os.path.exists(args.out):
    accelerator.load_state(args.out)
while dl.epoch < args.epochs and (not args.max_steps or loss.step < args.max_steps):
    for batch in dl:
        x = send_to_device(batch, accelerator.device)
        value = loss(*model(normalize(x["image"]), x["tokens"]), x["id"], lr=1e-3)
        optimizer.zero_grad()
        accelerator.backward(value)
        optimizer.step()
        if loss.step == args.max_steps:
            break
    else:
        accelerator.print(f"epoch {batch.epoch}: objective {loss.objective:.4f}")
    accelerator.save_state(args.out)
    if loss.step == args.max_steps:
        break
