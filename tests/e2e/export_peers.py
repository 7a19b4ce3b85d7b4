#!/usr/bin/env python3
"""By hand: what ccstream-export writes, in the programs that it is for.

    pip install torch timm transformers open_clip_torch safetensors sentencepiece numpy pillow
    export_peers.py BIN RUN DATA [OUT]

RUN: a run of ccstream-train. DATA: a dataset, made by ccpack, of images that have RUN's image size already and
are stored without loss (PNG), one caption each: then both sides see the same pixels. Loads every format with strict=True and compares features and embeddings with those of
ccstream-eval embed; the largest difference must stay below TOLERANCE times the largest value. With OUT set
the names, types and shapes that the programs expect are written there (tests/golden/export).
"""
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import torch
from PIL import Image
from sentencepiece import SentencePieceProcessor

TOLERANCE = 1e-4
bin_dir, run, data = sys.argv[1:4]
golden = sys.argv[4] if len(sys.argv) > 4 else None
work = tempfile.mkdtemp(prefix="ccstream-export-")
failures = 0


def command(*words):
    return subprocess.run([os.path.join(bin_dir, words[0]), *words[1:]], check=True, capture_output=True, text=True)


def check(what, ours, theirs):
    global failures
    theirs = theirs.detach().numpy()
    difference = float(np.abs(ours - theirs).max())
    scale = float(np.abs(ours).max())
    ok = difference <= TOLERANCE * scale
    failures += not ok
    print(f"{'ok  ' if ok else 'FAIL'} {what}: {ours.shape}, largest difference {difference:.2e}, largest value {scale:.3g}")


def expect(name, state):
    """What the program saves itself: one line a tensor."""
    if golden:
        with open(os.path.join(golden, name), "w") as f:
            for key in sorted(state):
                f.write(f"{key} {str(state[key].dtype).split('.')[1]} {list(state[key].shape)}\n".replace(", ", ","))


def export(name):
    out = os.path.join(work, name)
    done = command("ccstream-export", run, "--format", name, "-o", out)
    print(f"{name}: {done.stdout.strip()} {done.stderr.strip()}")
    return out


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


# Our side: rows in the order of sample ids, which is that of the table.
command("ccstream-eval", "embed", run, "--data", data, "--texts", "--features", "--transform", "squash", "-o", f"{work}/ours", "-q")
features, images, texts = (np.load(f"{work}/ours.{n}.npy") for n in ("features", "images", "texts"))
command("ccdump", "cat", data, "-q", "-o", f"{work}/data.tar")
tar = tarfile.open(f"{work}/data.tar")
members = {m.name: m for m in tar}
keys = [n[:-4] for n in members if n.endswith(".png")]
captions = [tar.extractfile(members[k + ".txt"]).read().decode().strip() for k in keys]

plain = export("safetensors")
config = json.load(open(f"{plain}/config.json"))
mean, std = (np.array(config[n], np.float32).reshape(1, 3, 1, 1) for n in ("mean", "std"))
pixels = [Image.open(io.BytesIO(tar.extractfile(members[k + ".png"]).read())).convert("RGB") for k in keys]
assert all(p.size == (config["image_size"], config["image_size"]) for p in pixels), "images of another size"
pixels = np.stack([np.asarray(p) for p in pixels])
pixels = torch.from_numpy((pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255 - mean) / std)
print(f"{len(keys)} images of {config['image_size']} px, {config['image_tower']} + {config['text_tower']}")

def clean(text):
    """augment/caption.h, for captions of ASCII."""
    if not config["clean_captions"]:
        return text
    text = re.sub(r"[,.'!?\"()*#:;~]", "", text.lower()).replace("-", " ").replace("/", " ")
    text = re.sub(r"\s{2,}", " ", text.replace("<person>", "person")).rstrip("\n").strip(" ")
    return " ".join(text.split(" ")[:30])


torch.manual_seed(0)
with torch.inference_mode():
    import timm

    out = export("timm")
    model = timm.create_model(config["image_tower"], num_classes=0, checkpoint_path=f"{out}/model.safetensors").eval()
    expect("timm.txt", model.state_dict())
    check("timm.create_model", features, model(pixels))
    model = timm.create_model(f"local-dir:{out}", pretrained=True).eval()
    check("timm.create_model('local-dir:')", features, model(pixels))

    from transformers import AutoModel, AutoTokenizer, DistilBertModel, VisionTextDualEncoderModel

    out = export("transformers")
    model, info = DistilBertModel.from_pretrained(f"{out}/text", output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    expect("distilbert.txt", model.state_dict())
    cleaned = [clean(c) for c in captions]
    if os.path.exists(f"{out}/text/tokenizer.model"):
        pieces = SentencePieceProcessor(model_file=f"{out}/text/tokenizer.model")
        room = config["max_tokens"] - 2
        rows = [[pieces.bos_id()] + pieces.encode(c)[:room] + [pieces.eos_id()] for c in cleaned]
        ids = torch.tensor([r + [pieces.pad_id()] * (room + 2 - len(r)) for r in rows])
        attention = torch.tensor([[1] * len(r) + [0] * (room + 2 - len(r)) for r in rows])
    else:
        tokenizer = AutoTokenizer.from_pretrained(f"{out}/text")
        tokens = tokenizer(cleaned, return_tensors="pt", padding="max_length", truncation=True, max_length=config["max_tokens"])
        ids, attention = tokens.input_ids, tokens.attention_mask
    hidden = model.eval()(input_ids=ids, attention_mask=attention).last_hidden_state
    from safetensors.torch import load_file

    w = load_file(f"{plain}/model.safetensors")
    mask = attention.unsqueeze(-1)
    pooled = hidden[:, 0] if config["text_pool"] == "first" else (hidden * mask).sum(1) / mask.sum(1)
    check("DistilBertModel, then our projection", texts, unit(pooled @ w["text_proj.weight"].T + w["text_proj.bias"]))
    model, info = AutoModel.from_pretrained(f"{out}/image", output_loading_info=True)
    assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    check(f"AutoModel ({type(model).__name__})", features, model.eval()(pixels).pooler_output)
    if os.path.exists(f"{out}/model.safetensors"):
        model, info = VisionTextDualEncoderModel.from_pretrained(out, output_loading_info=True)
        assert not any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
        expect("dual_encoder.txt", model.state_dict())
        got = model.eval()(input_ids=ids, attention_mask=attention, pixel_values=pixels)
        check("VisionTextDualEncoderModel, images", images, got.image_embeds)
        check("VisionTextDualEncoderModel, texts", texts, got.text_embeds)

    import open_clip

    out = export("open_clip")
    model = open_clip.create_model(f"local-dir:{out}").eval()
    expect("open_clip.txt", model.state_dict())
    check("open_clip, images", images, model.encode_image(pixels, normalize=True))
    if os.path.exists(f"{out}/vocab.txt"):
        theirs = open_clip.get_tokenizer(f"local-dir:{out}")(cleaned)
        assert (theirs == ids).all(), "open_clip's tokenizer gives other ids"
    check("open_clip, texts", texts, model.encode_text(ids, normalize=True))
    print(f"open_clip: temperature {1 / float(model.logit_scale.exp()):.6g}")

sys.exit(1 if failures else 0)
