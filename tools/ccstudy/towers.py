"""Towers trained with the block loss of Arora et al. ("A theoretical analysis of contrastive unsupervised
representation learning", ICML 2019, eq. (12), with k negatives as in eq. (5)). Studies blocks and margin share them.

    f(x) = W2 gelu(W1 x + b1) + b2: 256 hidden units, 32 numbers, not normalised; Adam, cosine schedule to 0

A step draws N classes with replacement, and an anchor x_i and b other training points y_i1 .. y_ib of each. With g_im
the similarity f(x_i) . mean_l f(y_ml), the negatives of block i are the blocks m = i + 1 .. i + k, modulo N:

    L = mean_i l({g_im - g_ii}_m)    logistic: l(t) = log2(1 + sum e^t)    hinge: l(t) = max(0, 1 + max t)

`pairs` compares single points, the l-th with the l-th of other blocks: the pairs of quick thoughts (Logeswaran & Lee,
ICLR 2018). By Jensen's inequality it is never smaller than the block loss of the same points (Proposition 6.2).
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from .nets import gelu
from .study import DataError, np

HIDDEN, EMBED = 256, 32


def mixture(seed: int, train_each: int, test_each: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """20 classes in 64 dimensions: means are normal in 6 of them, and so are the points around them, with std 1; in
    the other dimensions points of all classes are normal with std 2. A random rotation follows. Returns points and
    ascending labels to train on, then those to test on."""
    classes, dim, signal = 20, 64, 6
    r = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(r.normal(size=(dim, dim)))
    means = np.zeros((classes, dim))
    means[:, :signal] = r.normal(size=(classes, signal))
    deviation = np.where(np.arange(dim) < signal, 1.0, 2.0)
    out: list[np.ndarray] = []
    for each in (train_each, test_each):
        labels = np.repeat(np.arange(classes), each)
        points = (means[labels] + deviation * r.normal(size=(len(labels), dim))) @ rotation
        out += [points.astype(np.float32), labels]
    return out[0], out[1], out[2], out[3]


@cache
def _has_fast_blas() -> bool:
    try:
        import threadpoolctl
    except ModuleNotFoundError:
        return True
    return any(library["user_api"] == "blas" for library in threadpoolctl.threadpool_info())


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b^T of rows, or of stacks of rows. With the reference BLAS, as in Debian without libopenblas0, einsum is three
    times as fast."""
    if _has_fast_blas():
        return a @ b.swapaxes(-1, -2)
    return np.einsum("...ik,...jk->...ij", np.ascontiguousarray(a), np.ascontiguousarray(b))


def adam(value: np.ndarray, moments: np.ndarray, gradient: np.ndarray, lr: Any, step: int, decay: Any = 0.0) -> None:
    """A step, from 0 on, of AdamW in place; moments (2, ...) begin at 0."""
    moments[0] += 0.1 * (gradient - moments[0])
    moments[1] += 0.001 * (gradient * gradient - moments[1])
    first, second = 1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1)
    value -= lr * (moments[0] / first / (np.sqrt(moments[1] / second) + 1e-8) + decay * value)


def cosine(lr: float, step: int, steps: int) -> float:
    return 0.5 * lr * (1 + np.cos(np.pi * step / steps))


@dataclass(frozen=True)
class Blocks:
    """A batch's shape and loss."""
    blocks: int  # N
    size: int  # b
    negatives: int  # k, below N
    hinge: bool = False
    pairs: bool = False


def block_loss(similarity: np.ndarray, o: Blocks) -> tuple[float, np.ndarray]:
    """L and its gradient: similarity (T, N, N) of anchors with the means of blocks; with `pairs` T is b, else 1."""
    n = np.arange(o.blocks)
    others = (n[:, None] + 1 + np.arange(o.negatives)) % o.blocks
    t = similarity[:, n[:, None], others] - similarity[:, n, n][..., None]
    share = 1 / (o.blocks * len(similarity))
    if o.hinge:
        lost = 1 + t.max(-1)
        value = np.maximum(lost, 0).sum() * share
        weight = share * ((np.arange(o.negatives) == t.argmax(-1)[..., None]) & (lost > 0)[..., None])
    else:
        largest = np.maximum(t.max(-1), 0)
        terms = np.exp(t - largest[..., None])
        total = np.exp(-largest) + terms.sum(-1)
        value = (largest + np.log(total)).sum() * share / np.log(2)
        weight = terms / total[..., None] * share / np.log(2)
    gradient = np.zeros_like(similarity)
    gradient[:, n[:, None], others] = weight
    gradient[:, n, n] = -weight.sum(-1)
    return float(value), gradient


