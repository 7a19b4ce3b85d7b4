"""Pairs of fixed features, and two heads that a loss trains on them: what remains of training when the towers are
frozen, so that thousands of steps take a second. Shared by the studies batch and noise.

    features (B, width) -> linear [-> GELU -> linear] -> z (B, E) -> z / |z| = X, T;  S = X T^T

Runs of equal batch size train in lockstep: the run, R, is the first dimension of arrays, so that there are few NumPy calls.
Every run uses its own random seed, so its numbers do not depend on the other runs.
"""
from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .nets import AdamW, Perceptron, draws, gelu, half_cosine
from .study import DataError, NotFoundError, Option, Options, UsageError, ccstream, np
from .towers import mixture

LARGEST = 128  # of the batches; training pairs are a multiple of it
FAR = 1000.0  # a similarity as far below others has no weight at any temperature
ANCHORS = 2000  # that the global loss is measured at
MAX_ROWS, MAX_WIDTH, MAX_CLASSES = 1 << 20, 2048, 4096
RECALLS = ("r1", "r5", "r10")
WEIGHT_DECAY = 0.02
# What is drawn, of (seed, this, ...).
_PAIRS, _ORDER, _INIT, _EPOCH, _NOISE, _PARTNER, _PROBE, _CROP = range(8)


OPTIONS = [
    Option("features", "f", metavar="PREFIX",
           help="use the features in PREFIX.images.npy (or PREFIX.features.npy, if it exists), PREFIX.texts.npy and PREFIX.owners.npy, "
                "written by ccstream-eval embed --texts [default: random pairs]"),
    Option("pairs", "n", int, 3072, "N", "number of random pairs", 512, 1000000),
    Option("held-out", "", int, 500, "N", "number of validation pairs, and of test pairs; the others are for training", 10, 100000),
    Option("epochs", "e", int, 30, "N", "epochs per run", 2, 10000),
    Option("hidden", "", int, 0, "N", "width of the hidden layer of the heads; 0: linear heads", 0, 4096),
    Option("dim", "", int, 64, "N", "embedding dimension", 2, 1024),
    Option("lr", "", float, 0.004, "RATE", "learning rate at batch size 128; scaled by sqrt(batch / 128)",
           1e-6, 1),
    Option("repeats", "r", int, 5, "N", "seeds per tuned setting", 2, 100),
]


def check(options: Options) -> None:
    """Checks the options, and sets the sizes of --quick."""
    if options.features is not None and "pairs" in options.given:
        raise UsageError("--pairs has no effect with --features, which has its own pairs")
    for name, small in (("pairs", 640), ("held_out", 128), ("epochs", 6), ("repeats", 2)):
        if options.quick and name.replace("_", "-") not in options.given:
            setattr(options, name, small)


# ---- features ----

@dataclass
class Features:
    """Images with texts, or with labels: then a pair is two images of one label, both encoded by one head."""
    images: np.ndarray  # float32 (I, width)
    texts: np.ndarray | None = None  # float32 (T, width)
    owners: np.ndarray | None = None  # (T), ascending: the image of each text; every image has one
    labels: np.ndarray | None = None  # (I)
    patches: np.ndarray | None = None  # float32 (I, P, width), whose means are the images: what crops are made of
    # What a test image is to be recognised as: prompts (G, width), and which of them each image is, (I).
    prompts: np.ndarray | None = None
    kinds: np.ndarray | None = None
    # How the images are divided: rows of `images` in a drawn order.
    test: np.ndarray = field(default_factory=lambda: np.empty(0, int))
    validation: np.ndarray = field(default_factory=lambda: np.empty(0, int))
    train: np.ndarray = field(default_factory=lambda: np.empty(0, int))  # without captions a multiple of LARGEST
    captions: np.ndarray | None = None  # rows of `texts` that are a sample each, a multiple of LARGEST; None: images are

    @property
    def count(self) -> int:
        """Samples to train on."""
        return len(self.train if self.captions is None else self.captions)

    @property
    def first_text(self) -> np.ndarray:
        """(I + 1): the texts of image i are first_text[i] to first_text[i + 1] - 1."""
        return np.searchsorted(self.owners, np.arange(len(self.images) + 1))

    def hash(self) -> str:
        arrays = [x for x in (self.images, self.texts, self.labels) if x is not None]
        return hashlib.blake2b(b"".join(x.tobytes() for x in arrays), digest_size=8).hexdigest()


