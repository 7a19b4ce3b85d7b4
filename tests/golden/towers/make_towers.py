#!/usr/bin/env python3
"""Writes towers.txt: whole models by timm and transformers in float64: outputs, the loss and the
gradient of every parameter in the first step, and the losses of ten AdamW steps.

    pip install torch torchvision timm transformers && python3 make_towers.py [large|norms] >towers.txt
    pip install torch torchvision open_clip_torch && python3 make_towers.py clip >clip.txt
    pip install torch torchvision open_clip_torch && python3 make_towers.py recipes >recipes.txt
    ... make_towers.py clip_resnet >clip_resnet.txt
    ... make_towers.py siglip >siglip.txt
    ... make_towers.py patches >patches.txt

Weights, images and tokens are drawn by splitmix64 from the names, so that the test makes the same
ones. Of each tensor the norm and two signed sums are written. `large` gives ResNet-50 and DistilBERT
in full shape, `norms` what norms.txt has: towers with group norm and without norms, `clip` what
clip.txt and clip_resnet.txt have: small models of open_clip, each by its JSON; `recipes` ten steps of open_clip's way to train
one of them, with its learned scale: settings, losses, and what weights and their averages became. tests/unit/train/test_towers_golden.c reads the file.
"""
import json
import math
import sys

import torch

torch.set_default_dtype(torch.float64)
MASK = (1 << 64) - 1
EMBED, VOCAB, TAU, STEPS = 32, 50, 0.1, 10
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def exact(numbers):
    """Constants as f32 holds them: so deep towers make the difference visible."""
    return torch.tensor(numbers, dtype=torch.float32).double()


class Draws:
    """splitmix64, seeded by FNV-1a of a name"""

    def __init__(self, name):
        self.state = 0xCBF29CE484222325
        for byte in name.encode():
            self.state = ((self.state ^ byte) * 0x100000001B3) & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def many(self, count):
        import numpy
        with numpy.errstate(over="ignore"):
            n = numpy.arange(1, count + 1, dtype=numpy.uint64)
            z = numpy.uint64(self.state) + n * numpy.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
            z = z ^ (z >> numpy.uint64(31))
        self.state = (self.state + count * 0x9E3779B97F4A7C15) & MASK
        return z


def uniform(draws, shape):
    """Multiples of 2^-12 in [-1, 1): exact in f32, also after a scaling by a power of two."""
    count = 1
    for n in shape:
        count *= n
    z = draws.many(count) >> 51
    return (torch.from_numpy(z.astype("int64")).double() - 4096).reshape(shape) / 4096


def weight(name, shape):
    u = uniform(Draws(name), shape)
    if name.endswith("running_var") or (name.endswith("weight") and len(shape) == 1):
        return 1 + u / 8
    if len(shape) == 1:
        return u / 8
    if "embeddings" in name:
        return u / 32
    fan_in = 1
    for n in shape[1:]:
        fan_in *= n
    scale = 1.0
    while scale * scale * fan_in > 3.0:  # the power of two around sqrt(3 / fan_in)
        scale /= 2
    return u * scale


def exact_norms(model):
    for m in model.modules():
        if isinstance(m, (torch.nn.BatchNorm2d, torch.nn.GroupNorm, torch.nn.LayerNorm)):
            m.eps = exact(m.eps).item()


class Clip(torch.nn.Module):
    """A model of open_clip; its logit_scale is not used."""

    def __init__(self, config):
        import open_clip
        super().__init__()
        self.clip = open_clip.CLIP(config["embed_dim"], config["vision_cfg"], config["text_cfg"],
                                   quick_gelu=config.get("quick_gelu", False))
        del self.clip.logit_scale
        self.clip.double()
        exact_norms(self)

    def forward(self, images, tokens, mask):
        """The end token is the largest id: at a caption's end, and in the first one within it."""
        lengths = mask.sum(dim=1)
        tokens = tokens.clamp(max=VOCAB - 2) * mask
        tokens[torch.arange(len(tokens)), lengths - 1] = VOCAB - 1
        tokens[0, 1] = VOCAB - 1
        return self.clip.encode_image(images, normalize=True), self.clip.encode_text(tokens, normalize=True)


class Stream:
    """formats/base/rng.h: Philox4x32-10 keyed by (seed, purpose, a, b)."""

    def __init__(self, seed, purpose, a, b):
        key = self.block((seed & 0xFFFFFFFF, seed >> 32), (purpose, 0, a & 0xFFFFFFFF, a >> 32))
        self.key, self.word, self.b, self.count, self.left = key[:2], key[2], (b & 0xFFFFFFFF, b >> 32), 0, []

    @staticmethod
    def block(key, counter):
        (k0, k1), (c0, c1, c2, c3) = key, counter
        for _ in range(10):
            p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
            c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
            k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        return c0, c1, c2, c3

    def next(self):
        if not self.left:
            self.left = list(self.block(self.key, (self.count, self.word, *self.b)))
            self.count += 1
        return self.left.pop(0)

    def below(self, n):
        product = self.next() * n
        while product & 0xFFFFFFFF < (1 << 32) % n:
            product = self.next() * n
        return product >> 32


