"""Labelled points in the setting of Arora et al. (ICML 2019, section 2): latent classes from which points are sampled, a training
and a test part; and the paper's measures of a tower on them."""
from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from .study import DataError, UsageError, ccstream, np
from .towers import Blocks, Tower, block_loss, draw_blocks, mixture

SIZES = (1, 2, 5, 10)  # of blocks
LEAST = SIZES[-1] + 1  # points of a class: the largest block and its anchor
SHOTS, DRAWS = 5, 10  # of mu-5
MEASURED_BATCHES, MEASURED_BLOCKS = 64, 32
_TEST, _SHOTS = 1, 2  # what is drawn
_ONE_IN = 4  # samples of a dataset are to test


@dataclass
class Points:
    """Rows sorted by label; class c has rows first[c] to first[c + 1] - 1."""
    rows: np.ndarray  # float32 (count, dim)
    labels: np.ndarray  # (count)

    def __post_init__(self):
        self.first = np.searchsorted(self.labels, np.arange(self.labels[-1] + 2))

    @property
    def classes(self) -> int:
        return len(self.first) - 1


@dataclass
class Parts:
    train: Points
    test: Points


# ---- points

def draw(seed: int) -> Parts:
    """Samples the mixture: 50 training and 100 test points per class."""
    train, train_labels, test, test_labels = mixture(seed, 50, 100)
    return Parts(Points(train, train_labels), Points(test, test_labels))


def _divide(rows: np.ndarray, labels: np.ndarray, is_test: np.ndarray) -> Parts:
    """Splits into parts, each sorted by label. UsageError: a class has too few points in a part."""
    counts = np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in (~is_test, is_test)])
    few = np.flatnonzero(counts.min(0) < LEAST)
    if len(few) > 0:
        raise UsageError(f"class {few[0]} has {counts[:, few[0]].sum()} points; blocks need about "
                                  f"{LEAST * _ONE_IN} of every class")
    parts = []
    for part in (~is_test, is_test):
        order = np.argsort(labels[part], kind="stable")
        parts.append(Points(rows[part][order], labels[part][order]))
    return Parts(*parts)


def read_images(directory: str, size: int) -> Parts:
    """Images of a labelled dataset: pixels in [-1, 1]; every fourth image of a class is for testing."""
    loader = ccstream.DataLoader(directory, 64, size, "eval-crop", shuffle=False, drop_last=False, captions=False,
                                 max_corrupt=0)
    batches = [(np.array(b["image"]), np.array(b["label"])) for b in loader]
    images, labels = (np.concatenate(x) for x in zip(*batches))
    if labels.min() < 0:
        raise UsageError(f"{directory} has images without labels; pack class folders or "
                                  "CIFAR files")
    if not 1 <= labels.max() < 4096:
        raise UsageError(f"{directory} has {labels.max() + 1} classes, not 2 to 4096")
    nth = np.empty(len(labels), int)  # of its class
    for c in range(labels.max() + 1):
        own = np.flatnonzero(labels == c)
        nth[own] = np.arange(len(own))
    rows = images.reshape(len(images), -1).astype(np.float32) / np.float32(127.5) - 1
    return _divide(rows, labels, nth % _ONE_IN == _ONE_IN - 1)


def _words(text: str) -> list[str]:
    """Words of two letters or more, in lower case."""
    return [word.lower() for word in re.findall("[A-Za-z]{2,}", text)]


def read_captions(directory: str, topics: str, least: int = LEAST) -> Parts:
    """Captions of a dataset, grouped by topic. A caption belongs to a topic if it contains its word, or the plural in s, and no
    other topic's. Topics with fewer than `least` captions in a part are omitted. A point has one number for every other word
    that occurs in at least five captions (the 4,096 most frequent): ln(captions / captions with the word) if the caption
    contains it, else 0; then it is scaled to the length sqrt(dim). Captions of every fourth sample are for testing."""
    names = _words(topics)
    if not 2 <= len(names) <= 256:
        raise UsageError(f"--topics: expected 2 to 256 words, found {len(names)}")
    topic_of = {word: t for t, name in enumerate(names) for word in (name + "s", name)}
    captions, labels, is_test = [], [], []
    dataset = ccstream.Dataset(directory)
    for i in range(len(dataset)):
        for text in dataset.captions(i):
            words = set(_words(text))
            found = {topic_of[word] for word in words if word in topic_of}
            if len(found) == 1:
                captions.append(words - topic_of.keys())
                labels += found
                is_test.append(i % _ONE_IN == _ONE_IN - 1)
    labels, is_test = np.array(labels, int), np.array(is_test, bool)
    counts = [np.bincount(labels[part], minlength=len(names)) for part in (~is_test, is_test)]
    kept = np.flatnonzero(np.min(counts, 0) >= least)
    if len(kept) < 2:
        raise UsageError(f"{len(kept)} of the --topics have about {least * _ONE_IN} captions or more; blocks "
                                  "need two such topics")
    taken = np.flatnonzero(np.isin(labels, kept))
    rows = _tf_idf([captions[i] for i in taken])
    return _divide(rows, np.searchsorted(kept, labels[taken]), is_test[taken])


