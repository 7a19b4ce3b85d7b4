"""Arora et al. (ICML 2019): what labels would add. Table 1's supervised columns, figure 2 (accuracy over the negatives k and
the data N; both losses while training), and class collision, eqs. (8) and (9), lemma 4.4 and theorem 4.5.

With rho the distribution of classes, tau = sum_c rho(c)^2 the chance that the negative is of the anchor's class, and l the
logistic loss log2(1 + e^t) of t = f(x).f(x-) - f(x).f(x+):

    L_un = (1 - tau) L_!= + tau L_=         L_=: of negatives of the anchor's class, L_!=: of other classes
    s(f) = E_{c ~ nu} sqrt(|Sigma(f, c)|_2) E_{x ~ c} |f(x)|         nu proportional to rho^2
    L_= - 1 <= c' s(f)                      lemma 4.4; c' = sqrt(2) / (2 ln 2) for the logistic loss
    L_sup^mu <= L_!= + tau / (1 - tau) c' s(f)          theorem 4.5, at the minimiser and up to Gen_M

c': given x, z = f(x).(f(x-) - f(x+)) has mean 0 and variance 2 f Sigma f, and log2(1 + e^z) <= 1 + (z + |z|) / (2 ln 2).
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import blocks_data
from .blocks_data import Parts, class_means, classify
from .margin import probe
from .study import Column, Option, Options, Progress, Section, Table, axis, check_dataset, figure, np, series, table_item
from .towers import Blocks, Tower, cosine, draw_blocks, train_supervised, train_tower

PURPOSE = "compares towers trained with and without labels, and measures class collision: CURL"
TITLE = "CURL: what labels would add"
OPTIONS = [
    Option("data", "d", metavar="DIR", help="dataset with labels and at least 44 images per class [default: a random mixture of "
                                            "Gaussians]"),
    Option("size", "", int, 32, "PX", "with --data: image size in pixels", 8, 128),
    Option("steps", "", int, 2000, "N", "training steps per tower", 20, 1000000),
    Option("lr", "", float, 0.0003, "X", "peak learning rate of AdamW; cosine schedule to 0", 0, 10),
    Option("repeats", "r", int, 5, "N", "towers of each kind, each with its own seed", 1, 100),
]
NOTES = [
    "Unsupervised towers are those of 'ccstudy blocks', with 32 blocks per step. Supervised: the same tower with a linear classifier, "
    "trained by softmax cross-entropy, 128 points per step. TR: a linear classifier trained on the fixed outputs; mu, mu-5: the mean "
    "classifier with means of all training points, or of 5 per class. All are evaluated on held-out points.",
    "At 20 points of the training, two logistic losses are measured on test points: the unsupervised loss with one negative, and the mean "
    "classifier's average loss on two classes.",
    "--json: rows of tower and for tr, mu and mu5 avg2, top1 and top10 in percent; negatives and data, rows of k or n and avg2; "
    "training, rows of step, unsupervised and supervised; collision, rows of tower, tau, loss, same (L_=), other (L_!=), "
    "deviation (s), excess (L_= - 1), excess_bound (c' s), supervised (L_sup^mu) and bound, all in bits except s. Each is a mean over the "
    "repeats, with standard deviation NAME_sd. --quick: 200 steps, 2 repeats.",
]
EXAMPLES = ["ccstudy labels -o studies", "ccstudy labels --data cifar10 -o studies", "ccstudy labels --quick --json"]
NEGATIVES, SHARES = (1, 2, 4, 8, 16), (0.25, 0.5, 1.0)
CURVE = 20
SLOPE = math.sqrt(2) / (2 * math.log(2))  # c' of the logistic loss
_PROBE, _COLLISION = 11, 12  # what is drawn


def check(options: Options) -> None:
    if options.quick:
        options.steps = options.steps if "steps" in options.given else 200
        options.repeats = options.repeats if "repeats" in options.given else 2
    if options.data is not None:
        check_dataset(options.data)


# ---- measures

def columns(tower: Tower, parts: Parts, seed: int) -> dict[str, float]:
    """AVG-2, top-1 and top-10 accuracy of TR, mu and mu-5."""
    found = blocks_data.measure(tower, parts, seed)
    x, learned = tower.embed(parts.test.rows), tower.embed(parts.train.rows)
    scale = np.sqrt(np.mean(learned ** 2))  # the probe's rate suits inputs of size 1
    weight, bias = probe(learned / scale, parts.train.labels, parts.train.classes, 64, np.random.default_rng([seed, _PROBE]))
    one = np.ones((len(x), 1))
    tr = classify(np.concatenate([x / scale, one], 1), parts.test.labels, np.concatenate([weight, bias[:, None]], 1))
    return {f"{kind}_{name}": value for i, name in enumerate(("avg2", "top1", "top10"))
            for kind, value in (("tr", tr[i]), ("mu", found[name]), ("mu5", found[f"{name}_5"]))}


def collision(x: np.ndarray, first: np.ndarray, seed: int) -> dict[str, float]:
    """Of outputs x (N, E) sorted by class (class c has rows first[c] to first[c + 1] - 1): every anchor with every class of the
    negative, each with 16 random pairs of positive and negative."""
    r = np.random.default_rng([seed, _COLLISION])
    x = x.astype(np.float64)
    sizes = np.diff(first)
    rho = sizes / sizes.sum()
    label = np.repeat(np.arange(len(sizes)), sizes)
    loss = np.zeros((len(x), len(sizes)))
    for _ in range(16):
        own = _drawn(first, label, np.arange(len(x)), r)
        for c in range(len(sizes)):
            # Of the anchor's own class neither the anchor nor the positive.
            other = first[c] + r.integers(sizes[c], size=len(x))
            clash = (label == c) & ((other == np.arange(len(x))) | (other == own))
            while clash.any():
                other[clash] = first[c] + r.integers(sizes[c], size=clash.sum())
                clash = (label == c) & ((other == np.arange(len(x))) | (other == own))
            t = np.einsum("ne,ne->n", x, x[other] - x[own])
            loss[:, c] += np.logaddexp(0, t) / np.log(2) / 16
    of_class = np.add.reduceat(loss, first[:-1], 0) / sizes[:, None]  # (anchor's class, negative's)
    tau = float((rho ** 2).sum())
    same = float((rho ** 2 * np.diag(of_class)).sum() / tau)
    total = float(rho @ of_class @ rho)
    deviation = 0.0
    for c, share in enumerate(rho ** 2 / tau):
        rows = x[first[c]:first[c + 1]]
        deviation += share * np.sqrt(np.linalg.norm(np.cov(rows.T), 2)) * np.linalg.norm(rows, axis=1).mean()
    other = (total - tau * same) / (1 - tau)
    return {"tau": tau, "loss": total, "same": same, "other": other, "deviation": float(deviation),
            "excess": same - 1, "excess_bound": SLOPE * float(deviation),
            "bound": other + tau / (1 - tau) * SLOPE * float(deviation)}


def _drawn(first: np.ndarray, label: np.ndarray, anchors: np.ndarray, r: np.random.Generator) -> np.ndarray:
    """A random other row of each anchor's class."""
    size = first[label + 1] - first[label]
    return first[label] + (anchors - first[label] + 1 + (r.random(len(anchors)) * (size - 1)).astype(int)) % size


