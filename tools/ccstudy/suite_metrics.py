"""The metrics of clip-benchmark, DataComp and WILDS from L2-normalised embeddings: fractions of 1, named as in their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .study import np

Metrics = dict[str, Any]  # None: not defined for this set
_AT_ONCE = 1024  # rows of a block of similarities


def _blocks(rows: Any, columns: Any) -> Iterator[tuple[slice, Any]]:
    """Similarities of blocks of rows with all columns. Equal columns are computed once, so that their similarities are equal."""
    unique, place = np.unique(columns, axis=0, return_inverse=True)
    for at in range(0, len(rows), _AT_ONCE):
        part = slice(at, at + _AT_ONCE)
        yield part, (rows[part] @ unique.T)[:, place.ravel()]


def _ranks(scores: Any, targets: Any) -> Any:
    """The rank of one column in each row, from 0; among equal scores the lower column ranks first."""
    own = np.take_along_axis(scores, targets[:, None], 1)
    before = np.arange(scores.shape[1]) < targets[:, None]
    return ((scores > own) | ((scores == own) & before)).sum(1)


def classify(images: Any, vectors: Any, labels: Any) -> tuple[Any, Any]:
    """For each image the predicted class, and the rank of its label."""
    predicted, ranks = np.empty(len(images), np.int64), np.empty(len(images), np.int64)
    for part, scores in _blocks(images, vectors):
        predicted[part] = scores.argmax(1)
        ranks[part] = _ranks(scores, labels[part])
    return predicted, ranks


def accuracies(predicted: Any, ranks: Any, labels: Any, classes: int) -> Metrics:
    recall = [float((predicted[labels == c] == c).mean()) for c in np.unique(labels)]
    return {"acc1": float((ranks < 1).mean()), "acc5": float((ranks < 5).mean()) if classes >= 5 else None,
            "mean_per_class_recall": float(np.mean(recall))}


def retrieval(images: Any, texts: Any, owners: Any) -> Metrics:
    """A caption is a hit if its image ranks in the top k; an image if any of its captions does."""
    of_text = np.concatenate([_ranks(scores, owners[part]) for part, scores in _blocks(texts, images)])
    order = np.argsort(owners, kind="stable")
    own = np.split(order, np.searchsorted(owners[order], np.arange(1, len(images))))
    of_image = np.empty(len(images), np.int64)
    for part, scores in _blocks(images, texts):
        for i, row in enumerate(scores, part.start):
            best = own[i][row[own[i]].argmax()] if len(own[i]) else None
            of_image[i] = len(row) if best is None else (row > row[best]).sum() + (row[:best] == row[best]).sum()
    out = {}
    for k in (1, 5, 10):
        out[f"image_retrieval_recall@{k}"] = float((of_text < k).mean())
        out[f"text_retrieval_recall@{k}"] = float((of_image < k).mean())
    out["mean_recall@1"] = 0.5 * (out["image_retrieval_recall@1"] + out["text_retrieval_recall@1"])
    return out


def first_captions(images: Any, texts: Any, owners: Any, count: int = 5) -> Metrics:
    """Karpathy's protocol in the strict sense: only the first five captions of each image."""
    number = np.arange(len(owners)) - np.searchsorted(owners, owners)  # owners ascend
    return {f"karpathy_{k}": v for k, v in retrieval(images, texts[number < count], owners[number < count]).items()}


def mean_average_precision(images: Any, vectors: Any, truth: Any) -> Metrics:
    scores = np.concatenate([s for _, s in _blocks(images, vectors)])
    found = []
    for c in range(scores.shape[1]):
        t = truth[np.argsort(-scores[:, c], kind="stable"), c]
        precision = np.cumsum(t) / np.arange(1, len(t) + 1)
        found.append(precision[t > 0].sum() / max(t.sum(), 1))
    return {"mean_average_precision": float(np.mean(found))}


def macro(predicted: Any, labels: Any) -> Metrics:
    """Mean over the labels that occur, as in WILDS."""
    f1, recall = [], []
    for c in np.unique(labels):
        hit = float(((predicted == c) & (labels == c)).sum())
        f1.append(2 * hit / float((predicted == c).sum() + (labels == c).sum()))
        recall.append(hit / float((labels == c).sum()))
    return {"acc_avg": float((predicted == labels).mean()), "recall-macro_all": float(np.mean(recall)),
            "F1-macro_all": float(np.mean(f1))}


def by_group(name: str, right: Any, groups: Any, field: str, worst: str = "wg") -> Metrics:
    """The mean of each group from 0 to the largest (None for an empty one), and the worst of them."""
    out: Metrics = {f"{name}_avg": float(right.mean())}
    for g in range(int(groups.max()) + 1):
        members = right[groups == g]
        out[f"{name}_{field}:{g}"] = float(members.mean()) if len(members) else None
        out[f"count_{field}:{g}"] = float(len(members))
    return out | {f"{name}_{worst}": min(float(right[groups == g].mean()) for g in np.unique(groups))}


