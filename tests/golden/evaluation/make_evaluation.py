#!/usr/bin/env python3
"""Writes evaluation.txt and debias.txt: what evaluations answer on small random examples, by NumPy.

    pip install numpy && python3 make_evaluation.py >evaluation.txt && python3 make_evaluation.py debias >debias.txt

An independent second implementation, in float64 and by definition rather than fast: full sorts, every
k-way task counted, explicit inverses. Rows are small multiples of a power of two, so that scores are
exact in f32 and ties are ties. tests/unit/train/test_evaluation_golden.c reads the first file, tests/python/test_studies_debias.py
the other: words and numbers, NaN as nan.
"""
import itertools
import sys

import numpy as np

MASK = 0xFFFFFFFF


def put(word, values=()):
    print(word, *(format(float(v), ".17g") for v in np.ravel(values)))


def grid(rng, shape, levels, scale=1.0):
    return rng.integers(-levels, levels + 1, size=shape) * scale


def percent(hits):
    return 100.0 * np.mean(hits) if len(hits) else 0.0


# ---- retrieval: ties with something wrong are lost, an image is found by its best caption


def recalls(scores, right):
    ranks = []
    for row, own in zip(scores, right):
        if own.any():
            ranks.append(int((row[~own] >= row[own].max()).sum()))
    return [percent(np.array(ranks) < k) for k in (1, 5, 10)]


def retrieval(seed, images, texts, dim, levels):
    rng = np.random.default_rng(seed)
    x, t = grid(rng, (images, dim), levels), grid(rng, (texts, dim), levels)
    owner = np.sort(rng.integers(0, images, size=texts))
    belongs = owner[None, :] == np.arange(images)[:, None]
    i2t, t2i = recalls(x @ t.T, belongs), recalls(t @ x.T, belongs.T)
    put("retrieval", [images, texts, dim])
    put("images", x)
    put("texts", t)
    put("owner", owner)
    put("i2t", i2t)
    put("t2i", t2i)
    put("mean", (np.array(i2t) + np.array(t2i)) / 2)


# ---- classification


def put_result(top1, top5, averages, labels, classes, hits):
    per_class = [percent(hits[labels == c]) if (labels == c).any() else np.nan for c in range(classes)]
    put("top", [top1, top5])
    put("average", averages)
    put("per_class", [np.nanmean(per_class)])
    put("classes", per_class)


def beaten_by(scores, label):
    """Which other classes reach the score of the right one."""
    return [c for c in range(len(scores)) if c != label and scores[c] >= scores[label]]


def k_way(winners, label, classes, k):
    """Share of the k-way tasks with the right class in which it wins."""
    if classes < k:
        return np.nan
    others = [c for c in range(classes) if c != label]
    won = [not set(task) & set(winners) for task in itertools.combinations(others, k - 1)]
    return np.mean(won)


def vectors(seed, queries, dim, classes, levels, with_bias):
    rng = np.random.default_rng(seed)
    q, v = grid(rng, (queries, dim), levels), grid(rng, (classes, dim), levels)
    bias = grid(rng, classes, levels) if with_bias else np.zeros(classes)
    labels = rng.integers(-1, classes, size=queries)  # -1: no label
    known = labels >= 0
    winners = [beaten_by(s, y) for s, y in zip(q[known] @ v.T + bias, labels[known])]
    ranks = np.array([len(w) for w in winners])
    averages = [100 * np.mean([k_way(w, y, classes, k) for w, y in zip(winners, labels[known])]) for k in (2, 5, 10)]
    put("vectors", [queries, dim, classes, with_bias])
    put("rows", q)
    put("labels", labels)
    put("vectors", v)
    put("bias", bias)
    put_result(percent(ranks < 1), percent(ranks < 5), averages, labels[known], classes, ranks < 1)


def neighbours(seed, queries, bank, dim, classes, k, temperature, euclidean):
    rng = np.random.default_rng(seed)
    q, b = grid(rng, (queries, dim), 3, 0.25), grid(rng, (bank, dim), 3, 0.25)
    labels, bank_labels = rng.integers(0, classes, size=queries), rng.integers(-1, classes, size=bank)
    place = np.flatnonzero(bank_labels >= 0)  # rows without label have no vote
    votes = np.zeros((queries, classes))
    for i in range(queries):
        score = -((q[i] - b[place]) ** 2).sum(1) / 2 if euclidean else b[place] @ q[i]
        nearest = np.argsort(-score, kind="stable")[:k]
        weight = np.exp((score[nearest] - score[nearest].max()) / temperature) if temperature else np.ones(len(nearest))
        np.add.at(votes[i], bank_labels[place[nearest]], weight)
    # Of equal votes the lower class wins; a class without votes loses against all others.
    ranks = np.array([sum(c != y and (v[c] > v[y] or (v[c] == v[y] and (c < y or v[y] == 0))) for c in range(classes))
                      for v, y in zip(votes, labels)])
    put("neighbours", [queries, bank, dim, classes, k, temperature, euclidean])
    put("rows", q)
    put("labels", labels)
    put("bank", b)
    put("bank_labels", bank_labels)
    put_result(percent(ranks < 1), percent(ranks < 5), [np.nan] * 3, labels, classes, ranks < 1)


