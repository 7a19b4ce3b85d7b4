#!/usr/bin/env python3
"""compare_suite.py BIN MODEL SETS OUT: an open_clip folder in clip-benchmark and in `ccstream-eval suite`.

Demands the same predicted class for 99.9 % of all images, and every metric that clip-benchmark prints within 0.1 point. Where
names or captions of a set are equal, their scores are too, and torch leaves the order open: there names of predictions are
compared, and no metrics. Prints seconds and CPU seconds of both, each with the model's loading, ours with its programs' start."""
import json
import math
import resource
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
from clip_benchmark.datasets.builder import build_dataset
from clip_benchmark.metrics import image_caption_selection, zeroshot_classification, zeroshot_retrieval
from clip_benchmark.models import load_clip
from PIL import Image


def cpu_seconds(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def texts_of(folder):
    """Class names, or captions."""
    if (folder / "classnames.txt").exists():
        return [line.strip() for line in (folder / "classnames.txt").read_text("utf-8").splitlines()]
    out = []
    for path in sorted((folder / "test").glob("*.tar")):
        with tarfile.open(path) as tar:
            out += [line for m in tar if m.name.endswith(".txt") for line in tar.extractfile(m).read().decode().splitlines()]
    return out


def pairings(folder):
    """(task, image files, captions) of Winoground and SugarCrepe."""
    if folder.name == "winoground":
        for row in map(json.loads, (folder / "examples.jsonl").open()):
            yield "", [folder / f"images/{row[k]}.png" for k in ("image_0", "image_1")], [row["caption_0"], row["caption_1"]]
    for path in sorted(folder.glob("*.json")):
        for row in json.loads(path.read_text()).values():
            yield f"{path.stem}_", [folder / "val2017" / row["filename"]], [row["caption"], row["negative_caption"]]


def theirs_of_pairings(folder, model, transform, tokenizer):
    tasks = {}
    for task, images, texts in pairings(folder):
        tasks.setdefault(task, []).append((torch.stack([transform(Image.open(f)) for f in images])[None], [texts]))
    out = {}
    for task, batches in tasks.items():
        got = image_caption_selection.evaluate(model, batches, tokenizer, "cpu", amp=False)
        out |= {task + key: value for key, value in got.items() if not task or key == "acc"}
    return out


def theirs(model_folder, sets):
    model, transform, tokenizer = load_clip("open_clip", f"local-dir:{model_folder}", "", None, device="cpu")
    model.eval()
    logits = {}
    run = zeroshot_classification.run_classification

    def kept(*args, **more):
        out = run(*args, **more)
        logits[name] = out[0].argmax(1).numpy()
        return out

    zeroshot_classification.run_classification = kept
    metrics = {}
    for folder in sets:
        name = folder.name
        if not (folder / "test").exists():
            metrics[name] = theirs_of_pairings(folder, model, transform, tokenizer)
            continue
        kind = folder / "dataset_type.txt"
        retrieval = kind.exists() and kind.read_text().strip() == "retrieval"
        data = build_dataset("wds/" + name.removeprefix("wds_"), root=str(folder), transform=transform, split="test",
                             task="zeroshot_retrieval" if retrieval else "zeroshot_classification")
        loader = torch.utils.data.DataLoader(data.batched(64), batch_size=None, shuffle=False, num_workers=0)
        if retrieval:
            metrics[name] = zeroshot_retrieval.evaluate(model, loader, tokenizer, "cpu", amp=False, recall_k_list=[1, 5, 10])
        else:
            metrics[name] = zeroshot_classification.evaluate(model, loader, tokenizer, data.classes, data.templates, "cpu",
                                                             amp=False)
    return metrics, logits


def main():
    bin_, model, sets, out = map(Path, sys.argv[1:5])
    folders = sorted(f for f in sets.iterdir() if f.name in ("winoground", "sugar_crepe") or
                     (f / "test/nshards.txt").exists() and "fairface" not in f.name)
    names = ",".join(f.name for f in folders)
    begun, earlier = time.monotonic(), cpu_seconds(resource.RUSAGE_CHILDREN)  # of the script that became this one
    subprocess.run([bin_ / "ccstream-eval", "suite", model, "--sets", sets, "-o", out, "--only", names, "--keep-embeddings",
                    "-q"], check=True)
    ours_s = time.monotonic() - begun
    ours = {r["folder"]: r["metrics"] for r in map(json.loads, (out / "eval_results.jsonl").open())}
    begun = time.monotonic()
    before = cpu_seconds(resource.RUSAGE_SELF)
    metrics, predicted = theirs(model, folders)
    theirs_s = time.monotonic() - begun
    cpu = cpu_seconds(resource.RUSAGE_CHILDREN) - earlier, cpu_seconds(resource.RUSAGE_SELF) - before
    bad, same, count = [], 0, 0
    for name, values in metrics.items():
        texts = texts_of(sets / name)
        tied = len(set(texts)) < len(texts)
        for key, value in ({} if tied else values).items():
            got = ours[name].get(key)
            if not (math.isnan(value) and got is None) and (got is None or abs(got - value) > 0.001):
                bad.append(f"{name}: {key}: clip-benchmark {value}, here {got}")
        path = out / f"embeddings/{name}.predicted.npy"
        if path.exists():
            first = np.array([texts.index(t) for t in texts])
            equal = first[np.load(path)] == first[predicted[name]]
            same, count = same + int(equal.sum()), count + len(equal)
        print(name, "(equal texts: metrics not compared)" if tied else "", " ".join(f"{k}={v:.4f}" for k, v in values.items()))
    print(f"{same} of {count} predictions are the same; {ours_s:.1f} s here, {theirs_s:.1f} s there; "
          f"{cpu[0]:.1f} CPU s here, {cpu[1]:.1f} there")
    if same < 0.999 * count:
        bad.append("fewer than 99.9 % of the predictions are the same")
    print(*bad, sep="\n")
    sys.exit(1 if bad else 0)


main()