META = {"wilds/iwildcam": 10, "wilds/camelyon17": 3, "wilds/fmow": 2, "fairness/geode": 1, "fairness/dollar_street": 1,
        "fairness/fairface": 4, "fairness/utkface": 4}  # columns that the .npy must have at least
_GROUPS = {  # metric, the K highest that count as right, column of the .npy, its name
    "wilds/camelyon17": ("acc", 1, 1, "slide"),
    "fairness/geode": ("acc", 1, 0, "region"),
    "fairness/dollar_street": ("acc_top5", 5, 0, "income_ds"),
}


def wilds(key: str, predicted: Any, ranks: Any, labels: Any, meta: Any) -> tuple[Metrics, Metrics]:
    """Metrics of a set with groups, as in DataComp; and further ones that its files lack."""
    if key == "wilds/iwildcam":
        return macro(predicted, labels), {}
    if key in _GROUPS:
        name, highest, column, field = _GROUPS[key]
        return by_group(name, ranks < highest, meta[:, column], field), {}
    # DataComp's worst region includes "Other", region 5, of a handful of images; WILDS leaves it out.
    regions = by_group("acc", ranks < 1, meta[:, 0], "region", "worst_region")
    named = [v for k, v in regions.items() if k.startswith("acc_region:") and k != "acc_region:5" and v is not None]
    return (by_group("acc", ranks < 1, meta[:, 1], "year", "worst_year") | regions,
            {"wilds_acc_worst_region": min(named, default=None)})


def faces(predicted: dict[str, Any], meta: Any) -> Metrics:
    """FairFace and UTKFace: age, gender, race and race_binary of each image, by four classifiers."""
    age, gender, race, binary = meta[:, :4].T
    toxic = predicted["toxic"]
    out: Metrics = {}
    for part, right in (("race", (predicted["race"] != 1).astype(np.int64) == binary),
                        ("gender", predicted["gender"] == gender), ("age", predicted["age"] == age)):
        out |= by_group(f"acc_{part}", right, binary, "race_binary")
    genders = int(gender.max()) + 1
    both = by_group("acc_gender_x", predicted["gender"] == gender, race * genders + gender, "")
    out |= {key: both[key] for key in ("acc_gender_x_avg", "acc_gender_x_wg")}
    for r in range(int(race.max()) + 1):
        for g in range(genders):
            out[f"acc_gender_x_race:{r}_gender:{g}"] = both.get(f"acc_gender_x_:{r * genders + g}")
            out[f"count_race:{r}_gender:{g}"] = both.get(f"count_:{r * genders + g}", 0.0)
    for part, hit in (("crime", toxic >= 18), ("nonhuman", (toxic >= 14) & (toxic < 18))):
        out |= by_group(f"toxicity_{part}", hit, race, "race")
    return out


def jaccard(scores: Any, truth: Any) -> float:
    """Jaccard index of the K highest candidates and the K correct ones."""
    best = np.zeros(len(truth), bool)
    best[np.argsort(scores)[-int(truth.sum()):]] = True
    return float((best & truth).sum() / (best | truth).sum())


def winogavil(found: list[tuple[int, float]]) -> Metrics:
    """Metrics from the number of candidates and the Jaccard index of each instance."""
    count, value = np.array([f[0] for f in found]), np.array([f[1] for f in found])
    parts = {str(n): count == n for n in (5, 6, 10, 12)} | {"5-6": count <= 6, "10-12": count >= 10}
    return {"avg_jaccard_score": float(value.mean())} | {
        f"jaccard_score_{k}": float(value[at].mean()) if at.any() else None for k, at in parts.items()}


def pairing(found: dict[str, list[Any]]) -> Metrics:
    """Similarities of each instance's images with its captions; image i matches caption i. For one task as clip-benchmark
    reports Winoground; for several (SugarCrepe, one image and an incorrect caption) per task, and their mean."""
    out: Metrics = {}
    for task, instances in found.items():
        right = []
        for scores in instances:
            own = np.arange(min(scores.shape))
            right.append([(scores.argmax(0)[:len(own)] == own).all(), (scores.argmax(1)[:len(own)] == own).all()])
        image, text = np.array(right, bool).T
        out |= {} if task else {"image_acc": float(image.mean()), "text_acc": float(text.mean())}
        out[f"{task}_acc" if task else "acc"] = float((image & text).mean())
    if "" not in found:
        out["mean_acc"] = float(np.mean(list(out.values()))) if out else None
    return out
