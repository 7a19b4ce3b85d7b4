#!/usr/bin/env python3
"""Changes safetensors files of open_clip's models, without a library.

    tensors.py edit IN OUT [--drop NAME] [--add NAME=EXTENT,...] [--shape NAME=EXTENT,...] [--nan NAME] [--f16]
    tensors.py names FILE                   NAME [EXTENT,...] of every tensor, sorted
    tensors.py equal A B                    the same names, shapes and bytes
    tensors.py hugging-face DIR OUT         a folder of open_clip, with names of plain towers, as one of transformers' CLIPModel or SiglipModel
"""
import json
import os
import struct
import sys


def read(path):
    """{name: (dtype, shape, bytes)}"""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items()}


def write(path, tensors):
    header, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def edit(source, target, words):
    tensors = read(source)
    while words:
        word = words.pop(0)
        name, _, extents = words.pop(0).partition("=") if word != "--f16" else ("", "", "")
        shape = [int(n) for n in extents.split(",")] if extents else []
        if word == "--drop":
            del tensors[name]
        elif word == "--shape":
            tensors[name] = (tensors[name][0], shape, tensors[name][2])
        elif word == "--add":
            count = 1
            for extent in shape:
                count *= extent
            tensors[name] = ("F32", shape, bytes(4 * count))
        elif word == "--nan":
            dtype, shape, data = tensors[name]
            tensors[name] = (dtype, shape, struct.pack("<f", float("nan")) + data[4:])
        elif word == "--f16":
            tensors = {n: ("F16", s, struct.pack(f"<{len(b) // 4}e", *struct.unpack(f"<{len(b) // 4}f", b)))
                       for n, (_, s, b) in tensors.items()}
    write(target, tensors)


def transposed(tensor):
    dtype, (rows, columns), data = tensor
    parts = [data[4 * (r * columns + c):4 * (r * columns + c) + 4] for c in range(columns) for r in range(rows)]
    return dtype, [columns, rows], b"".join(parts)


POOL = {"latent": "probe", "q.": "attention.in_proj_", "proj.": "attention.out_proj.", "norm.": "layernorm.", "mlp.": "mlp."}
RENAMES = (("attn.out_proj", "self_attn.out_proj"), ("attn.proj", "self_attn.out_proj"), ("norm1", "layer_norm1"), ("norm2", "layer_norm2"),
           ("ln_1", "layer_norm1"), ("ln_2", "layer_norm2"), ("mlp.c_fc", "mlp.fc1"), ("mlp.c_proj", "mlp.fc2"))


def hugging_face(folder, out):
    with open(os.path.join(folder, "open_clip_config.json"), encoding="utf-8") as file:
        cfg = json.load(file)["model_cfg"]
    siglip = cfg["vision_cfg"].get("timm_pool") == "map"
    tensors, old = {}, read(os.path.join(folder, "open_clip_model.safetensors"))
    for name, tensor in old.items():
        dtype, shape, data = tensor
        side = "vision_model." if name.startswith("visual.") else "text_model."
        plain = name.removeprefix("visual.").removeprefix("trunk.").removeprefix("text.")
        if plain.startswith(("transformer.resblocks.", "blocks.")):
            block, rest = plain.removeprefix("transformer.res").removeprefix("blocks.").split(".", 1)
            base = f"{side}encoder.layers.{block}."
            if rest.startswith(("attn.in_proj_", "attn.qkv.")):
                size = len(data) // 3
                for k, letter in enumerate("qkv"):
                    tensors[f"{base}self_attn.{letter}_proj.{rest.removeprefix('attn.in_proj_').removeprefix('attn.qkv.')}"] = (
                        dtype, [shape[0] // 3] + shape[1:], data[k * size:(k + 1) * size])
                continue
            for was, now in RENAMES:
                rest = rest.replace(was, now)
            tensors[base + rest] = tensor
        elif plain.startswith("attn_pool."):
            part = plain.removeprefix("attn_pool.")
            for was, now in POOL.items():
                if part.startswith(was):
                    end = part.removeprefix(was)
                    tensors[f"{side}head.{now}{end}"] = tensor if was != "q." else (
                        dtype, [3 * shape[0]] + shape[1:], data + old[name.replace(".q.", ".kv.")][2])
        elif plain in ("proj", "text_projection"):
            tensors["visual_projection.weight" if plain == "proj" else "text_projection.weight"] = transposed(tensor)
        elif plain in ("logit_scale", "logit_bias"):
            tensors[plain] = (dtype, [1] if siglip else [], data)
        else:
            new = {"class_embedding": "embeddings.class_embedding", "positional_embedding": "embeddings.position_embedding.weight",
                   "pos_embed": "embeddings.position_embedding.weight", "conv1.weight": "embeddings.patch_embedding.weight",
                   "token_embedding.weight": "embeddings.token_embedding.weight"}
            for was, now in (("ln_pre", "pre_layrnorm"), ("ln_post", "post_layernorm"), ("ln_final", "final_layer_norm"),
                             ("norm", "post_layernorm"), ("patch_embed.proj", "embeddings.patch_embedding"), ("text_projection", "head")):
                new.update({f"{was}.{end}": f"{now}.{end}" for end in ("weight", "bias")})
            tensors[side + new[plain]] = (dtype, shape[1:], data) if plain == "pos_embed" else tensor
    vision, text = cfg["vision_cfg"], cfg["text_cfg"]
    tensors["text_model.embeddings.position_ids"] = ("I64", [1, text["context_length"]],
                                                     struct.pack(f"<{text['context_length']}q", *range(text["context_length"])))
    os.makedirs(out, exist_ok=True)
    write(os.path.join(out, "model.safetensors"), tensors)
    config = {"model_type": "siglip" if siglip else "clip", "projection_dim": cfg["embed_dim"],
              "vision_config": {"hidden_size": vision["width"], "num_hidden_layers": vision["layers"],
                                "num_attention_heads": vision["width"] // vision["head_width"], "image_size": vision["image_size"],
                                "patch_size": vision["patch_size"], "intermediate_size": int(vision["width"] * vision["mlp_ratio"])},
              "text_config": {"hidden_size": text["width"], "num_hidden_layers": text["layers"],
                              "num_attention_heads": text["heads"], "vocab_size": text["vocab_size"],
                              "max_position_embeddings": text["context_length"],
                              "intermediate_size": int(text["width"] * text["mlp_ratio"])}}
    if siglip:
        config["text_config"]["projection_size"] = cfg["embed_dim"]
    for tower in "vision", "text":
        config[f"{tower}_config"]["hidden_act"] = (
            "quick_gelu" if cfg.get("quick_gelu") else "gelu_pytorch_tanh" if "act_kwargs" in cfg[f"{tower}_cfg"] else "gelu")
    with open(os.path.join(out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)


def main(command, *words):
    if command == "edit":
        edit(words[0], words[1], list(words[2:]))
    elif command == "names":
        for name, (_, shape, _) in sorted(read(words[0]).items()):
            print(name, json.dumps(shape, separators=(",", ":")))
    elif command == "equal":
        a, b = read(words[0]), read(words[1])
        wrong = [n for n in sorted(a.keys() | b.keys()) if a.get(n) != b.get(n)]
        sys.exit(f"{words[1]}: other than in {words[0]}: {', '.join(wrong)}" if wrong else 0)
    elif command == "hugging-face":
        hugging_face(*words)


main(*sys.argv[1:])