# ---- the linear probe: AdamW over all rows at once, from the product's first weights


def philox(key, counter):
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK, (p0 >> 32) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def uniforms(seed, count):
    """The first numbers in [0, 1) of the stream (seed, purpose 4, 0, 0)."""
    k0, k1, word, _ = philox((seed, 0), (4, 0, 0, 0))
    words = []
    for i in range((count + 1) // 2):
        words += philox((k0, k1), (i, word, 0, 0))
    return [((words[2 * i] | words[2 * i + 1] << 32) >> 11) * 2.0**-53 for i in range(count)]


def probe(seed, rows, dim, classes, epochs, lr, decay):
    rng = np.random.default_rng(seed)
    x, labels = grid(rng, (rows, dim), 8, 0.125), rng.integers(0, classes, size=rows)
    w = ((2 * np.array(uniforms(seed, classes * dim)) - 1) / np.sqrt(dim)).reshape(classes, dim)
    bias, moments = np.zeros(classes), [0.0] * 4
    for step in range(1, epochs + 1):
        z = x @ w.T + bias
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        loss = -np.log(p[np.arange(rows), labels]).mean()
        g = (p - np.eye(classes)[labels]) / rows
        rate = lr * 0.5 * (1 + np.cos(np.pi * (step - 1) / epochs))
        for i, gradient in enumerate((g.T @ x, g.sum(0))):
            moments[2 * i] = 0.9 * moments[2 * i] + 0.1 * gradient
            moments[2 * i + 1] = 0.999 * moments[2 * i + 1] + 0.001 * gradient**2
            change = moments[2 * i] / (1 - 0.9**step)
            change = change / (np.sqrt(moments[2 * i + 1] / (1 - 0.999**step)) + 1e-8)
            if i == 0:
                w = w - rate * (decay * w + change)
            else:
                bias = bias - rate * change
    put("probe", [rows, dim, classes, epochs, lr, decay, seed])
    put("rows", x)
    put("labels", labels)
    put("weight", w)
    put("bias", bias)
    put("loss", [loss])


# ---- debiased class vectors


def debias(seed, count, dim, spurious, pairs, weight, dependent=False):
    rng = np.random.default_rng(seed)
    v, a, z = (grid(rng, (n, dim), 16, 0.0625) for n in (count, spurious, 2 * pairs))
    if dependent:
        a[-1] = a[0] - 2 * a[1]
    p = np.eye(dim)
    if spurious:
        p = p - a.T @ np.linalg.pinv(a @ a.T) @ a
    if pairs:
        d = z[0::2] - z[1::2]
        p = p @ np.linalg.inv(np.eye(dim) + weight / pairs * d.T @ d)
    out = v @ p.T
    put("debias", [count, dim, spurious, pairs, weight])
    put("vectors", v)
    put("spurious", a)
    put("pairs", z)
    put("result", out / np.linalg.norm(out, axis=1, keepdims=True))


def main():
    if sys.argv[1:] == ["debias"]:
        debias(13, 4, 24, 5, 6, 1000.0)
        debias(14, 3, 12, 0, 4, 500.0)
        debias(15, 3, 12, 4, 0, 1000.0)
        debias(16, 2, 10, 4, 20, 50.0, dependent=True)
        return
    retrieval(1, 12, 40, 3, 1)
    retrieval(2, 60, 150, 6, 2)
    retrieval(3, 30, 30, 16, 4)
    vectors(4, 80, 4, 12, 2, False)
    vectors(5, 80, 6, 7, 3, True)
    vectors(6, 30, 3, 3, 1, False)
    neighbours(7, 60, 90, 3, 6, 1, 0.0, True)
    neighbours(8, 60, 90, 3, 6, 9, 0.0, False)
    neighbours(9, 60, 90, 3, 6, 20, 0.5, False)
    neighbours(10, 40, 25, 4, 7, 200, 0.1, False)
    probe(11, 40, 5, 3, 32, 0.05, 0.01)
    probe(12, 64, 9, 6, 100, 0.01, 0.0)


if __name__ == "__main__":
    sys.exit(main())