def draw_pairs(count: int, seed: int) -> Features:
    """Points around centres of clusters of unequal size. The image and the text are two random views of a point, each with its
    own noise."""
    latent, clusters, width = 12, 96, 64
    r = draws(seed, _PAIRS)
    centres = r.normal(size=(clusters, latent))
    views = r.normal(size=(2, latent, width)) / np.sqrt(latent)
    share = 1 / np.arange(1, clusters + 1)
    z = centres[r.choice(clusters, count, p=share / share.sum())] + 0.7 * r.normal(size=(count, latent))
    images, texts = (np.tanh(z @ view) + r.normal(size=(count, width)) for view in views)
    return Features(images.astype(np.float32), texts.astype(np.float32), np.arange(count))


def draw_labelled(seed: int) -> Features:
    """150 points per class of the mixture."""
    train, train_labels, test, test_labels = mixture(seed, 50, 100)
    return Features(np.concatenate([train, test]), labels=np.concatenate([train_labels, test_labels]))


def draw_cropped(seed: int) -> Features:
    """150 points in each of 20 classes, of 20 patches. In 6 of 64 dimensions the position of a point is its class's, in 18
    others its own, both normal with std 1; every patch adds its own noise in all dimensions, with std 2. A random rotation
    follows."""
    classes, each, patches, width, common, own = 20, 150, 20, 64, 6, 18
    r = draws(seed, _CROP)
    rotation, _ = np.linalg.qr(r.normal(size=(width, width)))
    labels = np.repeat(np.arange(classes), each)
    centre = np.zeros((len(labels), width))
    centre[:, :common] = r.normal(size=(classes, common))[labels]
    centre[:, common:common + own] = r.normal(size=(len(labels), own))
    points = (centre @ rotation).astype(np.float32)[:, None] + 2 * r.normal(size=(len(labels), patches, width)).astype(np.float32)
    return Features(points.mean(1), labels=labels, patches=points)


def _load(prefix: str, name: str, dtype: str) -> np.ndarray:
    path = f"{prefix}.{name}.npy"
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: {error}") from None
    rows = 2 if dtype == "<f4" else 1
    if array.dtype != np.dtype(dtype) or array.ndim != rows or not np.isfinite(array).all():
        raise DataError(f"{path}: expected finite numbers of type {dtype} in {rows} "
                                    f"dimension{'s' if rows > 1 else ''}")
    if not 1 <= len(array) <= MAX_ROWS or array.shape[-1] < 1 or (rows > 1 and array.shape[1] > MAX_WIDTH):
        raise DataError(f"{path}: {array.shape} numbers; at most {MAX_ROWS} rows of {MAX_WIDTH}")
    return array


def _load_images(prefix: str) -> np.ndarray:
    """The tower's output if its file exists, else the embeddings."""
    return _load(prefix, "features" if os.path.exists(f"{prefix}.features.npy") else "images", "<f4")


def read_pairs(prefix: str) -> Features:
    """Reads files written by `ccstream-eval embed --texts`."""
    f = Features(_load_images(prefix), _load(prefix, "texts", "<f4"), _load(prefix, "owners", "<i4"))
    if len(f.owners) != len(f.texts):
        raise DataError(f"{prefix}: {len(f.texts)} texts, but {len(f.owners)} owners")
    if not np.array_equal(np.unique(f.owners), np.arange(len(f.images))) or (np.diff(f.owners) < 0).any():
        raise DataError(f"{prefix}.owners.npy: owners must ascend, and each of the {len(f.images)} images "
                                    "must have a text")
    return f


def read_labelled(prefix: str) -> Features:
    f = Features(_load_images(prefix), labels=_load(prefix, "labels", "<i4"))
    if len(f.labels) != len(f.images) or f.labels.min() < 0 or not 1 <= f.labels.max() < MAX_CLASSES:
        raise DataError(f"{prefix}: each image needs a label of two to {MAX_CLASSES} classes")
    return f


