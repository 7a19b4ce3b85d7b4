#!/usr/bin/env python3
"""Training steps of PyTorch as `ccbench step` takes them: the same towers (timm's ResNets, transformers'
DistilBERT), batch, threads and precision, channels_last, fused AdamW, the same contrastive loss; one JSON line.

    python3 torch_step.py --tower image --image-tower resnet50 --image-size 224 --batch 16
    python3 torch_step.py --device cuda --batch 512 --precision bf16 --full --compile max-autotune
    python3 torch_step.py --towers open_clip --model RN50 --tower image --batch 16 --serve

bf16 is autocast. Pixels go to the device as bytes with every step and are
normalised there; on CUDA from pinned memory on a stream of their own, while the step before runs. Times are
those of whole runs of steps, with one wait at the end of each run. With --serve it takes N steps for every
line N of its input and answers with a line of JSON: their wall-clock and CPU times and the process's peak memory.
"""
import argparse
import contextlib
import json
import resource
import statistics
import sys
import time

import torch

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
TEXT = {"tiny": (2, 192, 3, 768), "small": (4, 384, 6, 1536), "distil": (6, 768, 12, 3072)}
# open_clip's names: timm's image tower, width of both embeddings, and of the text tower its width and heads.
MODELS = {"ViT-S-32": ("vit_small_patch32_224", 384, 384, 6), "ViT-S-16": ("vit_small_patch16_224", 384, 384, 6),
          "ViT-B-32": ("vit_base_patch32_224", 512, 512, 8), "ViT-B-16": ("vit_base_patch16_224", 512, 512, 8),
          "ViT-L-14": ("vit_large_patch14_224", 768, 768, 12)}
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--tower", choices=("both", "image", "text"), default="both")
    p.add_argument("--model", help="a model of open_clip: of " + ", ".join(MODELS) + " timm's ViT with a norm before "
                   "the blocks and transformers' CLIPTextModelWithProjection, or with --towers open_clip any")
    p.add_argument("--towers", choices=("own", "open_clip"), default="own", help="whose towers --model has")
    p.add_argument("--pad", type=int, default=0, help="captions are padded to so many tokens")
    p.add_argument("--serve", action="store_true")
    p.add_argument("--image-tower", default="resnet50")
    p.add_argument("--text-tower", choices=TEXT, default="distil")
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--vocab", type=int, default=30522)
    p.add_argument("--precision", choices=TYPES, default="f32")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--compile", choices=("no", "default", "reduce-overhead", "max-autotune"), default="no",
                   help="torch.compile of towers and loss; the last two also record CUDA graphs")
    p.add_argument("--no-dropout", action="store_true")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--steps", type=int, default=5, help="in a run; the median of the runs counts")
    p.add_argument("--runs", type=int, default=0, help="0: cpu a run for each step, cuda 5")
    p.add_argument("--full", action="store_true", help="give every caption the full number of tokens")
    p.add_argument("--json", action="store_true", help="it always does")
    return p.parse_args()


class Model(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))
        self.o = o
        if o.model and o.towers == "open_clip":
            import open_clip
            clip = open_clip.create_model(o.model, pretrained=None, force_image_size=o.image_size)
            if o.tower != "text":
                self.image = clip.visual
                self.image_proj = torch.nn.Identity()
            if o.tower != "image":
                self.text = clip
                self.text_proj = torch.nn.Identity()
                clip.visual = None
            return
        if o.model:
            self.open_clip(*MODELS[o.model])
            return
        if o.tower != "text":
            import timm
            self.image = timm.create_model(o.image_tower, pretrained=False, num_classes=0)
        if o.tower != "image":
            from transformers import DistilBertConfig, DistilBertModel
            layers, dim, heads, hidden = TEXT[o.text_tower]
            drop = 0.0 if o.no_dropout else 0.1
            self.text = DistilBertModel(DistilBertConfig(
                vocab_size=o.vocab, n_layers=layers, dim=dim, n_heads=heads, hidden_dim=hidden,
                max_position_embeddings=512, dropout=drop, attention_dropout=drop))
        if o.tower == "both":
            self.image_proj = torch.nn.Linear(self.image.num_features, 256)
            self.text_proj = torch.nn.Linear(TEXT[o.text_tower][1], 256)

    def open_clip(self, name, embedding, width, heads):
        if self.o.tower != "text":
            import timm
            self.image = timm.create_model(name, pretrained=False, num_classes=0, pre_norm=True,
                                           img_size=self.o.image_size)
            self.image_proj = torch.nn.Linear(self.image.num_features, embedding, bias=False)
        if self.o.tower != "image":
            from transformers import CLIPTextConfig, CLIPTextModelWithProjection
            self.text = CLIPTextModelWithProjection(CLIPTextConfig(
                vocab_size=self.o.vocab, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=12,
                num_attention_heads=heads, projection_dim=embedding, hidden_act="gelu",
                max_position_embeddings=max(77, self.o.tokens)))
            self.text_proj = torch.nn.Identity()

    def images(self, pixels):
        x = pixels.permute(0, 3, 1, 2).float().div(255)
        return self.image(((x - self.mean) / self.std).contiguous(memory_format=torch.channels_last))

    def texts(self, tokens, mask):
        if self.o.towers == "open_clip":
            return self.text.encode_text(tokens)
        if self.o.model:  # padding comes last, so its causal mask is enough
            return self.text(input_ids=tokens).text_embeds
        return self.text(input_ids=tokens, attention_mask=mask).last_hidden_state[:, 0]

    def forward(self, pixels, tokens, mask):
        """The loss."""
        normal = torch.nn.functional.normalize
        if self.o.tower == "image":
            return self.images(pixels).float().mean()
        if self.o.tower == "text":
            return self.texts(tokens, mask).float().mean()
        x = normal(self.image_proj(self.images(pixels)).float())
        t = normal(self.text_proj(self.texts(tokens, mask)).float())
        with torch.autocast(self.o.device, enabled=False):
            s = x @ t.T / 0.01
            own = torch.arange(self.o.batch, device=s.device)
            cross = torch.nn.functional.cross_entropy
            return (cross(s, own) + cross(s.T, own)) / 2


