"""Models of open_clip against ccstream, both from the same random weights and pairs.

    pip install open_clip_torch==3.3.0 torch sentencepiece transformers && python3 models.py BIN WORK [NAME...]

For each: the folder that open_clip writes goes through ccstream-export with equal bytes, and open_clip loads the result;
tokens, preprocessed images and logits (1e-4). Of the small ones also the gradient of one step, as what SGD moves by (1e-5 of each tensor's
norm), and the losses and weights of ten AdamW steps, by torch in float64. A NAME is one of open_clip's models; the small ones but ViT-S-32
are described here. "siglip-hf" is a small SiglipModel of transformers, of which the logits are compared. SigLIP's tokenizer is not in any package: a SentencePiece model of its kind is made of the captions.
"""
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile

import numpy
import open_clip
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

BATCH, TAU, LR, DECAY, STEPS = 8, 0.07, 1e-4, 0.2, 10
FULL = ("ViT-S-16", "ViT-B-32", "ViT-B-16", "ViT-L-14", "RN50", "ViT-B-16-SigLIP", "ViT-B-16-SigLIP2")  # logits alone
WORDS = "a photo of two red dogs running on the beach it's 2024 at dusk café naïve ☃ under 37 umbrellas".split()
MEAN, STD = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD


def text(width, heads, layers, **more):
    return {"context_length": 77, "vocab_size": 49408, "width": width, "heads": heads, "layers": layers, **more}


SMALL = {
    "vit": {"embed_dim": 48, "vision_cfg": {"image_size": 64, "layers": 3, "width": 64, "head_width": 32, "patch_size": 16},
            "text_cfg": text(96, 3, 2)},
    "resnet": {"embed_dim": 40, "vision_cfg": {"image_size": 64, "layers": [1, 2, 1, 1], "width": 16, "head_width": 64, "patch_size": None},
               "text_cfg": text(64, 1, 2)},
    "vit-tanh": {"embed_dim": 48, "vision_cfg": {"image_size": 48, "layers": 2, "width": 64, "head_width": 32, "patch_size": 16,
                                                 "act_kwargs": {"approximate": "tanh"}},
                 "text_cfg": text(64, 2, 2, act_kwargs={"approximate": "tanh"})},
    "vit-quickgelu": {"embed_dim": 64, "quick_gelu": True,
                      "vision_cfg": {"image_size": 48, "layers": 2, "width": 96, "head_width": 48, "mlp_ratio": 3.0, "patch_size": 16},
                      "text_cfg": text(64, 2, 3, mlp_ratio=2.0)},
}


