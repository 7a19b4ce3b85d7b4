"""Does Algorithm 1 of NUCLR (Wang et al., ICLR 2025) learn the popularity that its eq. (8) defines? The model is left
out: similarities of n pairs are fixed, the loss of ccstream-train moves zeta batch by batch, and the result is
compared with the exact minimiser.

  drawn   the pairs of the toy problem: texts are drawn from the density that the similarities describe, so a pair is
          no more similar than chance makes it
  fitted  embeddings as after training: topics of unequal size, and each sample is most similar to its own pair
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import popularity, toy
from .study import (Column, Item, Option, Options, Progress, Section, Table, axis, ccstream, figure, np, series,
                    table_item)

PURPOSE = "compares the popularity learned by NUCLR's Algorithm 1 with the minimiser of its eq. (8)"
TITLE = "NUCLR's popularity: learned and exact"
OPTIONS = [
    Option("epochs", "e", int, 400, "N", "epochs per run; zeta's learning rate falls to 0 over them", least=1, most=100000),
]
NOTES = [
    "The similarities of 200 pairs are fixed. The loss nuclr learns zeta in batches of 10, 20, 50 and 100, with --zeta-gradient paper and "
    "unbiased, and zeta is compared with the exact minimiser. drawn: pairs of the toy problem; fitted: embeddings whose positive pair is "
    "the most similar, as after training. Each run tracks xi in the three forms of --xi.",
    "--json: problems; rows of problem, gradient and batch; per side (image, text) the correlation with the minimiser, the root mean "
    "square distance from it, the mean and the largest zeta, xi per form, and per form the relative difference of the last epoch's "
    "gradient from that of --xi signed; trace: the same over the epochs at batch 20; samples: the minimiser and the learned values at "
    "batch 20. --quick: batches 20 and 100, 100 epochs.",
]
EXAMPLES = ["ccstudy zeta -o studies", "ccstudy zeta --quick --json"]

_PAIRS, _TAU = 200, 0.2
_PEAK_RATE = 0.02  # of zeta, for the gradient times n
_KINDS, _GRADIENTS, _FORMS, _SIDES = ("drawn", "fitted"), ("paper", "unbiased"), ("signed", "norm", "all"), ("image", "text")
_SHOWN_BATCH, _TRACE = 20, 40


class Problem(NamedTuple):
    similarity: np.ndarray  # (n, n) float32, rows images
    minimiser: dict[str, np.ndarray]  # by side, of eq. (8), with mean 0
    own_share: float  # sum_i P_ii of images as anchors, at the minimiser: 1 is as drawn


def _fitted(rng: np.random.Generator, n: int) -> np.ndarray:
    """Cosines of a topic's centre, what a pair shares, and what its image and its text have alone."""
    dim, topics, shared, alone = 16, 12, 0.8, 0.5
    centres = rng.standard_normal((topics, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    sizes = 1.0 / np.arange(1, topics + 1)
    pair = centres[rng.choice(topics, n, p=sizes / sizes.sum())] + shared * rng.standard_normal((n, dim)) / dim**0.5
    images, texts = pair + alone * rng.standard_normal((2, n, dim)) / dim**0.5
    return (images / np.linalg.norm(images, axis=1, keepdims=True)) @ (
        texts / np.linalg.norm(texts, axis=1, keepdims=True)).T


def problem(kind: str, n: int, seed: int) -> Problem:
    rng = np.random.default_rng((seed, n, 0))
    if kind == "drawn":
        x, y = toy.draw(rng, n, _TAU)
        similarity = (x @ y.T).astype(np.float32)
    else:
        similarity = _fitted(rng, n).astype(np.float32)
    kernel = np.exp(similarity.astype(float) / _TAU)
    q = {"image": popularity.solve(kernel.T), "text": popularity.solve(kernel)}
    shares = kernel / q["text"]
    own = float((np.diag(shares) / shares.sum(1)).sum())
    return Problem(similarity, {side: _TAU * (np.log(q[side]) - np.log(q[side]).mean()) for side in _SIDES}, own)


class Learner:
    """Algorithm 1 with the settings of the paper (gamma 0.8, zeta0 -0.05, xi0 0), three times with the three forms of
    xi, on the same batches. zeta does not depend on xi as long as the similarities are fixed."""

    def __init__(self, p: Problem, gradient: str, batch: int, epochs: int, seed: int):
        self.problem, self.batch, self.epochs, self.seed, self.epoch = p, batch, epochs, seed, 0
        self.losses = {form: ccstream.Loss("nuclr", len(p.similarity), max_batch=batch, tau=_TAU, xi=form,
                                           zeta_gradient=gradient) for form in _FORMS}
        self.change: dict[str, float] = {}

    def run_epoch(self, measured: bool = True) -> None:
        """Every pair once. measured: how far the gradient of each form is from that of signed."""
        n = len(self.problem.similarity)
        order = np.random.default_rng((self.seed, 1, self.epoch)).permutation(n).reshape(-1, self.batch)
        blocks = self.problem.similarity[order[:, :, None], order[:, None, :]]
        first, total = self.epoch * len(order), self.epochs * len(order)
        squares = dict.fromkeys(_FORMS, 0.0)
        own = 0.0
        for k, ids in enumerate(order):
            rate = _PEAK_RATE * 0.5 * (1.0 + np.cos(np.pi * (first + k) / total))
            gradients = [loss.step(blocks[k], ids, step=first + k, epoch=self.epoch, zeta_lr_image=rate,
                                   zeta_lr_text=rate).gradient.astype(float) for loss in self.losses.values()]
            if measured:
                own += float((gradients[0] ** 2).sum())
                for form, gradient in zip(_FORMS, gradients):
                    squares[form] += float(((gradient - gradients[0]) ** 2).sum())
        self.change = {form: (squares[form] / own) ** 0.5 if own > 0 else 0.0 for form in _FORMS}
        self.epoch += 1

    def zeta(self, side: str) -> np.ndarray:
        return self.losses["signed"][f"{side}.zeta"].astype(float)

    def measure(self) -> dict[str, Any]:
        out: dict[str, Any] = {"epoch": self.epoch}
        scalars = {form: loss.scalars for form, loss in self.losses.items()}
        for side in _SIDES:
            zeta, exact = self.zeta(side), self.problem.minimiser[side]
            out[f"correlation_{side}"] = float(np.corrcoef(zeta, exact)[0, 1]) if zeta.std() > 0 else float("nan")
            out[f"distance_{side}"] = float(np.sqrt(np.mean((zeta - zeta.mean() - exact) ** 2)))
            out[f"mean_{side}"], out[f"largest_{side}"] = float(zeta.mean()), float(zeta.max())
            for form in _FORMS:
                out[f"xi_{form}_{side}"] = scalars[form][f"{side}.xi"]
        return out | {f"change_{form}": self.change[form] for form in _FORMS}


def _learn(p: Problem, names: dict[str, Any], options: Options, epochs: int,
           progress: Progress) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """The points of one run, and the zeta that it ends with, of mean 0."""
    learner = Learner(p, names["gradient"], names["batch"], epochs, options.seed)
    count = min(epochs, _TRACE)
    measured = {epochs * (k + 1) // count for k in range(count)}
    points = []
    for epoch in range(1, epochs + 1):
        learner.run_epoch(epoch in measured)
        if epoch in measured:
            points.append(names | learner.measure())
        progress.advance(1.0 / names["batch"])
    return points, {side: learner.zeta(side) - learner.zeta(side).mean() for side in _SIDES}


def run(options: Options, progress: Progress) -> dict[str, Any]:
    batches = [_SHOWN_BATCH, 100] if options.quick else [10, _SHOWN_BATCH, 50, 100]
    epochs = 100 if options.quick and "epochs" not in options.given else options.epochs
    problems = {kind: problem(kind, _PAIRS, options.seed) for kind in _KINDS}
    progress.total = epochs * len(_KINDS) * len(_GRADIENTS) * sum(1.0 / b for b in batches)
    rows: list[dict[str, Any]] = []
    trace: list[dict[str, Any]] = []
    samples = [{"problem": kind} | {f"minimiser_{side}": problems[kind].minimiser[side] for side in _SIDES}
               for kind in _KINDS]
    for kind, of_kind in zip(_KINDS, samples):
        for gradient in _GRADIENTS:
            for batch in batches:
                points, zeta = _learn(problems[kind], {"problem": kind, "gradient": gradient, "batch": batch}, options,
                                      epochs, progress)
                rows.append(points[-1])
                if batch == _SHOWN_BATCH:
                    trace += points
                    of_kind |= {f"{gradient}_{side}": zeta[side] for side in _SIDES}
    return {"n": _PAIRS, "epochs": epochs,
            "problems": [{"problem": kind, "tau": _TAU, "own_share": problems[kind].own_share} for kind in _KINDS],
            "rows": rows, "trace": trace, "samples": samples}


def table(result: dict[str, Any]) -> Table:
    columns = [Column("problem", "s"), Column("gradient", "s"), Column("batch")]
    names = {"correlation_image": "corr. images", "correlation_text": "corr. texts", "mean_text": "mean zeta",
             "xi_signed_text": "xi signed", "xi_norm_text": "xi norm", "xi_all_text": "xi all"}
    return Table(columns + [Column(name, ".4f") for name in names.values()],
                 [[row["problem"], row["gradient"], row["batch"], *(row[key] for key in names)] for row in result["rows"]])


# ---- the page


def _samples(result: dict[str, Any], kind: str) -> Item:
    of_kind = next(s for s in result["samples"] if s["problem"] == kind)
    exact = of_kind["minimiser_text"]
    ends = [float(min(exact)), float(max(exact))]
    return figure("scatter", f"Every text's zeta after the last epoch, {kind}, batches of {_SHOWN_BATCH}; means subtracted",
                  axis("zeta that minimises eq. (8)"), axis("zeta learned"),
                  [series("as published (--zeta-gradient paper)", exact, of_kind["paper_text"]),
                   series("--zeta-gradient unbiased", exact, of_kind["unbiased_text"]),
                   series("equal", ends, ends, dashed=True)])


def _batches(result: dict[str, Any], kind: str) -> Item:
    lines = []
    for gradient, name in (("paper", "as published"), ("unbiased", "unbiased")):
        rows = [row for row in result["rows"] if row["problem"] == kind and row["gradient"] == gradient]
        for side in ("text", "image"):
            lines.append(series(f"{name}, {side}s", [row["batch"] for row in rows],
                                [row[f"correlation_{side}"] for row in rows]))
    return figure("lines", f"Correlation of learned zeta with the minimiser, {kind}",
                  axis(f"B, pairs in a batch, of {_PAIRS}", scale="log"), axis("correlation"), lines)


def _xi(result: dict[str, Any], kind: str, gradient: str, what: str) -> list[Item]:
    points = [p for p in result["trace"] if p["problem"] == kind and p["gradient"] == gradient]
    names = {"signed": "signed: the largest zeta so far (published code)",
             "norm": "norm: the largest |zeta| so far (ICLR, line 7)",
             "all": "all: the largest zeta now (workshop, step 10)"}
    epochs = [p["epoch"] for p in points]

    def lines(key: str) -> list[dict[str, Any]]:
        return [series(name, epochs, [p[key.format(form)] for p in points]) for form, name in names.items()]

    return [figure("lines", f"xi of texts; {what}", axis("epoch"), axis("xi"), lines("xi_{}_text")),
            figure("lines", f"How far the gradient of the similarities is from that of signed, relative to it; {what}",
                   axis("epoch"), axis("relative difference"), lines("change_{}"))]


def page(result: dict[str, Any], options: Options) -> list[Section]:
    def shown(kind: str) -> str:
        ends = [row["correlation_text"] for gradient in _GRADIENTS for row in result["rows"]
                if (row["problem"], row["gradient"], row["batch"]) == (kind, gradient, _SHOWN_BATCH)]
        return (f"the published gradient ends at a correlation of {ends[0]:.4f} with the minimiser, the unbiased one at "
                f"{ends[1]:.4f}")

    sections = [Section("The claim", [
        "The paper's claim (Wang et al., ICLR 2025, sections 3.3 and 3.4): the popularity of every sample is the "
        "minimiser of the convex problem (8), and Algorithm 1 approaches it by steps along a stochastic gradient, a "
        "batch at a time.",
        f"Measured here, with similarities fixed, at batches of {_SHOWN_BATCH} of {_PAIRS}: where pairs are as similar "
        f"as chance makes them, {shown('drawn')}. Where every sample is most similar to its own pair, as after "
        f"training, {shown('fitted')}.",
        "The reason: given that a sample is in the batch, its own anchor is there too, so the published gradient, a "
        "mean over the batch times n, counts the own pair n/B times. Then its expectation is zero nowhere unless the "
        "own shares P_ii of all samples add up to 1: all zeta drift upwards together, and those of samples that fit "
        "their pair best rise most. The unbiased gradient counts the own pair once and the others (n-1)/(B-1) times. "
        "Here zeta is run until it no longer changes; the published run on CC3M moves it by 0.25 at most."])]
    what = {"drawn": ("Pairs as drawn", "Pairs of the toy problem: texts follow the density that the similarities describe"),
            "fitted": ("Pairs as after training",
                       "Cosines in topics of unequal size, where a pair shares more than its topic")}
    for p in result["problems"]:
        title, text = what[p["problem"]]
        sections.append(Section(title, [f"{text}, tau = {p['tau']:g}; the own shares add up to {p['own_share']:.2f}."],
                                [_samples(result, p["problem"]), _batches(result, p["problem"])]))
    sections.append(Section("The three forms of xi", [
        "xi weakens the own pair in the denominator of the model's gradient. ICLR's line 7 writes a norm, the workshop "
        "version the largest zeta, the published code the largest with its sign; zeta begins at -0.05, where norm "
        "begins at 0.05 and the others at 0. Where all zeta drift upwards, the three forms are the same."],
        _xi(result, "drawn", "paper", "pairs as drawn, gradient as published, batches of 20") +
        _xi(result, "fitted", "unbiased", "pairs as after training, gradient unbiased, batches of 20")))
    return sections + [Section("Numbers", [], [table_item(f"After {result['epochs']} epochs", table(result))])]
