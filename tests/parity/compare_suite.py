#!/usr/bin/env python3
"""compare_suite.py BIN MODEL SETS OUT: an open_clip folder in clip-benchmark and in `ccstream-eval suite`.

Demands the same predicted class for 99.9 % of all images, and every metric that clip-benchmark prints within 0.1 point. Where
names or captions of a set are equal, their scores are too, and torch leaves the order open: there names of predictions are
compared, and no metrics. Prints the time of both, each with the model's loading and its programs' start."""
import json
import math
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
from clip_benchmark.datasets.builder import build_dataset
from clip_benchmark.metrics import zeroshot_classification, zeroshot_retrieval
from clip_benchmark.models import load_clip


def texts_of(folder):
    """Class names, or captions."""
    if (folder / "classnames.txt").exists():
        return [line.strip() for line in (folder / "classnames.txt").read_text("utf-8").splitlines()]
    out = []
    for path in sorted((folder / "test").glob("*.tar")):
        with tarfile.open(path) as tar:
            out += [line for m in tar if m.name.endswith(".txt") for line in tar.extractfile(m).read().decode().splitlines()]
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
    folders = sorted(f for f in sets.iterdir() if (f / "test/nshards.txt").exists() and "fairface" not in f.name)
    names = ",".join(f.name for f in folders)
    begun = time.monotonic()
    subprocess.run([bin_ / "ccstream-eval", "suite", model, "--sets", sets, "-o", out, "--only", names, "--keep-embeddings",
                    "-q"], check=True)
    ours_s = time.monotonic() - begun
    ours = {r["folder"]: r["metrics"] for r in map(json.loads, (out / "eval_results.jsonl").open())}
    begun = time.monotonic()
    metrics, predicted = theirs(model, folders)
    theirs_s = time.monotonic() - begun
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
    print(f"{same} of {count} predictions are the same; {ours_s:.1f} s here, {theirs_s:.1f} s there")
    if same < 0.999 * count:
        bad.append("fewer than 99.9 % of the predictions are the same")
    print(*bad, sep="\n")
    sys.exit(1 if bad else 0)


main()