def drop_patches(module, x):
    """open_clip's PatchDropout with the patches that ccstream draws of (seed 0, step, sample id = row)."""
    if not module.training:
        return x
    patches = x.shape[1] - 1
    rows = []
    for image in range(len(x)):
        stream, left = Stream(0, 27, drop_patches.step, image), max(1, int(patches * (1 - module.prob)))
        kept = [0]
        for t in range(patches):
            if stream.below(patches - t) < left:
                kept.append(1 + t)
                left -= 1
        rows.append(x[image, kept])
    return torch.stack(rows)


class Siglip(torch.nn.Module):
    """SigLIP's towers: timm's with the MAP pool, open_clip's text transformer. All rows of a text count."""

    def __init__(self, config):
        from open_clip.model import _build_text_tower
        from timm.models.vision_transformer import VisionTransformer
        super().__init__()
        vision, clip = config["vision_cfg"], torch.nn.Module()
        clip.visual = torch.nn.Module()
        clip.visual.trunk = VisionTransformer(
            img_size=vision["image_size"], patch_size=vision["patch_size"], embed_dim=vision["width"], depth=vision["layers"],
            num_heads=vision["width"] // vision["head_width"], class_token=False, global_pool="map", num_classes=0,
            act_layer="gelu_tanh" if "act_kwargs" in vision else None)
        clip.text = _build_text_tower(config["embed_dim"], config["text_cfg"])
        self.clip = clip.double()
        exact_norms(self)

    def forward(self, images, tokens, mask):
        lengths = mask.sum(dim=1)
        tokens = tokens.clamp(max=VOCAB - 2)
        tokens[torch.arange(len(tokens)), lengths - 1] = VOCAB - 1
        tokens[0, 1] = VOCAB - 1
        normalize = torch.nn.functional.normalize
        return normalize(self.clip.visual.trunk(images)), normalize(self.clip.text(tokens))


class Model(torch.nn.Module):
    def __init__(self, tower, small_stem, norm, text):
        import timm
        from transformers import DistilBertConfig, DistilBertModel
        super().__init__()
        layers, dim, heads, ffn = text
        norms = {"batch": torch.nn.BatchNorm2d, "none": torch.nn.Identity,
                 "group": lambda channels, **_: torch.nn.GroupNorm(math.gcd(32, channels), channels)}
        self.image = timm.create_model(tower, num_classes=0, norm_layer=norms[norm])
        if small_stem:
            stem = self.image.conv1
            first = stem if isinstance(stem, torch.nn.Conv2d) else stem[0]
            if isinstance(stem, torch.nn.Conv2d):
                self.image.conv1 = torch.nn.Conv2d(3, first.out_channels, 3, 1, 1, bias=False)
            else:
                first.stride = (1, 1)
            self.image.maxpool = torch.nn.Identity()
        config = DistilBertConfig(vocab_size=VOCAB, max_position_embeddings=16, n_layers=layers, dim=dim,
                                  n_heads=heads, hidden_dim=ffn, dropout=0.0, attention_dropout=0.0)
        config._attn_implementation = "eager"
        self.text = DistilBertModel(config)
        exact_norms(self)
        self.image_proj = torch.nn.Linear(self.image.num_features, EMBED)
        self.text_proj = torch.nn.Linear(dim, EMBED)

    def forward(self, images, tokens, mask):
        x = self.image_proj(self.image(images))
        t = self.text_proj(self.text(input_ids=tokens, attention_mask=mask).last_hidden_state[:, 0])
        return torch.nn.functional.normalize(x), torch.nn.functional.normalize(t)


DIGITS = 17


def number(x):
    return "%.*g" % (DIGITS, x)


def digest(kind, name, tensor):
    draws = Draws("signs " + name)
    flat = tensor.detach().reshape(-1)
    sums = []
    for _ in range(2):
        signs = torch.from_numpy((draws.many(flat.numel()) >> 63).astype("int64")).double() * 2 - 1
        sums.append((signs * flat).sum().item())
    print(kind, name, number(flat.norm().item()), *map(number, sums))


def run(tower, small_stem, norm, text_name, text, px, batch, tokens):
    print("model", tower, "small" if small_stem else "standard", norm, text_name, px, batch, tokens)
    compare(Model(tower, small_stem, norm, text), px, batch, tokens)


def run_clip(config, batch, tokens):
    """`config` as in open_clip's model_configs"""
    px = config["vision_cfg"]["image_size"]
    print("clip", json.dumps(config, separators=(",", ":")), px, batch, tokens)
    model = (Siglip if config.get("custom_text") else Clip)(config)
    compare(model, px, batch, tokens, model.clip)