class Tower:
    def __init__(self, dim: int, r: np.random.Generator):
        shapes = {"w1": (HIDDEN, dim), "b1": (HIDDEN,), "w2": (EMBED, HIDDEN), "b2": (EMBED,)}
        sizes = [int(np.prod(s)) for s in shapes.values()]
        self.values = np.zeros(sum(sizes), np.float32)  # all parameters, of which the others are views
        self._moments = np.zeros((2, sum(sizes)), np.float32)
        parts = np.split(self.values, np.cumsum(sizes)[:-1])
        self.w1, self.b1, self.w2, self.b2 = (p.reshape(s) for p, s in zip(parts, shapes.values(), strict=True))
        for w in (self.w1, self.w2):
            w[:] = r.normal(size=w.shape) / np.sqrt(w.shape[1])

    def hidden(self, points: np.ndarray) -> np.ndarray:
        return gelu(product(points, self.w1) + self.b1)[0]

    def embed(self, points: np.ndarray) -> np.ndarray:
        return product(self.hidden(points), self.w2) + self.b2

    def loss(self, points: np.ndarray, o: Blocks, learn: bool = True) -> tuple[float, np.ndarray | None]:
        """L of points (N, 1 + b, dim), the anchor first, and the gradient of all parameters. The second layer is
        linear, so it is applied to the mean of a block's hidden units."""
        n, hidden_rows = len(points), points.reshape(-1, points.shape[-1])
        h, slope = gelu(product(hidden_rows, self.w1) + self.b1)
        h = h.reshape(n, 1 + o.size, HIDDEN)
        terms = o.size if o.pairs else 1
        means = h[:, 1:].reshape(n, terms, -1, HIDDEN).mean(2)
        tops = np.concatenate([h[:, :1], means], 1)  # (N, 1 + T, H)
        z = (product(tops.reshape(-1, HIDDEN), self.w2) + self.b2).reshape(n, 1 + terms, EMBED)
        value, ds = block_loss(np.einsum("ie,mte->tim", z[:, 0], z[:, 1:]), o)
        if not learn:
            return value, None
        dz = np.concatenate([np.einsum("tim,mte->ie", ds, z[:, 1:])[:, None], np.einsum("tim,ie->mte", ds, z[:, 0])],
                            1).reshape(-1, EMBED)
        dtops = product(dz, self.w2.T).reshape(n, 1 + terms, HIDDEN)
        dh = np.repeat(dtops, [1] + [o.size // terms] * terms, axis=1)
        dh[:, 1:] *= terms / o.size
        dpre = dh.reshape(-1, HIDDEN) * slope
        return value, np.concatenate([product(dpre.T, hidden_rows.T).ravel(), dpre.sum(0),
                                      product(dz.T, tops.reshape(-1, HIDDEN).T).ravel(), dz.sum(0)])

    def learn_labels(self, points: np.ndarray, labels: np.ndarray, head: np.ndarray, moments: np.ndarray, lr: float,
                     step: int) -> float:
        """A step of AdamW on the softmax cross-entropy of head (classes, 1 + E), the bias last, of the outputs of points
        (B, dim); moments (2, *head.shape) begin at 0. Returns the loss."""
        h, slope = gelu(product(points, self.w1) + self.b1)
        z = np.concatenate([product(h, self.w2) + self.b2, np.ones((len(h), 1), np.float32)], 1)
        scores = product(z, head)
        scores -= scores.max(1, keepdims=True)
        p = np.exp(scores)
        p /= p.sum(1, keepdims=True)
        each = np.arange(len(labels))
        value = -float(np.log(np.maximum(p[each, labels], 1e-30)).mean())
        p[each, labels] -= 1
        p /= len(labels)
        dz = product(p, head.T)[:, :-1]
        dpre = product(dz, self.w2.T) * slope
        gradient = np.concatenate([product(dpre.T, points.T).ravel(), dpre.sum(0), product(dz.T, h.T).ravel(), dz.sum(0)])
        adam(head, moments, product(p.T, z.T), lr, step)
        adam(self.values, self._moments, gradient, lr, step)
        return value

    def learn(self, points: np.ndarray, o: Blocks, lr: float, step: int) -> float:
        value, gradient = self.loss(points, o)
        assert gradient is not None
        adam(self.values, self._moments, gradient, lr, step)
        return value


def draw_blocks(first: np.ndarray, o: Blocks, count: int, r: np.random.Generator) -> np.ndarray:
    """Points of `count` batches (count, N, 1 + b), the anchor first: class c has the points first[c] to
    first[c + 1] - 1, more than b of them."""
    classes = r.integers(len(first) - 1, size=(count, o.blocks))
    sizes = np.diff(first)[classes]
    keys = r.random((count, o.blocks, sizes.max()))
    keys[np.arange(sizes.max()) >= sizes[..., None]] = 2  # beyond the class
    return first[classes][..., None] + keys.argsort(-1)[..., :o.size + 1]


def train_tower(points: np.ndarray, first: np.ndarray, o: Blocks, steps: int, lr: float,
                r: np.random.Generator, advance: Callable[[float], None] = lambda points: None) -> Tower:
    """`advance` is called with the number of points of every step."""
    tower = Tower(points.shape[1], r)
    for begin in range(0, steps, 100):
        for i, rows in enumerate(draw_blocks(first, o, min(100, steps - begin), r)):
            value = tower.learn(points[rows], o, cosine(lr, begin + i, steps), begin + i)
            if not np.isfinite(value):
                raise DataError(f"step {begin + i}: the block loss is not finite; lower the learning rate")
            advance(rows.size)
    return tower


def train_supervised(points: np.ndarray, labels: np.ndarray, steps: int, lr: float, r: np.random.Generator,
                     advance: Callable[[float], None] = lambda points: None, batch: int = 128) -> tuple[Tower, np.ndarray]:
    """A tower under a linear classifier, both trained by labels: softmax cross-entropy. Returns it and the classifier's
    (classes, 1 + E), the bias last."""
    tower, classes = Tower(points.shape[1], r), int(labels.max()) + 1
    head = np.zeros((classes, EMBED + 1), np.float32)
    head[:, :EMBED] = r.uniform(-1, 1, (classes, EMBED)) / np.sqrt(EMBED)
    moments = np.zeros((2, *head.shape), np.float32)
    for step in range(steps):
        rows = r.integers(len(points), size=min(batch, len(points)))
        if not np.isfinite(tower.learn_labels(points[rows], labels[rows], head, moments, cosine(lr, step, steps), step)):
            raise DataError(f"step {step}: the loss is not finite; lower the learning rate")
        advance(len(rows))
    return tower, head