def _tf_idf(captions: list[set[str]]) -> np.ndarray:
    counts = Counter(word for words in captions for word in words)
    least = 5
    while sum(n >= least for n in counts.values()) > 4096:
        least += 1
    columns = {word: k for k, word in enumerate(sorted(w for w, n in counts.items() if n >= least))}
    if len(columns) == 0 or len(captions) * len(columns) > 1 << 28:
        raise DataError(f"{len(captions)} captions with {len(columns)} words are not 1 to {1 << 28} numbers")
    rows = np.zeros((len(captions), len(columns)), np.float32)
    for i, words in enumerate(captions):
        for word in words & columns.keys():
            rows[i, columns[word]] = np.log(len(captions) / counts[word])
    lengths = np.sqrt((rows.astype(np.float64) ** 2).sum(1, keepdims=True))
    return (rows * np.sqrt(len(columns)) / np.where(lengths > 0, lengths, np.inf)).astype(np.float32)


# ---- measures

def class_means(x: np.ndarray, points: Points) -> np.ndarray:
    """(classes, E)."""
    return np.add.reduceat(x, points.first[:-1], 0) / np.diff(points.first)[:, None]


def classify(x: np.ndarray, labels: np.ndarray, means: np.ndarray) -> tuple[float, float, float]:
    """AVG-2 (exact mean over pairs of classes), top-1 and top-10 accuracy of the mean classifier, in percent. Ties count as
    errors."""
    scores = x @ means.T
    ranks = (scores >= scores[np.arange(len(x)), labels][:, None]).sum(1) - 1
    return float(100 * (1 - ranks.mean() / (len(means) - 1))), float(100 * (ranks == 0).mean()), float(100 * (ranks < 10).mean())


def mean_loss(x: np.ndarray, labels: np.ndarray, means: np.ndarray) -> float:
    """Mean over points and the other classes of log2(1 + exp(g_other - g_own)), g = W^mu f."""
    scores = x.astype(np.float64) @ means.astype(np.float64).T
    losses = np.logaddexp(0, scores - scores[np.arange(len(x)), labels][:, None]) / np.log(2)
    return float((losses.sum() - len(x)) / (len(x) * (len(means) - 1)))  # the own class: log2(2)


def measure(tower: Tower, parts: Parts, seed: int) -> dict[str, float]:
    """Measures on the test points. avg2, top1, top10: the mean classifier, with the means of all training points; avg2_5,
    top1_5, top10_5: with the means of 5 points per class (mu-5), averaged over 10 draws; mean_loss: its loss on two classes,
    with the means of the test points; loss_B: the block losses with one negative."""
    train, test = parts.train, parts.test
    x, learned = tower.embed(test.rows), tower.embed(train.rows)
    out = dict(zip(("avg2", "top1", "top10"), classify(x, test.labels, class_means(learned, train))))
    few = []
    for k in range(DRAWS):
        r = np.random.default_rng([seed, _SHOTS, k])
        shots = [learned[a + r.permutation(b - a)[:SHOTS]].mean(0) for a, b in zip(train.first, train.first[1:])]
        few.append(classify(x, test.labels, np.array(shots)))
    out |= zip(("avg2_5", "top1_5", "top10_5"), (float(v) for v in np.mean(few, 0)))
    out["mean_loss"] = mean_loss(x, test.labels, class_means(x, test))
    for size in SIZES:
        o = Blocks(MEASURED_BLOCKS, size, 1)
        rows = draw_blocks(test.first, o, MEASURED_BATCHES, np.random.default_rng([seed, _TEST, size]))
        means = x[rows[..., 1:]].mean(2)
        out[f"loss_{size}"] = block_loss(x[rows[..., 0]] @ means.transpose(0, 2, 1), o)[0]
    return out