def run(program, *words):
    done = subprocess.run([os.path.join(BIN, program), *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{program} {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done


def make_pairs(folder, px, sizes=None):
    """BATCH images of px times px, which no program has to resize, or of `sizes`, as a dataset; its images and captions in order."""
    draw, images, captions = random.Random(px), [], []
    with tarfile.open(f"{folder}/pairs.tar", "w") as tar:
        for i in range(BATCH):
            small = numpy.frombuffer(draw.randbytes(8 * 8 * 3), dtype=numpy.uint8).reshape(8, 8, 3)
            image = Image.fromarray(small).resize(sizes[i] if sizes else (px, px), Image.BICUBIC)
            caption = " ".join(draw.choice(WORDS) for _ in range(draw.randrange(2, 20)))
            png = io.BytesIO()
            image.save(png, "PNG")
            for end, data in (("png", png.getvalue()), ("txt", caption.encode())):
                member = tarfile.TarInfo(f"{i:04}.{end}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            images.append(image)
            captions.append(caption)
    run("ccpack", "-q", "-o", f"{folder}/data", f"{folder}/pairs.tar")
    return images, captions


def write_folder(folder, config, model):
    os.makedirs(folder)
    save_file({k: v.float().contiguous() for k, v in model.state_dict().items()}, f"{folder}/open_clip_model.safetensors")
    with open(f"{folder}/open_clip_config.json", "w", encoding="utf-8") as file:
        json.dump({"model_cfg": config, "preprocess_cfg": {"mean": MEAN, "std": STD, "interpolation": "bicubic",
                                                           "resize_mode": "squash" if "timm_model_name" in config["vision_cfg"]
                                                           else "shortest"}}, file)


def make_siglip_tokenizer(folder, out):
    """A SentencePiece model whose begin piece has no name. Returns how many pieces it has."""
    import sentencepiece
    run("ccpack", "tokenizer", f"{folder}/data", "--vocab-size", 200)
    with open(f"{folder}/data/tokenizer.model", "rb") as file:
        model = file.read()
    at = model.rindex(b"[CLS]")
    with open(out, "wb") as file:
        file.write(model[:at] + b"[XXX]" + model[at + 5:])
    return sentencepiece.SentencePieceProcessor(model_file=out).get_piece_size()


def siglip_tokens(path, captions, length):
    """open_clip's cleaning, the library's pieces, the end, and ends until the row is full."""
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file=path)
    rows = [pieces.encode(open_clip.tokenizer._clean_canonicalize(c))[:length - 1] for c in captions]
    return torch.tensor([row + [pieces.eos_id()] * (length - len(row)) for row in rows])


def check(what, value, limit):
    print(f"  {what}: {value:.2g} (limit {limit:g})", flush=True)
    if not value <= limit:
        sys.exit(f"{what} differ by {value:g}, more than {limit:g}")


def loss_of(model, images, tokens):
    x = model.encode_image(images, normalize=True)
    t = model.encode_text(tokens, normalize=True)
    logits = x @ t.T / TAU
    target = torch.arange(BATCH)
    return (torch.nn.functional.cross_entropy(logits, target) + torch.nn.functional.cross_entropy(logits.T, target)) / 2


def trained(model):
    return [(n, p) for n, p in model.named_parameters() if n not in ("logit_scale", "logit_bias")]


def compare_tensors(what, ours, theirs, limit):
    """The largest difference of a tensor, of its norm; where that is 0 but for rounding, of all tensors together."""
    total = sum(t.double().norm().item() ** 2 for t in theirs.values()) ** 0.5
    worst = max((ours[n].double() - t.double()).norm().item() / (t.double().norm().item() + 1e-2 * total / len(theirs) ** 0.5)
                for n, t in theirs.items())
    check(what, worst, limit)


def train(folder, out, steps, *words):
    run("ccstream-train", "-q", "--init", f"{folder}/there", "--data", f"{folder}/data", "--out", f"{folder}/{out}", "--batch-size",
        BATCH, "--epochs", STEPS, "--steps", steps, "--loss", "clip", "--tau", TAU, "--temperature", "constant", "--augment", "none",
        "--warmup-steps", 0, "--precision", "f32", "--seed", 1, *words)
    run("ccstream-export", "-q", f"{folder}/{out}", "--format", "open_clip", "-o", f"{folder}/{out}-there")
    with open(f"{folder}/{out}/metrics.jsonl", encoding="utf-8") as lines:
        losses = [row["loss"] for row in map(json.loads, lines) if "loss" in row and "step" in row]
    return losses, load_file(f"{folder}/{out}-there/open_clip_model.safetensors")


def compare(name, config):
    folder = os.path.join(WORK, name)
    os.makedirs(folder)
    torch.manual_seed(1)
    siglip = "hf_tokenizer_name" in config["text_cfg"]
    px = config["vision_cfg"]["image_size"]
    originals, captions = make_pairs(folder, px)
    if siglip:
        config["text_cfg"]["vocab_size"] = make_siglip_tokenizer(folder, f"{folder}/spiece.model")
    arguments = {k: v for k, v in config.items() if k != "custom_text"}
    model = (open_clip.CustomTextCLIP if config.get("custom_text") else open_clip.CLIP)(**arguments)
    with torch.no_grad():  # what starts at 0 or 1 would hide mistakes
        for p in model.parameters():
            if p.ndim == 1:
                p += 0.1 * torch.randn_like(p)
    print(name, f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    write_folder(f"{folder}/there", config, model)
    del model
    if siglip:
        shutil.copy(f"{folder}/spiece.model", f"{folder}/there")

    run("ccstream-export", "-q", f"{folder}/there", "--format", "open_clip", "-o", f"{folder}/back")
    before, after = (load_file(f"{folder}/{f}/open_clip_model.safetensors") for f in ("there", "back"))
    before = {k: v for k, v in before.items() if not k.endswith("num_batches_tracked")}
    wrong = [n for n in before.keys() | after.keys() if n not in before or n not in after or before[n].shape != after[n].shape or
             before[n].numpy().tobytes() != after[n].numpy().tobytes()]
    if wrong:
        sys.exit(f"{name}: export changes {wrong}")
    loaded, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}/back")
    images = torch.stack([preprocess(p) for p in originals])
    tokens = (siglip_tokens(f"{folder}/spiece.model", captions, config["text_cfg"]["context_length"]) if siglip else
              open_clip.get_tokenizer(f"local-dir:{folder}/back")(captions))
    loaded.eval()
    if name not in FULL:
        loaded.double()
        images = images.double()
    with torch.no_grad():
        logits = (loaded.encode_image(images, normalize=True) @ loaded.encode_text(tokens, normalize=True).T) * loaded.logit_scale.exp()
    run("ccstream-eval", "embed", f"{folder}/there", "--data", f"{folder}/data", "--texts", "-o", f"{folder}/e", "-q")
    x, t = (numpy.load(f"{folder}/e.{side}.npy").astype(numpy.float64) for side in ("images", "texts"))
    check("logits", numpy.abs(x @ t.T * loaded.logit_scale.exp().item() - logits.numpy()).max(), 1e-4)
    if name in FULL:
        shutil.rmtree(folder)
        return

    loaded.train()
    loss_of(loaded, images, tokens).backward()
    theirs = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in trained(loaded)}
    rate = 100.0
    losses, moved = train(folder, "sgd", 1, "--optimizer", "sgdm", "--momentum", 0, "--weight-decay", 0, "--lr", rate, "--min-lr", rate)
    compare_tensors("gradients", {n: (before[n].double() - moved[n].double()) / rate for n in theirs}, theirs, 1e-5)

    loaded.zero_grad()
    loaded.load_state_dict({k: v.double() for k, v in before.items()}, strict=False)
    optimizer = torch.optim.AdamW([{"params": [p for _, p in trained(loaded) if p.ndim >= 2], "weight_decay": DECAY},
                                   {"params": [p for _, p in trained(loaded) if p.ndim < 2], "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.98), eps=1e-6)
    wanted = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(loaded, images, tokens)
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    losses, after = train(folder, "adamw", STEPS, "--lr", LR, "--min-lr", LR, "--beta2", 0.98, "--adam-eps", 1e-6, "--weight-decay", DECAY)
    print("  losses", " ".join(f"{v:.4f}" for v in wanted))
    check("losses of ten steps", max(abs(a - b) for a, b in zip(losses, wanted, strict=True)), 1e-3)
    theirs = {n: p.detach() - before[n].double() for n, p in trained(loaded)}
    total = sum(t.norm().item() ** 2 for t in theirs.values()) ** 0.5
    off = sum((after[n].double() - before[n].double() - t).norm().item() ** 2 for n, t in theirs.items()) ** 0.5
    check("what ten steps change", off / total, 0.01)
    running = {n: b for n, b in loaded.named_buffers() if "running" in n}
    if running:
        compare_tensors("running statistics", after, running, 1e-4)


def compare_siglip_model(name):
    """A SiglipModel of transformers, with the tanh GELU that is its default."""
    from transformers import SiglipConfig, SiglipModel
    folder = os.path.join(WORK, name)
    os.makedirs(folder)
    originals, captions = make_pairs(folder, 48)
    pieces = make_siglip_tokenizer(folder, f"{folder}/spiece.model")
    torch.manual_seed(1)
    vision = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 48, "patch_size": 16}
    model = SiglipModel(SiglipConfig(vision_config=vision, text_config={
        "vocab_size": pieces, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3,
        "max_position_embeddings": 20, "projection_size": 64}))
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
        model.logit_scale.fill_(2.5)
        model.logit_bias.fill_(-7.25)
    print(name, f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    model.save_pretrained(f"{folder}/there")
    shutil.copy(f"{folder}/spiece.model", f"{folder}/there")
    model.double().eval()
    images = torch.stack([torch.from_numpy(numpy.array(p)).permute(2, 0, 1) for p in originals]).double() / 127.5 - 1
    with torch.no_grad():
        out = model(pixel_values=images, input_ids=siglip_tokens(f"{folder}/spiece.model", captions, 20))
    run("ccstream-eval", "embed", f"{folder}/there", "--data", f"{folder}/data", "--texts", "-o", f"{folder}/e", "-q")
    x, t = (numpy.load(f"{folder}/e.{side}.npy").astype(numpy.float64) for side in ("images", "texts"))
    run("ccstream-export", "-q", f"{folder}/there", "--format", "open_clip", "-o", f"{folder}/back")
    scalars = load_file(f"{folder}/back/open_clip_model.safetensors")
    logits = x @ t.T * scalars["logit_scale"].double().exp().item() + scalars["logit_bias"].item()
    check("logits", numpy.abs(logits - out.logits_per_image.numpy()).max(), 1e-4)


def compare_resizing(name):
    """The modes of preprocess_cfg on images that are no squares; a pixel may differ by one level, which moves a logit by less than 0.01."""
    folder = os.path.join(WORK, name)
    os.makedirs(folder)
    originals, captions = make_pairs(folder, 48, [(48 + 7 * i, 90 - 5 * i) for i in range(BATCH)])
    config = SMALL["vit-tanh"]
    torch.manual_seed(1)
    write_folder(f"{folder}/there", config, open_clip.CLIP(**config))
    found = []
    for mode in "shortest", "longest", "squash":
        with open(f"{folder}/there/open_clip_config.json", encoding="utf-8") as file:
            whole = json.load(file)
        whole["preprocess_cfg"]["resize_mode"] = mode
        with open(f"{folder}/there/open_clip_config.json", "w", encoding="utf-8") as file:
            json.dump(whole, file)
        model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}/there")
        with torch.no_grad():
            theirs = model.eval().encode_image(torch.stack([preprocess(p) for p in originals]), normalize=True).numpy()
        run("ccstream-eval", "embed", f"{folder}/there", "--data", f"{folder}/data", "-o", f"{folder}/{mode}", "-q")
        ours = numpy.load(f"{folder}/{mode}.images.npy")
        check(f"embeddings, {mode}", numpy.abs(ours - theirs).max(), 2e-3)
        if any(numpy.abs(ours - other).max() < 0.02 for other in found):
            sys.exit(f"{name}: {mode} gives what another mode does")
        found.append(ours)


def main():
    names = sys.argv[3:] or [*SMALL, "siglip-hf", "resizing", "ViT-S-32", *FULL]
    for name in names:
        if name == "siglip-hf":
            compare_siglip_model(name)
            continue
        if name == "resizing":
            compare_resizing(name)
            continue
        compare(name, SMALL[name] if name in SMALL else open_clip.get_model_config(name))


BIN, WORK = sys.argv[1:3]
main()