def _curve(parts: Parts, o: Blocks, options: Options, seed: int, advance: Callable[[float], None]) -> tuple[Tower, list[dict[str, float]]]:
    """A tower, and both losses on test points during its training."""
    r = np.random.default_rng(seed)
    tower, found = Tower(parts.train.rows.shape[1], r), []
    every = max(options.steps // CURVE, 1)
    for step in range(options.steps):
        rows = draw_blocks(parts.train.first, o, 1, r)[0]
        tower.learn(parts.train.rows[rows], o, cosine(options.lr, step, options.steps), step)
        advance(rows.size)
        if step % every == every - 1 or step == 0:
            own = blocks_data.measure(tower, parts, seed)
            found.append({"step": step + 1, "unsupervised": own["loss_1"], "supervised": own["mean_loss"]})
    return tower, found


# ---- the experiment

def _some(parts: Parts, share: float) -> Parts:
    """The first training points of every class, in their order, and all test points."""
    rows = np.concatenate([np.arange(a, a + max(blocks_data.LEAST, round(share * (b - a))))
                           for a, b in zip(parts.train.first, parts.train.first[1:])])
    return Parts(blocks_data.Points(parts.train.rows[rows], parts.train.labels[rows]), parts.test)


def run(options: Options, progress: Progress) -> dict[str, Any]:
    progress.total = options.repeats * options.steps * (128 + 64 * (1 + len(NEGATIVES) + len(SHARES)) + 32 * 11)
    repeats = []
    for repeat in range(options.repeats):
        seed = options.seed * 1000 + repeat
        if options.data is None or repeat == 0:
            parts = blocks_data.read_images(options.data, options.size) if options.data else blocks_data.draw(seed)
        repeats.append(_repeat(parts, options, seed, progress.advance))
    out: dict[str, Any] = {"classes": parts.train.classes, "train": len(parts.train.labels), "test": len(parts.test.labels),
                           "steps": options.steps, "repeats": options.repeats}
    for name in repeats[0]:
        out[name] = [_mean([one[name][i] for one in repeats]) for i in range(len(repeats[0][name]))]
    return out


def _mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in rows[0].items():
        values = [row[name] for row in rows]
        if isinstance(value, float):
            out[name], out[f"{name}_sd"] = float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1)))
        else:
            out[name] = value
    return out