def draw(named):
    with torch.no_grad():
        for name, value in named.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                value.copy_(weight(name, tuple(value.shape)))


def inputs(px, batch, tokens):
    draws = Draws("images")
    images = torch.from_numpy((draws.many(batch * px * px * 3) >> 56).astype("int64")).reshape(batch, px, px, 3)
    images = (images.double() / 255 - exact(MEAN)) / exact(STD)
    images = images.permute(0, 3, 1, 2).contiguous()
    draws = Draws("tokens")
    ids = torch.tensor([[1 + draws.next() % (VOCAB - 1) for _ in range(tokens)] for _ in range(batch)])
    lengths = [2 + draws.next() % (tokens - 1) for _ in range(batch)]
    mask = torch.tensor([[1 if t < n else 0 for t in range(tokens)] for n in lengths])
    return images, ids, mask


def compare(model, px, batch, tokens, named=None):
    """named: the module whose names the tensors have."""
    named = named if named is not None else model
    model.train()
    draw(named)
    images, ids, mask = inputs(px, batch, tokens)
    decayed = [p for n, p in model.named_parameters() if p.ndim != 1]
    others = [p for n, p in model.named_parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}],
                                  lr=2e-4, betas=(0.9, 0.999), eps=1e-8)
    for step in range(STEPS):
        drop_patches.step = step
        x, t = model(images, ids, mask)
        logits = x @ t.T / TAU
        target = torch.arange(batch)
        loss = 0.5 * (torch.nn.functional.cross_entropy(logits, target) +
                      torch.nn.functional.cross_entropy(logits.T, target))
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            digest("output", "image", x)
            digest("output", "text", t)
            for name, p in named.named_parameters():
                digest("gradient", name, p.grad if p.grad is not None else torch.zeros_like(p))
            for name, b in named.named_buffers():
                if "running" in name:
                    digest("buffer", name, b)
        print("loss", step, number(loss.item()))
        optimizer.step()
    print("end")


def run_recipe(config, batch, tokens, lock=(None, None), rates=(1.0, 1.0), layer_decay=1.0, average=0.0, beta2=0.98,
               eps=1e-6, decay=0.2, lr=1e-3):
    """lock: groups that open_clip leaves unlocked in each tower; None: all train. rates: of the towers, times lr."""
    px = config["vision_cfg"]["image_size"]
    print("clip", json.dumps(config, separators=(",", ":")), px, batch, tokens)
    locks = [0 if n is None else 1 + n for n in lock]
    print("recipe", *locks, *map(number, (*rates, layer_decay, average, beta2, eps, decay, lr)))
    model = Clip(config)
    clip = model.clip
    draw(clip)
    images, ids, mask = inputs(px, batch, tokens)
    if lock[0] is not None:
        clip.lock_image_tower(unlocked_groups=lock[0])
    if lock[1] is not None:
        clip.lock_text_tower(unlocked_layers=lock[1])
    scale = torch.nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    groups = [{"params": [scale], "weight_decay": 0.0, "lr": lr}]
    visual, text = clip.visual, clip
    for tower, rate in ((
            [[visual.conv1, visual.class_embedding, visual.positional_embedding, visual.ln_pre],
             *[[b] for b in visual.transformer.resblocks], [visual.proj]], rates[0]), (
            [[text.token_embedding, text.positional_embedding], *[[b] for b in text.transformer.resblocks],
             [text.text_projection]], rates[1])):
        tower[-2].append(visual.ln_post if tower[-1][0] is visual.proj else text.ln_final)
        for depth, group in enumerate(reversed(tower)):
            for part in group:
                for p in [part] if isinstance(part, torch.nn.Parameter) else part.parameters():
                    groups.append({"params": [p], "weight_decay": decay if p.ndim > 1 else 0.0,
                                   "lr": lr * rate * layer_decay ** depth})
    assert sum(len(g["params"]) for g in groups) == 1 + len(list(clip.parameters()))
    groups = [g for g in groups if g["params"][0].requires_grad]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, beta2), eps=eps)
    averages = {n: p.detach().clone() for n, p in clip.named_parameters()}
    for step in range(STEPS):
        x, t = model(images, ids, mask)
        logits = scale.exp() * x @ t.T
        target = torch.arange(batch)
        loss = 0.5 * (torch.nn.functional.cross_entropy(logits, target) +
                      torch.nn.functional.cross_entropy(logits.T, target))
        optimizer.zero_grad()
        loss.backward()
        print("loss", step, number(loss.item()))
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, math.log(100))
            for n, p in clip.named_parameters():
                averages[n].lerp_(p, 1 - average)
    print("scale", number(scale.item()))
    for n, p in clip.named_parameters():
        if n.endswith("in_proj_bias"):  # of keys the gradient is 0 but for rounding, and Adam steps along it
            continue
        digest("value", n, p)
        if average > 0:
            digest("average", n, averages[n])
    print("end")


