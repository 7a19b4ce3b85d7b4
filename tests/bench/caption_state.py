#!/usr/bin/env python3
"""by hand: what u belongs to where images have several captions: the table of docs/results/captions.md.

usage: caption_state.py PREFIX [--make IMAGES,NOISE] [--last N] [--held-out N] [--epochs N] [--seeds N] [--batches N,N] [--gammas G,G] [--tau T]

PREFIX: features as of batch_features.py (PREFIX.images.npy, .texts.npy, .owners.npy); --last N: of the last N images alone. SogCLR
on linear heads (64 numbers, AdamW, cosine rate from 0.004 sqrt(B / 128)); in each epoch every image shows one of its captions,
drawn. Ways to keep u, of images and of texts:

  sample    both by image                                   ccstream-train --text-state sample
  caption   texts by caption, images by image               ccstream-train --text-state caption
  pair      both by (image, caption)
  split     texts by caption; images by image without the own pair: u = mean exp(S_ij / tau) is kept, exp(-S_ii / tau) is of the step

--make first writes PREFIX: 96 numbers of an image and of its two captions, linear in 32 that they share, with noise of deviation 0.7 for
images, NOISE for the first caption and 0.3 for the second: a raw and a long caption.

Error: root mean square over all (image, caption) of log u less its exact value at the end, over the images and captions of the
others. Recall: mean of R@1, R@5, R@10 of both directions in percent on images held out. Paired: same seed, same batches.
pip install numpy
"""
import argparse
import math
from concurrent.futures import ProcessPoolExecutor

import numpy as np

WAYS = ("sample", "caption", "pair", "split")
DIM = 64


def load(args):
    images, texts, owners = (np.load(f"{args.prefix}.{name}.npy") for name in ("images", "texts", "owners"))
    if args.last:
        first = len(images) - args.last
        texts, owners = texts[owners >= first], owners[owners >= first] - first
        images = images[first:]
    return images.astype(np.float64), texts.astype(np.float64), owners


def make(prefix, images, noise):
    r = np.random.default_rng(5)
    z = r.standard_normal((images, 32))
    a, b = r.standard_normal((2, 32, 96)) / math.sqrt(32)
    texts = np.empty((2 * images, 96))
    x = z @ a + 0.7 * r.standard_normal((images, 96))
    for k, deviation in enumerate((noise, 0.3)):
        texts[k::2] = z @ b + deviation * r.standard_normal((images, 96))
    for name, values in (("images", x), ("texts", texts), ("owners", np.repeat(np.arange(images), 2))):
        np.save(f"{prefix}.{name}.npy", values.astype("f4" if name != "owners" else "i4"))


class Head:
    def __init__(self, width, r):
        self.w = r.uniform(-1, 1, (width, DIM)) / math.sqrt(width)
        self.m, self.v, self.t = np.zeros_like(self.w), np.zeros_like(self.w), 0

    def forward(self, x):
        z = x @ self.w
        self.norm = np.linalg.norm(z, axis=1, keepdims=True)
        self.x, self.y = x, z / self.norm
        return self.y

    def step(self, dy, lr):
        dz = (dy - (dy * self.y).sum(1, keepdims=True) * self.y) / self.norm
        g = self.x.T @ dz
        self.t += 1
        self.m += 0.1 * (g - self.m)
        self.v += 0.001 * (g * g - self.v)
        hat = (self.m / (1 - 0.9**self.t)) / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)
        self.w -= lr * (hat + 0.02 * self.w)


def log_mean(e):
    """log of the mean over the others of exp(e) by row, of a batch."""
    e = e.copy()
    np.fill_diagonal(e, -np.inf)
    top = e.max(1)
    return top + np.log(np.exp(e - top[:, None]).sum(1) / (len(e) - 1))


def moved(u, keys, log_g, gamma):
    old = u[keys]  # NaN: never visited
    mean = np.logaddexp(math.log1p(-gamma) + old, math.log(gamma) + log_g) if gamma < 1 else log_g
    u[keys] = np.where(np.isnan(old), log_g, mean)
    return u[keys]


def log_others(s, tau, groups):
    """(rows): log of the mean of exp(s / tau) over the columns that are not of the row's group (rows, columns)."""
    e = s / tau
    e = np.where(groups, -np.inf, e)
    top = e.max(1)
    return top + np.log(np.exp(e - top[:, None]).sum(1) / (~groups).sum(1))


def recall(x, t, owner):
    s = x @ t.T
    own = s[owner, np.arange(len(t))]
    best = np.full(len(x), -np.inf)
    np.maximum.at(best, owner, own)
    image_rank = (s > best[:, None]).sum(1)
    text_rank = (s > own).sum(0)
    return 50 * np.mean([(image_rank < k).mean() + (text_rank < k).mean() for k in (1, 5, 10)])