def _repeat(parts: Parts, options: Options, seed: int, advance: Callable[[float], None]) -> dict[str, list[dict[str, Any]]]:
    def train(o: Blocks, of: Parts) -> Tower:
        return train_tower(of.train.rows, of.train.first, o, options.steps, options.lr, np.random.default_rng(seed), advance)

    pairs, curve = _curve(parts, Blocks(32, 1, 4), options, seed, advance)
    towers = {"supervised": train_supervised(parts.train.rows, parts.train.labels, options.steps, options.lr,
                                             np.random.default_rng(seed), advance)[0],
              "unsupervised, b = 1": pairs, "unsupervised, b = 10": train(Blocks(32, 10, 4), parts)}
    out: dict[str, list[dict[str, Any]]] = {"rows": [], "collision": []}
    for name, tower in towers.items():
        out["rows"].append({"tower": name, **columns(tower, parts, seed)})
        x = tower.embed(parts.test.rows)
        mean = blocks_data.mean_loss(x, parts.test.labels, class_means(x, parts.test))
        out["collision"].append({"tower": name, **collision(x, parts.test.first, seed), "supervised": mean})
    out["negatives"] = [{"k": k, "avg2": blocks_data.measure(train(Blocks(32, 1, k), parts), parts, seed)["avg2"]}
                        for k in NEGATIVES]
    few = [_some(parts, share) for share in SHARES]
    out["data"] = [{"n": len(p.train.labels), "avg2": blocks_data.measure(train(Blocks(32, 1, 4), p), p, seed)["avg2"]} for p in few]
    out["training"] = curve
    return out


# ---- text and page

def _shown(row: dict[str, Any], name: str, digits: int = 2) -> str:
    return f"{row[name]:.{digits}f} ± {row[name + '_sd']:.{digits}f}"


_COLUMNS = [(f"{kind}_{score}", f"{title}, {score_title}") for score, score_title in (("avg2", "AVG-2, %"), ("top1", "top-1, %"), ("top10", "top-10, %"))
            for kind, title in (("tr", "TR"), ("mu", "mu"), ("mu5", "mu-5"))]


def table(result: dict[str, Any]) -> Table:
    return Table([Column("tower", "s"), *(Column(title, "s") for _, title in _COLUMNS)],
                 [[row["tower"], *(_shown(row, name) for name, _ in _COLUMNS)] for row in result["rows"]])


def _collision_table(result: dict[str, Any]) -> Table:
    names = ("tau", "loss", "same", "other", "deviation", "excess", "excess_bound", "supervised", "bound")
    titles = ("tau", "L_un", "L_=", "L_≠", "s(f)", "L_= - 1", "c' s(f)", "L_sup^mu", "bound of it")
    return Table([Column("tower", "s"), *(Column(t, "s") for t in titles)],
                 [[row["tower"], *(_shown(row, name, 3) for name in names)] for row in result["collision"]])


