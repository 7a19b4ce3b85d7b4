#!/usr/bin/env python3
"""Training steps of PyTorch on the CPU, as `ccbench step` takes them: the same towers (timm's ResNets,
transformers' DistilBERT), batch, threads and precision, channels_last, AdamW; one JSON line.

    python3 torch_step.py --tower image --image-tower resnet50 --image-size 224 --batch 16
"""
import argparse
import json
import statistics
import time

import torch

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
TEXT = {"tiny": (2, 192, 3, 768), "small": (4, 384, 6, 1536), "distil": (6, 768, 12, 3072)}


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--tower", choices=("both", "image", "text"), default="both")
    p.add_argument("--image-tower", default="resnet50")
    p.add_argument("--text-tower", choices=TEXT, default="distil")
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--vocab", type=int, default=30522)
    p.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--full", action="store_true")
    return p.parse_args()


class Model(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        if o.tower != "text":
            import timm
            self.image = timm.create_model(o.image_tower, pretrained=False, num_classes=0)
            self.image = self.image.to(memory_format=torch.channels_last)
        if o.tower != "image":
            from transformers import DistilBertConfig, DistilBertModel
            layers, dim, heads, hidden = TEXT[o.text_tower]
            self.text = DistilBertModel(DistilBertConfig(
                vocab_size=o.vocab, n_layers=layers, dim=dim, n_heads=heads, hidden_dim=hidden,
                max_position_embeddings=512))
        if o.tower == "both":
            self.image_proj = torch.nn.Linear(self.image.num_features, 256)
            self.text_proj = torch.nn.Linear(TEXT[o.text_tower][1], 256)
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))

    def images(self, pixels):
        x = pixels.permute(0, 3, 1, 2).float().div(255)
        return self.image((x - self.mean) / self.std)

    def texts(self, tokens, mask):
        return self.text(input_ids=tokens, attention_mask=mask).last_hidden_state[:, 0]


def loss_of(model, o, pixels, tokens, mask):
    normal = torch.nn.functional.normalize
    if o.tower == "image":
        return model.images(pixels).float().mean()
    if o.tower == "text":
        return model.texts(tokens, mask).float().mean()
    x = normal(model.image_proj(model.images(pixels)).float())
    t = normal(model.text_proj(model.texts(tokens, mask)).float())
    s = x @ t.T / 0.01
    own = torch.arange(o.batch)
    cross = torch.nn.functional.cross_entropy
    return (cross(s, own) + cross(s.T, own)) / 2


def main():
    o = options()
    if o.threads > 0:
        torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    model = Model(o).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.02, fused=True)
    pixels = torch.randint(0, 256, (o.batch, o.image_size, o.image_size, 3), dtype=torch.uint8)
    tokens = torch.randint(0, o.vocab, (o.batch, o.tokens))
    lengths = torch.randint((o.tokens + 2) // 3, o.tokens + 1, (o.batch,))
    lengths[0] = o.tokens
    if o.full:
        lengths[:] = o.tokens
    mask = (torch.arange(o.tokens)[None, :] < lengths[:, None]).long()
    times = []
    for step in range(o.steps + 2):
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.precision == "bf16"):
            loss = loss_of(model, o, pixels, tokens, mask)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step >= 2:
            times.append(time.perf_counter() - start)
    print(json.dumps({"pairs_per_s": o.batch / statistics.median(times),
                      "fastest_pairs_per_s": o.batch / min(times), "threads": torch.get_num_threads(),
                      "caption_tokens": int(lengths.sum()), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