def run(job):
    args, way, batch, gamma, seed = job
    images, texts, owners = load(args)
    r = np.random.default_rng(seed)
    order = np.random.default_rng(0).permutation(len(images))
    test, train = order[:args.held_out], order[args.held_out:]
    n = len(train) // batch * batch
    train = train[:n]
    first = np.searchsorted(owners, np.arange(len(images) + 1))
    counts = (first[1:] - first[:-1])[train]
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = np.concatenate([np.arange(first[i], first[i + 1]) for i in train])
    x_all, t_all = images[train], texts[rows]
    centre = [(a.mean(0), math.sqrt(((a - a.mean(0))**2).mean())) for a in (x_all, t_all)]
    x_all, t_all = ((a - c) / d for a, (c, d) in zip((x_all, t_all), centre))
    heads = Head(x_all.shape[1], r), Head(t_all.shape[1], r)
    tau = args.tau
    by_pair = {"image": way == "pair", "text": way != "sample"}
    u = {side: np.full(len(rows) if by_pair[side] else n, np.nan) for side in by_pair}
    total, step = args.epochs * (n // batch), 0
    rate = 0.004 * math.sqrt(batch / 128)
    for _ in range(args.epochs):
        ids_all = r.permutation(n)
        drawn = starts[ids_all] + (r.uniform(size=n) * counts[ids_all]).astype(int)
        for b in range(0, n, batch):
            ids, captions = ids_all[b:b + batch], drawn[b:b + batch]
            x, t = heads[0].forward(x_all[ids]), heads[1].forward(t_all[captions])
            s = x @ t.T
            own = np.diag(s)
            g = np.zeros_like(s)
            for side, m in (("image", s), ("text", s.T)):
                keys = captions if by_pair[side] else ids
                log_g = log_mean((m - own[:, None]) / tau)
                if side == "image" and way == "split":
                    log_u = moved(u[side], keys, log_g + own / tau, gamma) - own / tau
                else:
                    log_u = moved(u[side], keys, log_g, gamma)
                w = np.exp((m - own[:, None]) / tau - log_u[:, None]) / (batch - 1) / batch
                np.fill_diagonal(w, 0)
                w -= np.diag(w.sum(1))
                g += w if side == "image" else w.T
            warm = total // 20
            lr = rate * ((step + 1) / warm if step < warm else
                         0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm))))
            step += 1
            heads[0].step(g @ t, lr)
            heads[1].step(g.T @ x, lr)
    x, t = (h.forward(a).astype(np.float32) for h, a in zip(heads, (x_all, t_all)))
    owner = np.repeat(np.arange(n), counts)
    s = x @ t.T
    own = s[owner, np.arange(len(owner))]
    same = owner[None, :] == np.arange(n)[:, None]
    exact_image = log_others(s, tau, same)[owner] - own / tau
    exact_text = log_others(s.T, tau, same.T) - own / tau
    kept = {side: u[side] if by_pair[side] else u[side][owner] for side in u}
    kept["image"] = kept["image"] - (own / tau if way == "split" else 0)
    error = [math.sqrt(np.nanmean((kept[side] - exact)**2)) for side, exact in (("image", exact_image), ("text", exact_text))]
    embed = [(a - c) / d @ h.w for a, (c, d), h in zip((images, texts), centre, heads)]
    x, t = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in embed)
    held = np.concatenate([np.arange(first[i], first[i + 1]) for i in test])
    return recall(x[test], t[held], np.repeat(np.arange(len(test)), (first[1:] - first[:-1])[test])), *error


def main():
    p = argparse.ArgumentParser()
    p.add_argument("prefix")
    for name, default in (("last", 0), ("held-out", 100), ("epochs", 30), ("seeds", 5), ("jobs", 1)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--tau", type=float, default=0.1)
    p.add_argument("--make", metavar="IMAGES,NOISE")
    p.add_argument("--batches", default="8,32")
    p.add_argument("--gammas", default="0.3,0.8,1")
    args = p.parse_args()
    if args.make:
        count, noise = args.make.split(",")
        make(args.prefix, int(count), float(noise))
    print("| batch | gamma | way | error of log u, images | texts | recall, % | over sample |\n|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(args.jobs) as pool:
        for batch in map(int, args.batches.split(",")):
            for gamma in map(float, args.gammas.split(",")):
                base = None
                for way in WAYS if gamma < 1 else WAYS[:1]:
                    results = np.array(list(pool.map(run, [(args, way, batch, gamma, k) for k in range(args.seeds)])))
                    base = results[:, 0] if base is None else base
                    gain = results[:, 0] - base
                    se = [v.std(ddof=1) / math.sqrt(args.seeds) for v in (results[:, 0], gain)]
                    over = f"{gain.mean():+.2f} ± {se[1]:.2f}" if way != "sample" else ""
                    print(f"| {batch} | {gamma:g} | {way if gamma < 1 else 'no memory'} | {results[:, 1].mean():.3f} | "
                          f"{results[:, 2].mean():.3f} | {results[:, 0].mean():.2f} ± {se[0]:.2f} | {over} |", flush=True)


main()
