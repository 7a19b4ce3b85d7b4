#!/usr/bin/env python3
"""Trains a ResNet-50 and a DistilBERT from random weights with NUCLR, fed by ccstream.

    python3 train_nuclr.py cc3m --out runs/a                  # one process
    torchrun --nproc-per-node 8 train_nuclr.py cc3m --out runs/a    # --batch-size is that of all ranks

pip install torch timm transformers. The dataset needs a vocabulary: ccpack tokenizer cc3m. Repeat the
command to continue. `ccdump popularity runs/a/loss.safetensors` then lists the samples by zeta.
"""
import argparse
import math
import os
from typing import Any

import timm
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import DistilBertConfig, DistilBertModel

import ccstream
from ccstream.torch import GlobalContrastiveLoss, NormalizeOnDevice


class Towers(torch.nn.Module):
    def __init__(self, vocabulary: int, tokens: int, image_model: str, layers: int, width: int = 256):
        super().__init__()
        self.image = timm.create_model(image_model, pretrained=False, num_classes=width)
        config = DistilBertConfig(vocab_size=vocabulary, max_position_embeddings=tokens, n_layers=layers)
        self.text = DistilBertModel(config)
        self.project = torch.nn.Linear(config.dim, width)

    def forward(self, images: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor) -> list[torch.Tensor]:
        mask = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        text = self.text(input_ids=tokens, attention_mask=mask).last_hidden_state[:, 0]
        embeddings = self.image(images), self.project(text)
        return [torch.nn.functional.normalize(e.float(), dim=-1) for e in embeddings]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("data")
parser.add_argument("--out", required=True)
parser.add_argument("--batch-size", "--batch", type=int, default=512)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--size", type=int, default=256)
parser.add_argument("--image-model", default="resnet50")
parser.add_argument("--text-layers", type=int, default=6)
args = parser.parse_args()

device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")
if "WORLD_SIZE" in os.environ:
    dist.init_process_group()
ds = ccstream.Dataset(args.data)
dl = ccstream.DataLoader(ds, args.batch_size, args.size, augment="paper", pin_memory=device.type == "cuda")
towers = Towers(len(ccstream.Tokenizer(ds)), 30, args.image_model, args.text_layers).to(device)
model = DistributedDataParallel(towers, broadcast_buffers=False) if dist.is_initialized() else towers
normalize = NormalizeOnDevice().to(device)
loss = GlobalContrastiveLoss("nuclr", len(ds), id_space=ds.id_space, steps_per_epoch=len(dl), epochs=args.epochs).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4, weight_decay=0.02)
total = args.epochs * len(dl)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: min(1, (step + 1) / 500) * 0.5 * (1 + math.cos(math.pi * min(1, step / total))))
parts: dict[str, Any] = {"model": towers, "loss": loss, "optimizer": optimizer, "schedule": schedule, "loader": dl}

checkpoint = os.path.join(args.out, "checkpoint.pt")
if os.path.exists(checkpoint):
    for name, state in torch.load(checkpoint, map_location=device, weights_only=True).items():
        parts[name].load_state_dict(state)
while dl.epoch < args.epochs:
    for batch in dl:
        x = batch.to(device)
        with torch.autocast(device.type, torch.bfloat16):
            image, text = model(normalize(x["image"]), x["tokens"], x["length"])
        value = loss(image, text, x["id"])
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        schedule.step()
    if dl.rank == 0:
        print(f"epoch {batch.epoch}: objective {loss.objective:.4f}, {dl.stats()['stall_seconds']:.1f} s waited for data")
        os.makedirs(args.out, exist_ok=True)
        torch.save({name: part.state_dict() for name, part in parts.items()}, checkpoint + ".new")
        os.replace(checkpoint + ".new", checkpoint)
        loss.save(os.path.join(args.out, "loss.safetensors"), ds.fingerprint)