def agreement(result: dict[str, Any]) -> dict[str, bool]:
    """Which claims of the paper hold here."""
    supervised, pairs, _ = result["rows"]
    curve = result["training"]
    un, sup = ([row[name] for row in curve] for name in ("unsupervised", "supervised"))
    return {"the mean classifier of unsupervised towers is within 3 points of TR in AVG-2": pairs["mu_avg2"] > pairs["tr_avg2"] - 3,
            "supervised towers are ahead in TR": supervised["tr_avg2"] > pairs["tr_avg2"],
            "the supervised loss follows the unsupervised one (correlation above 0.9)": float(np.corrcoef(un, sup)[0, 1]) > 0.9,
            "L_= - 1 <= c' s(f) and L_sup^mu <= its bound": all(
                row["excess"] <= row["excess_bound"] and row["supervised"] <= row["bound"] for row in result["collision"]),
            "more data help": result["data"][-1]["avg2"] > result["data"][0]["avg2"],
            "negatives help, and stop helping": result["negatives"][2]["avg2"] > result["negatives"][0]["avg2"]
            and result["negatives"][-1]["avg2"] < result["negatives"][-2]["avg2"] + 0.2}


def _over(result: dict[str, Any], name: str, x: str, title: str) -> dict[str, Any]:
    rows = result[name]
    return figure("lines", title, axis(x, scale="log"), axis("AVG-2 of the mean classifier", "%"),
                  [series("b = 1", [row[x] for row in rows], [row["avg2"] for row in rows], error=[row["avg2_sd"] for row in rows])],
                  "Mean and standard deviation over the repeats.")


def page(result: dict[str, Any], options: Options) -> list[Section]:
    rows = {row["tower"]: row for row in result["rows"]}
    curve = result["training"]
    holds = "; ".join(f"{claim}: {'yes' if yes else 'no'}" for claim, yes in agreement(result).items())
    supervised, pairs = rows["supervised"], rows["unsupervised, b = 1"]
    lines = [series(title, [row["step"] for row in curve], [row[name] for row in curve],
                    low=[row[name] - row[name + "_sd"] for row in curve], high=[row[name] + row[name + "_sd"] for row in curve])
             for name, title in (("unsupervised", "unsupervised, one negative"), ("supervised", "supervised: mean classifier"))]
    published = [("CIFAR-100", "AVG-2", 97.2, 95.9, 95.8, 93.2, 92.0, 90.6), ("CIFAR-100", "top-1", 72.1, 69.9, 67.3, 36.9, 31.8, 25.0),
                 ("Wiki-3029", "AVG-2", 97.8, 97.7, 97.0, 97.3, 97.7, 96.9), ("Wiki-3029", "top-10", 67.4, 59.0, 48.2, 64.7, 59.0, 45.8),
                 ("Wiki-3029", "top-1", 43.2, 33.2, 21.7, 38.7, 30.4, 17.0)]
    return [
        Section("The claims", [
            "Arora et al. (ICML 2019): the mean classifier of an unsupervised tower comes close to a trained one, and to "
            "supervised towers where classes are many and pairs of them are compared; the supervised loss follows the unsupervised one "
            "while training; negatives of the anchor's own class (class collision) cost at most what points of a class "
            "deviate, s(f).",
            f"Measured here, {result['classes']} classes, {result['train']} points to train on and {result['test']} to test, "
            f"{result['steps']} steps, {result['repeats']} repeats: AVG-2 of TR, mu and mu-5 is {_shown(supervised, 'tr_avg2')}, "
            f"{_shown(supervised, 'mu_avg2')} and {_shown(supervised, 'mu5_avg2')} % supervised, {_shown(pairs, 'tr_avg2')}, "
            f"{_shown(pairs, 'mu_avg2')} and {_shown(pairs, 'mu5_avg2')} % unsupervised.",
            f"Whether the claims hold here: {holds}."], [
            table_item("Supervised and unsupervised towers", table(result)),
            figure("lines", "Both losses while training", axis("step"), axis("loss of test points", "bits"), lines),
            _over(result, "negatives", "k", "Over the negatives"), _over(result, "data", "n", "Over the points to train on")]),
        Section("Class collision", [
            "L_un = (1 - tau) L_≠ + tau L_=, with tau the chance that the negative is of the anchor's class. Lemma 4.4: L_= - 1 is "
            "at most c' s(f), c' = 1.02 for the logistic loss. Theorem 4.5: L_≠ + tau / (1 - tau) c' s(f) bounds the mean classifier's loss, "
            "up to a term of generalisation."], [table_item("Of test points, in bits", _collision_table(result))]),
        Section("The paper", ["Table 1 of Arora et al., percent."], [table_item("Table 1", Table(
            [Column("data", "s"), Column("score", "s"), *(Column(f"{k}, {t}", ".1f") for k in ("supervised", "unsupervised")
                                                          for t in ("TR", "mu", "mu-5"))], [list(row) for row in published]))]),
    ]