def _standardise(rows: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Scales columns to mean 0 and overall mean square 1 over the training rows."""
    values = rows.astype(np.float64)
    values -= values[train].mean(0)
    return (values / np.sqrt(np.mean(values[train] ** 2) or np.inf)).astype(np.float32)


def divide(f: Features, held_out: int, seed: int, most: int | None = None, captions: bool = False) -> Features:
    """Splits at random into test, validation and training images (at most `most`), and standardises by the training images.
    captions: each caption of a training image is its own sample."""
    rest = min(len(f.images) - 2 * held_out, most or len(f.images))
    if rest < LARGEST:
        raise UsageError(f"{len(f.images)} pairs: with --held-out {held_out} for validation and as many for "
                                  f"the test fewer than {LARGEST} remain")
    used = rest if captions else rest // LARGEST * LARGEST
    order = draws(seed, _ORDER).permutation(len(f.images))
    f.test, f.validation = order[:held_out], order[held_out:2 * held_out]
    f.train = order[2 * held_out:][:used]
    if captions:
        own = draws(seed, _ORDER, 1).permutation(np.flatnonzero(np.isin(f.owners, f.train)))
        f.captions = own[:len(own) // LARGEST * LARGEST]
    if f.patches is not None:
        shift = f.images[f.train].mean(0)
        f.patches = (f.patches - shift) / np.sqrt(np.mean((f.images[f.train] - shift) ** 2))
    f.images = _standardise(f.images, f.train)
    if f.texts is not None:
        f.texts = _standardise(f.texts, np.isin(f.owners, f.train))
    return f


# ---- heads ----

def _normalize(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    norm = np.sqrt(np.einsum("...e,...e->...", z, z)[..., None])
    norm = np.maximum(norm, np.float32(1e-12))
    return z / norm, norm


def _normalize_backward(dx: np.ndarray, x: np.ndarray, norm: np.ndarray) -> np.ndarray:
    return (dx - np.einsum("...e,...e->...", dx, x)[..., None] * x) / norm


class Heads:
    """The heads of R runs: one for images and one for texts, or one for both sides of labelled images."""

    def __init__(self, f: Features, hidden: int, dim: int, seeds: Sequence[int]):
        inputs = [f.images] if f.texts is None else [f.images, f.texts]
        self.sides = [Perceptron([x.shape[1], *[hidden] * (hidden > 0), dim]) for x in inputs]
        self.bind(np.empty((len(seeds), sum(p.weight_count + p.bias_count for p in self.sides)), np.float32))
        for run, seed in enumerate(seeds):
            r = draws(seed, _INIT)
            for p in self.sides:
                for weight, bias in p.layers:
                    for part in (weight, bias):
                        part[run] = r.uniform(-1, 1, part[run].shape) / np.sqrt(weight.shape[1])

    def bind(self, values: np.ndarray) -> None:
        """Uses a table of parameters (R, n): weights of all layers, then biases."""
        weights_at, biases_at = 0, sum(p.weight_count for p in self.sides)
        self.optimizer = AdamW(values, biases_at, WEIGHT_DECAY)
        for p in self.sides:
            p.bind(self.optimizer, weights_at, biases_at)
            weights_at, biases_at = weights_at + p.weight_count, biases_at + p.bias_count

    def forward(self, images: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(R, B, width) each -> L2-normalised embeddings."""
        if len(self.sides) == 1:
            z = self.sides[0].forward(np.concatenate([images, others], 1))
        else:
            z = np.concatenate([p.forward(x) for p, x in zip(self.sides, (images, others))], 1)
        self.out, self.norm = _normalize(z)
        half = images.shape[1]
        return self.out[:, :half], self.out[:, half:]

    def backward(self, dimages: np.ndarray, dothers: np.ndarray) -> None:
        dz = _normalize_backward(np.concatenate([dimages, dothers], 1), self.out, self.norm)
        for p, part in zip(self.sides, np.split(dz, len(self.sides), 1)):
            p.backward(part)

    def embed(self, run: int, side: int, rows: np.ndarray) -> np.ndarray:
        """Embeddings of rows (N, width) by one run."""
        x = rows
        for k, (weight, bias) in enumerate(self.sides[side].layers):
            x = (gelu(x)[0] if k > 0 else x) @ weight[run] + bias[run]
        return _normalize(x)[0]


# ---- a run ----

@dataclass(frozen=True)
class Setting:
    """A run: its loss and its training data."""
    seed: int
    loss: str
    options: dict[str, Any]  # of ccstream.Loss, with tau
    zeta_lr: float | None = 0.0  # peak rate of zeta, a cosine; None: --zeta-lr auto
    # Fraction of the training images with the texts of another one; labelled: with the label of another class. Which
    # ones goes by (seed, image): more noise keeps that of less.
    noise: float = 0.0
    # Labelled: a pair is two crops of one point, as `crop` makes them, instead of two points of a label; noise is then the
    # chance that a crop is cut to a fifth. Needs patches.
    crops: bool = False
    freeze: bool = True  # zeta is frozen for a sixth of the steps
    # Labelled: points of the anchor's own label are none of its negatives.
    unbiased: bool = False


@dataclass
class Outcome:
    """In percent. Labelled: only `score`, the accuracy of a linear classifier of the embeddings, trained on the correct labels;
    else `score` is the mean of the recalls."""
    validation: tuple[float, ...]  # R@1, R@5, R@10, each the mean of both directions
    test: tuple[float, ...]
    validation_score: float
    test_score: float
    gcl: float = np.nan  # the global loss at tau over the training pairs as they belong together, of ANCHORS of them
    zero_shot: float = np.nan  # with prompts: test images that are recognised
    zeta: np.ndarray | None = field(default=None, compare=False)  # of the texts of the training images, of a loss that has it


def wrong_texts(setting: Setting, count: int) -> np.ndarray:
    """(count): for each training image, the index of the training image whose texts it gets."""
    r = draws(setting.seed, _NOISE)
    wrong = r.uniform(size=count) < setting.noise
    other = r.integers(count - 1, size=count)
    own = np.arange(count)
    return np.where(wrong, other + (other >= own), own)


def wrong_labels(setting: Setting, labels: np.ndarray, classes: int) -> np.ndarray:
    r = draws(setting.seed, _NOISE)
    wrong = r.uniform(size=len(labels)) < setting.noise
    return np.where(wrong, (labels + r.integers(1, classes, size=len(labels))) % classes, labels)


def crop(patches: np.ndarray, noise: float, r: np.random.Generator) -> np.ndarray:
    """Means of some patches, (N, width), of points (N, P, width): consecutive patches (the first follows the last), 40 to 100 %
    of them, or with probability `noise` a fifth of that; at least one."""
    points, count, _ = patches.shape
    size = count * (0.4 + 0.6 * r.random(points))
    size = np.maximum(np.where(r.random(points) < noise, size / 5, size).round(), 1)
    place = (np.arange(count) - r.integers(count, size=points)[:, None]) % count
    weight = (place < size[:, None]) / size[:, None]
    return np.einsum("np,npw->nw", weight.astype(np.float32), patches)


def partners(labels: np.ndarray, r: np.random.Generator) -> np.ndarray:
    """For each row another row with the same label; itself if there is none."""
    order = np.argsort(labels, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    counts = np.bincount(labels)
    first = (np.cumsum(counts) - counts)[labels]
    count = counts[labels]
    step = 1 + (r.uniform(size=len(labels)) * (count - 1)).astype(int)
    return order[first + (place - first + np.minimum(step, count - 1)) % count]


class _Pairs:
    """The pairs of one epoch of a run: rows of images, and of texts or other images."""

    def __init__(self, f: Features, setting: Setting):
        self.f, self.setting = f, setting
        count = len(f.train)
        if f.labels is None and f.captions is None:
            owner = f.train[wrong_texts(setting, count)]
            self.first = f.first_text[owner]
            self.count = f.first_text[owner + 1] - self.first
        elif f.captions is None:
            self.labels = wrong_labels(setting, f.labels[f.train], int(f.labels.max()) + 1)

    def epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(N) each, in the order of this epoch: ids, rows of images, rows of the other side."""
        ids = draws(self.setting.seed, _EPOCH, epoch).permutation(self.f.count)
        if self.f.captions is not None:
            return ids, self.f.owners[self.f.captions[ids]], self.f.captions[ids]
        if self.setting.crops:
            return ids, self.f.train[ids], self.f.train[ids]
        if self.f.labels is None:
            return ids, self.f.train[ids], (self.first + (epoch + np.arange(len(ids))) % self.count)[ids]
        other = partners(self.labels, draws(self.setting.seed, _PARTNER, epoch))
        return ids, self.f.train[ids], self.f.train[other[ids]]


def train(f: Features, settings: Sequence[Setting], batch: int, epochs: int, rate: float, hidden: int, dim: int,
          advance: Callable[[float], None]) -> list[Outcome]:
    """Trains heads with one batch size, with another caption of each image from epoch to epoch, and measures them. AdamW with
    weight decay 0.02, cosine schedule after 5 % warmup; zeta is frozen for a sixth of the steps. rate 0: random heads, not
    trained. `advance` is called with the number of pairs processed since its last call, over all runs."""
    heads = Heads(f, hidden, dim, [s.seed for s in settings])
    losses: list[Any] = []
    if rate > 0:
        for pairs in _steps(f, heads, settings, batch, epochs, rate, losses):
            advance(pairs)
    out = [_measure(f, heads, run, s) for run, s in enumerate(settings)]
    for outcome, loss, s in zip(out, losses, settings):
        outcome.zeta = loss["text.zeta"] if s.loss.startswith("nuclr") else None
    return out


def _steps(f: Features, heads: Heads, settings: Sequence[Setting], batch: int, epochs: int,
           rate: float, losses: list[Any]) -> Iterator[float]:
    """Yields the number of processed pairs from time to time; fills `losses`."""
    count, per_epoch = f.count, f.count // batch
    total = epochs * per_epoch
    warmup, frozen = total // 20, total // 6
    losses += [ccstream.Loss(s.loss, count, max_batch=batch, **s.options, **(
        {"zeta_lr": "auto", "zeta_freeze_epochs": frozen // per_epoch if s.freeze else 0} if s.zeta_lr is None else {}))
        for s in settings]
    sides = [f.images, f.images if f.texts is None else f.texts]
    pairs = [_Pairs(f, s) for s in settings]
    gradient = np.empty((len(settings), batch, batch), np.float32)
    for step in range(total):
        epoch, place = divmod(step, per_epoch)
        if place == 0:
            rows = np.array([p.epoch(epoch) for p in pairs]).transpose(1, 0, 2)  # (3, R, N)
        ids, image_rows, other_rows = rows[:, :, place * batch:(place + 1) * batch]
        lr = rate * ((step + 1) / warmup if step < warmup else half_cosine(step - warmup, total - warmup))
        moving = [0.0 if step < first else half_cosine(step - first, total - first) for first in (frozen, 0)]
        inputs = [sides[0][image_rows], sides[1][other_rows]]
        for r, s in enumerate(settings):
            for side in range(2 if s.crops else 0):
                inputs[side][r] = crop(f.patches[image_rows[r]], s.noise, draws(s.seed, _CROP, step, side))
        x, t = heads.forward(*inputs)
        similarity = x @ t.transpose(0, 2, 1)
        for r, s in enumerate(settings):
            if s.unbiased:  # far below all others, so that they have no weight
                own = f.labels[image_rows[r]]
                similarity[r][(own[:, None] == own) & ~np.eye(batch, dtype=bool)] = -FAR
        for r, loss in enumerate(losses):
            own, zeta = settings[r].zeta_lr, moving[not settings[r].freeze]
            text, image = (float(zeta > 0),) * 2 if own is None else (own * zeta, 0.1 * own * zeta)
            gradient[r] = loss.step(similarity[r], ids[r], step=step, epoch=epoch, lr=lr, zeta_lr_text=text,
                                    zeta_lr_image=image).gradient
        heads.backward(gradient @ t, gradient.transpose(0, 2, 1) @ x)
        heads.optimizer.step(lr)
        if (step + 1) % 64 == 0 or step + 1 == total:
            yield float(len(settings) * batch * (step % 64 + 1))


def rate_of(options: Options, batch: int) -> float:
    return options.lr * float(np.sqrt(batch / LARGEST))


def train_all(f: Features, settings: Sequence[Setting], batch: int, epochs: int, options: Options,
              advance: Callable[[float], None]) -> Iterator[Outcome]:
    """The outcome of each setting, trained in groups whose parameters and moments fit into a core's cache."""
    widths = [x.shape[1] for x in (f.images, f.texts) if x is not None]
    parameters = sum(options.hidden * (w + options.dim) if options.hidden > 0 else w * options.dim for w in widths)
    size = min(max((1 << 17) // parameters, 1), 16)
    for first in range(0, len(settings), size):
        yield from train(f, settings[first:first + size], batch, epochs, rate_of(options, batch),
                         options.hidden, options.dim, advance)


# ---- measures ----

def recalls(x: np.ndarray, t: np.ndarray, owners: np.ndarray) -> tuple[float, ...]:
    """R@1, R@5 and R@10 in percent, means of both directions; owners (T): the row of x of each text. Ties count as misses."""
    s = x @ t.T
    own = s[owners, np.arange(len(t))]
    best = np.full(len(x), -np.inf, np.float32)
    np.maximum.at(best, owners, own)
    wins = s >= best[:, None]
    own_wins = np.bincount(owners, own >= best[owners], len(x))
    image_ranks = wins.sum(1) - own_wins
    text_ranks = (s >= own).sum(0) - 1
    return tuple(float(50 * ((image_ranks < k).mean() + (text_ranks < k).mean())) for k in (1, 5, 10))


def global_loss(x: np.ndarray, t: np.ndarray, tau: float, anchors: int | None = None) -> float:
    """GCL of train/eval/objective.h: the sum over both sides of mean_i tau log sum_{j != i} exp((S_ij - S_ii) / tau), over
    the first `anchors` of each side."""
    total = 0.0
    for own, other in ((x, t), (t, x)):
        s = own[:anchors] @ other.T
        positive = np.diag(s).astype(np.float64)
        largest = float(s.max())
        if (largest - float(s.min())) / tau > 80:  # below what float32 holds of an exponential
            s = s.astype(np.float64)
        np.fill_diagonal(s, -np.inf)
        s -= largest
        s /= tau
        np.exp(s, out=s)
        total += tau * float(np.log(s.sum(1, dtype=np.float64)).mean()) + largest - float(positive.mean())
    return total


def probe(x: np.ndarray, labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (E, C) and bias (C) of a linear classifier: softmax cross-entropy by AdamW, as CyCLIP's linear probe
    (train/eval/probe.h), with learning rate 0.05, because L2-normalised embeddings need larger weights."""
    epochs, batch, rate, decay = 32, min(512, len(x)), 0.05, 0.01
    classes, dim = int(labels.max()) + 1, x.shape[1]
    r = draws(seed, _PROBE)
    net = Perceptron([dim, classes])
    optimizer = AdamW(np.zeros((1, (dim + 1) * classes), np.float32), dim * classes, decay)
    net.bind(optimizer, 0, dim * classes)
    net.layers[0][0][:] = r.uniform(-1, 1, (dim, classes)) / np.sqrt(dim)
    starts = range(0, len(x), batch)
    for step in range(epochs * len(starts)):
        place = step % len(starts)
        order = r.permutation(len(x)) if place == 0 else order
        rows = order[starts[place]:starts[place] + batch]
        p = net.forward(x[None, rows])
        p = np.exp(p - p.max(2, keepdims=True))
        p /= p.sum(2, keepdims=True)
        p[0, np.arange(len(rows)), labels[rows]] -= 1
        net.backward(p / np.float32(len(rows)))
        optimizer.step(rate * half_cosine(step, epochs * len(starts)))
    return net.layers[0][0][0], net.layers[0][1][0, 0]


def _measure(f: Features, heads: Heads, run: int, setting: Setting) -> Outcome:
    if f.labels is not None:
        weight, bias = probe(heads.embed(run, 0, f.images[f.train]), f.labels[f.train], setting.seed)
        scores = [float(100 * np.mean((heads.embed(run, 0, f.images[part]) @ weight + bias).argmax(1) == f.labels[part]))
                  for part in (f.validation, f.test)]
        return Outcome((), (), *scores)
    first = f.first_text
    found = []
    for part in (f.validation, f.test):
        rows = np.concatenate([np.arange(first[i], first[i + 1]) for i in part])
        owners = np.repeat(np.arange(len(part)), first[part + 1] - first[part])
        found.append(recalls(heads.embed(run, 0, f.images[part]), heads.embed(run, 1, f.texts[rows]), owners))
    texts = first[f.train] if f.captions is None else f.captions
    gcl = global_loss(heads.embed(run, 0, f.images[f.owners[texts]]), heads.embed(run, 1, f.texts[texts]),
                      setting.options["tau"], ANCHORS)
    zero_shot = np.nan
    if f.prompts is not None:
        scores = heads.embed(run, 0, f.images[f.test]) @ heads.embed(run, 1, f.prompts).T
        zero_shot = float(100 * np.mean(scores.argmax(1) == f.kinds[f.test]))
    return Outcome(*found, *(float(np.mean(x)) for x in found), gcl, zero_shot)


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The mean over seeds and its standard error; None if there are too few."""
    mean = float(np.mean(values)) if len(values) > 0 else None
    return mean, float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