def main():
    tiny = (2, 192, 3, 768)
    tanh = {"approximate": "tanh"}
    if sys.argv[1:] == ["clip"]:
        vision = {"image_size": 32, "patch_size": 8, "layers": 2, "width": 48, "head_width": 16}
        text = {"context_length": 12, "vocab_size": VOCAB, "width": 32, "heads": 2, "layers": 2}
        run_clip({"embed_dim": EMBED, "vision_cfg": vision, "text_cfg": text}, 6, 12)
        vision = {"image_size": 32, "patch_size": 16, "layers": 1, "width": 64, "head_width": 32, "mlp_ratio": 3.0}
        text = {"context_length": 10, "vocab_size": VOCAB, "width": 48, "heads": 3, "layers": 3, "mlp_ratio": 2.0}
        run_clip({"embed_dim": EMBED, "quick_gelu": True, "vision_cfg": vision, "text_cfg": text}, 5, 10)
        vision = {"image_size": 16, "patch_size": 8, "layers": 2, "width": 32, "head_width": 16, "act_kwargs": tanh}
        text = {"context_length": 8, "vocab_size": VOCAB, "width": 32, "heads": 2, "layers": 1}
        run_clip({"embed_dim": EMBED, "vision_cfg": vision, "text_cfg": text}, 5, 8)
        return
    if sys.argv[1:] == ["recipes"]:
        global DIGITS
        DIGITS = 10
        vision = {"image_size": 16, "patch_size": 8, "layers": 3, "width": 32, "head_width": 16}
        text = {"context_length": 8, "vocab_size": VOCAB, "width": 32, "heads": 2, "layers": 3}
        config = {"embed_dim": EMBED, "vision_cfg": vision, "text_cfg": text}
        run_recipe(config, 6, 8, average=0.9)
        run_recipe(config, 6, 8, lock=(0, None))
        run_recipe(config, 6, 8, lock=(2, 3))
        run_recipe(config, 6, 8, lock=(None, 1), beta2=0.999, eps=1e-8)
        run_recipe(config, 6, 8, lock=(4, 0), average=0.5)
        run_recipe(config, 6, 8, rates=(0.5, 2.0), layer_decay=0.7)
        return
    if sys.argv[1:] == ["clip_resnet"]:
        vision = {"image_size": 64, "patch_size": None, "layers": [1, 2, 1, 1], "width": 8, "head_width": 64}
        text = {"context_length": 10, "vocab_size": VOCAB, "width": 32, "heads": 1, "layers": 1}
        run_clip({"embed_dim": EMBED, "vision_cfg": vision, "text_cfg": text}, 6, 10)
        return
    if sys.argv[1:] == ["patches"]:
        import open_clip
        open_clip.transformer.PatchDropout.forward = drop_patches
        vision = {"image_size": 32, "patch_size": 8, "layers": 2, "width": 48, "head_width": 16, "patch_dropout": 0.5}
        text = {"context_length": 8, "vocab_size": VOCAB, "width": 32, "heads": 2, "layers": 1}
        run_clip({"embed_dim": EMBED, "vision_cfg": vision, "text_cfg": text}, 6, 8)
        return
    if sys.argv[1:] == ["siglip"]:
        vision = {"image_size": 24, "patch_size": 8, "layers": 2, "width": EMBED, "head_width": 16, "timm_pool": "map",
                  "timm_proj": "none"}
        text = {"context_length": 10, "vocab_size": VOCAB, "width": 48, "heads": 3, "layers": 2, "no_causal_mask": True,
                "proj_bias": True, "pool_type": "last", "norm_kwargs": {"eps": 1e-6}}
        run_clip({"embed_dim": EMBED, "custom_text": True, "vision_cfg": vision, "text_cfg": text}, 6, 10)
        vision.update(layers=1, act_kwargs=tanh)
        text.update(layers=1, act_kwargs=tanh)
        run_clip({"embed_dim": EMBED, "custom_text": True, "vision_cfg": vision, "text_cfg": text}, 5, 10)
        return
    if sys.argv[1:] == ["large"]:
        run("resnet50", False, "batch", "distil", (6, 768, 12, 3072), 128, 4, 8)
        return
    if sys.argv[1:] == ["norms"]:
        run("resnet10t", True, "group", "tiny", tiny, 8, 4, 6)
        run("resnet10t", True, "none", "tiny", tiny, 8, 4, 6)
        return
    run("resnet10t", False, "batch", "tiny", tiny, 64, 6, 8)
    run("resnet18", True, "batch", "tiny", tiny, 16, 6, 8)


if __name__ == "__main__":
    main()