class Feeder:
    """One batch after another as it would come from a loader: in host memory, and on CUDA copied while the
    step before runs."""

    def __init__(self, o, batch):
        self.cuda = o.device == "cuda"
        self.batch = [b.pin_memory() for b in batch] if self.cuda else batch
        self.stream = torch.cuda.Stream() if self.cuda else None
        self.next = None
        self.fetch()

    def fetch(self):
        if self.cuda:
            with torch.cuda.stream(self.stream):
                self.next = [b.to("cuda", non_blocking=True) for b in self.batch]

    def take(self):
        if not self.cuda:
            return self.batch
        torch.cuda.current_stream().wait_stream(self.stream)
        now = self.next
        for b in now:
            b.record_stream(torch.cuda.current_stream())
        self.fetch()
        return now


def captions(o):
    tokens = torch.randint(0, o.vocab, (o.batch, o.tokens))
    lengths = torch.randint((o.tokens + 2) // 3, o.tokens + 1, (o.batch,))
    lengths[0] = o.tokens
    if o.full:
        lengths[:] = o.tokens
    mask = (torch.arange(o.tokens)[None, :] < lengths[:, None]).long()
    if o.pad > o.tokens:
        tokens, mask = (torch.nn.functional.pad(t, (0, o.pad - o.tokens)) for t in (tokens, mask))
    return tokens, mask, int(lengths.sum())


def serve(step):
    """N steps for every line N."""
    for line in sys.stdin:
        wall, cpu = [], []
        for _ in range(int(line)):
            begin = time.perf_counter(), time.process_time()
            step()
            wall.append((time.perf_counter() - begin[0]) * 1e3)
            cpu.append((time.process_time() - begin[1]) * 1e3)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"wall_ms": wall, "cpu_ms": cpu, "peak_bytes": peak}), flush=True)


def main():
    o = options()
    if o.device == "cuda" and not torch.cuda.is_available():
        print("torch_step: this PyTorch sees no CUDA device", file=sys.stderr)
        return 77
    if o.threads > 0:
        torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    cuda = o.device == "cuda"
    model = Model(o).train().to(o.device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.02, fused=True)
    run_model = model if o.compile == "no" else torch.compile(
        model, mode=None if o.compile == "default" else o.compile)
    pixels = torch.randint(0, 256, (o.batch, o.image_size, o.image_size, 3), dtype=torch.uint8)
    tokens, mask, token_count = captions(o)
    feeder = Feeder(o, [pixels, tokens, mask])
    wait = torch.cuda.synchronize if cuda else lambda: None
    amp = (torch.autocast(o.device, dtype=TYPES[o.precision]) if o.precision != "f32"
           else contextlib.nullcontext())

    def step():
        batch = feeder.take()
        with amp:
            loss = run_model(*batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    begin = time.perf_counter()
    for _ in range(5 if cuda else 2):
        last = step()
    wait()
    warm_s = time.perf_counter() - begin
    if o.serve:
        serve(step)
        return 0
    runs = o.runs or (5 if cuda else o.steps)
    length = o.steps if o.runs or cuda else 1
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        for _ in range(length):
            last = step()
        wait()
        times.append((time.perf_counter() - begin) / length)
    print(json.dumps({
        "pairs_per_s": o.batch / statistics.median(times), "fastest_pairs_per_s": o.batch / min(times),
        "step_ms": statistics.median(times) * 1e3, "warm_s": warm_s, "loss": last.item(),
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
        "device": torch.cuda.get_device_name() if cuda else "cpu", "precision": o.precision,
        "compile": o.compile, "model": o.model, "batch": o.batch, "image_size": o.image_size, "tokens": o.tokens,
        "caption_tokens": token_count, "threads": torch.get_num_threads(), "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version() if cuda else None}, separators=(",", ":")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
