"""Whether RINCE is more robust than CLIP to noisy pairs (Chuang et al., CVPR 2022; thesis, chapter 5): recall over the fraction
of noisy pairs, or accuracy over the fraction of wrong labels that the pairs were made from. Each loss is tuned separately
at each fraction."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import heads
from .heads import LARGEST, RECALLS, Features, Outcome, Setting, mean_and_error
from .study import Column, Option, Options, Progress, Section, Table, UsageError, axis, figure, series, table_item

PURPOSE = "compares RINCE and CLIP on training data with a fraction of noisy pairs, labels or crops"
TITLE = "RINCE and CLIP over the fraction of what is wrong"
OPTIONS = [
    Option("noise", "", str, "pair", "KIND", choices=("pair", "label", "augment"),
           help="kind of noise. pair: images with the texts of another image; label: positive pairs are two points of one label, and some "
                "labels are wrong (points are synthetic, or with --features have the labels of PREFIX.labels.npy); augment: positive "
                "pairs are two crops of one synthetic point, and some crops are too small"),
    *heads.OPTIONS,
    Option("batch", "b", int, LARGEST, "N", "pairs per step", 8, LARGEST),
]
NOTES = [
    "A head for images and one for texts are trained on fixed features with clip, and with rince at q = 0.01, 0.1, 0.5 and 1. A fraction "
    "of 0 to 0.8 of the training images gets the texts of another image, as with ccstream-train --pair-noise. The paper claims that such "
    "noise lowers clip's accuracy, and rince's less, the larger q is.",
    "--noise label, as in the thesis (section 5.3.1): a positive pair is two points of one label, redrawn every epoch, and there is one "
    "head. A fraction of the training points, chosen by seed and point, gets the label of another class, every class equally often; the "
    "thesis swaps similar classes at half that rate. The result is the test accuracy of a linear classifier of the embeddings, trained "
    "with correct labels. Synthetic data: a mixture of 20 classes in 6 of 64 dimensions, 150 points each. Files: noise-label.json and "
    ".html.",
    "--noise augment, as in the thesis's table A.2 (crops to a fifth of the image with probability eta): a positive pair is two crops of "
    "one point. Synthetic data: 20 classes of 150 points with 20 patches; a patch encodes its class in 6 of 64 dimensions, its point in "
    "18, plus noise. A crop is the mean of 40 to 100 % of the patches, consecutive ones; with probability eta, of a fifth of that. The "
    "classifier uses uncropped points. Heads have 8 outputs unless --dim is given. Files: noise-augment.json and .html.",
    "For each loss and fraction, the temperature (0.05 to 0.8) and rince's lambda (0.01, 0.1, 0.4) are chosen by the mean of R@1, R@5 and "
    "R@10 on the validation pairs, with one seed. The mean and standard error on the test pairs are over --repeats other seeds of the "
    "chosen setting, each with its own noise.",
    "--json: settings; rows of loss, q (rince), noise, seeds, recall (the mean of R@1, R@5 and R@10), r1, r5, r10, "
    "over_clip (the difference from clip's recall with the same noise and seed) and lost (recall without noise minus recall, with the "
    "same seed), each with its standard error as NAME_se; the tuned tau and lambda (rince), and validation, the recall by which they were "
    "chosen. label, augment: accuracy instead of recall and r1 to r10. untrained: the same for randomly initialised heads, averaged over "
    "the same number of seeds; noise has an effect only if training improves on that. --quick: 640 "
    "random pairs, fractions 0, 0.4 and 0.8, a small grid, 2 seeds.",
]
EXAMPLES = [
    "ccstudy noise --quick -o studies",
    "ccstudy noise --noise label -o studies",
    "ccstream-eval embed runs/a --data flickr --texts --features -o flickr && ccstudy noise --features flickr -o studies",
]
QS = (None, 0.01, 0.1, 0.5, 1.0)  # of rince; None: clip


@dataclass(frozen=True)
class Grid:
    noises: tuple[float, ...]
    taus: tuple[float, ...]
    lambdas: tuple[float, ...]


FULL = Grid((0.0, 0.2, 0.4, 0.6, 0.8), (0.05, 0.1, 0.2, 0.4, 0.8), (0.01, 0.1, 0.4))
QUICK = Grid((0.0, 0.4, 0.8), (0.1, 0.4), (0.01,))


def check(options: Options) -> None:
    if options.noise != "pair" and "pairs" in options.given:
        raise UsageError(f"--pairs has no effect with --noise {options.noise}")
    if options.noise == "augment":
        if options.features is not None:
            raise UsageError("--features has no effect with --noise augment, which uses points with patches")
        options.dim = options.dim if "dim" in options.given else 8
    heads.check(options)


def stem(options: Options) -> str:
    return "noise" if options.noise == "pair" else f"noise-{options.noise}"


# ---- the experiment ----

def _features(options: Options) -> Features:
    prefix, seed = options.features, options.seed
    if options.noise == "augment":
        f = heads.draw_cropped(seed)
    elif options.noise == "label":
        f = heads.read_labelled(prefix) if prefix else heads.draw_labelled(seed)
    else:
        f = heads.read_pairs(prefix) if prefix else heads.draw_pairs(options.pairs, seed)
    return heads.divide(f, options.held_out, seed)


def _describe(options: Options, f: Features) -> str:
    noun = "pairs" if options.noise == "pair" else "points"
    head = (f"a head of {f.images.shape[1]}" if f.texts is None else
            f"heads of {f.images.shape[1]}+{f.texts.shape[1]}")
    return (f"{'given features' if options.features else f'drawn {noun}'}, {len(f.train)} {noun} for training and "
            f"{len(f.test)} each for validation and test, batch {options.batch}, {options.epochs} epochs, {head} to "
            f"{options.dim} with {options.hidden} hidden units, learning rate "
            f"{heads.rate_of(options, options.batch):g}, seed {options.seed}")


def _setting(options: Options, seed: int, noise: float, tau: float, q: float | None, weight: float | None) -> Setting:
    own = {} if q is None else {"q": q, "lambda": weight}
    return Setting(options.seed * 1000 + seed, "clip" if q is None else "rince",
                   {"tau": tau, "temperature": "constant", **own}, noise=noise, crops=options.noise == "augment")


def _choices(grid: Grid, q: float | None) -> Iterable[tuple[float, float | None]]:
    """The grid of (tau, lambda)."""
    return [(tau, weight) for tau in grid.taus for weight in ((None,) if q is None else grid.lambdas)]


def run(options: Options, progress: Progress) -> dict[str, Any]:
    grid = QUICK if options.quick else FULL
    f = _features(options)
    rows = [(q, noise) for q in QS for noise in grid.noises]
    tuning = [(q, noise, *choice) for q, noise in rows for choice in _choices(grid, q)]
    seeds = range(1, options.repeats + 1)
    pairs = options.epochs * (len(f.train) // options.batch) * options.batch
    progress.total = (len(tuning) + len(rows) * len(seeds)) * pairs
    advance = progress.advance

    untrained = heads.train(f, [_setting(options, seed, 0.0, grid.taus[0], None, None) for seed in seeds],
                            options.batch, 1, 0.0, options.hidden, options.dim, advance)
    outcomes = heads.train_all(f, [_setting(options, 0, noise, tau, q, weight) for q, noise, tau, weight in tuning],
                               options.batch, options.epochs, options, advance)
    chosen: dict[tuple[float | None, float], tuple[float, float, float | None]] = {}
    for (q, noise, tau, weight), outcome in zip(tuning, outcomes):
        if (q, noise) not in chosen or outcome.validation_score > chosen[q, noise][0]:
            chosen[q, noise] = (outcome.validation_score, tau, weight)
    repeated = iter(heads.train_all(f, [_setting(options, seed, noise, *chosen[q, noise][1:2], q, chosen[q, noise][2])
                                        for q, noise in rows for seed in seeds], options.batch, options.epochs, options, advance))
    found = {row: [next(repeated) for _ in seeds] for row in rows}
    result: dict[str, Any] = {"settings": _describe(options, f), "noise": options.noise}
    _put(result, "untrained", [o.test_score for o in untrained])
    result["rows"] = [_row(found, row, chosen[row], options.noise != "pair") for row in rows]
    return result


def _put(out: dict[str, Any], name: str, values: list[float]) -> None:
    out[name], out[f"{name}_se"] = mean_and_error(values)


def _row(found: dict[tuple[float | None, float], list[Outcome]], row: tuple[float | None, float],
         chosen: tuple[float, float, float | None], labelled: bool) -> dict[str, Any]:
    q, noise = row
    scores, clip, clean = ([o.test_score for o in found[r]] for r in (row, (None, noise), (q, 0.0)))
    out: dict[str, Any] = {"loss": "clip" if q is None else "rince"} | ({} if q is None else {"q": q})
    out |= {"noise": noise, "seeds": len(scores)}
    _put(out, "accuracy" if labelled else "recall", scores)
    for k, name in enumerate(() if labelled else RECALLS):
        _put(out, name, [o.test[k] for o in found[row]])
    _put(out, "over_clip", [a - b for a, b in zip(scores, clip)])
    _put(out, "lost", [a - b for a, b in zip(clean, scores)])
    validation, tau, weight = chosen
    out["tau"] = tau
    if q is not None:
        out["lambda"] = weight
    return out | {"validation": validation}


# ---- text and page ----

def _name(row: dict[str, Any]) -> str:
    return f"RINCE, q = {row['q']:g}" if "q" in row else "CLIP"


def _score(result: dict[str, Any]) -> str:
    return "accuracy" if "accuracy" in result["rows"][0] else "recall"


def _with_error(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:.2f} ± {row[name + '_se']:.2f}"


def table(result: dict[str, Any]) -> Table:
    score = _score(result)
    more = [("r1", "R@1"), ("r10", "R@10")] if score == "recall" else []
    columns = [Column("loss", "s"), Column("noise"), Column(f"{score}, %", "s"),
               *(Column(f"{title}, %", ".2f") for _, title in more), Column("over CLIP", "s"), Column("lost to noise", "s"),
               Column("tau"), Column("lambda")]
    rows = [[_name(row), row["noise"], _with_error(row, score), *(row[name] for name, _ in more),
             _with_error(row, "over_clip"), _with_error(row, "lost"), row["tau"], row.get("lambda")]
            for row in result["rows"]]
    rows.append(["untrained", None, _with_error(result, "untrained"), *(None for _ in more), None, None, None, None])
    return Table(columns, rows)


def page(result: dict[str, Any], options: Options) -> list[Section]:
    score = _score(result)
    labelled = score == "accuracy"
    crops = result["noise"] == "augment"
    noun = "crops" if crops else "labels" if labelled else "pairs"
    names = list(dict.fromkeys(_name(row) for row in result["rows"]))

    def lines(key: str, title: str, y: dict[str, Any], note: str = "") -> dict[str, Any]:
        rows = [[row for row in result["rows"] if _name(row) == name] for name in names]
        return figure("lines", title, axis(f"fraction of training {noun} that are wrong"), y,
                      [series(name, [r["noise"] for r in own], [r[key] for r in own], error=[r[key + "_se"] for r in own])
                       for name, own in zip(names, rows)], f"Bars: standard errors over seeds. {note}".strip())

    last = result["rows"][-1]["noise"]
    ends = "; ".join(f"{_name(r)}: {r[score]:.2f}, {r['lost']:.2f} lost" for r in result["rows"] if r["noise"] == last)
    what = ("Here a fraction of the training points has the label of another class, and two points of one label are a "
            "pair; the classifier that judges the embeddings, and the points that it is tested on, have right labels."
            if labelled else "Here a fraction of the training images has the texts of another image; validation and test "
            "pairs are right.")
    if crops:
        what = ("Here a pair is two crops of one point; the fraction is the chance that a crop is cut to a fifth. The classifier that "
                "judges the embeddings sees whole points.")
    published = [(0, 91.1, 91.4, 91.5, 91.9, 92.0), (0.2, 89.3, 89.8, 89.7, 90.4, 90.9), (0.4, 87.3, 87.7, 87.5, 88.8, 89.0),
                 (0.6, 84.5, 85.4, 85.3, 86.6, 86.3), (0.8, 80.6, 81.2, 80.3, 82.5, 82.8), (1, 71.0, 71.2, 71.8, 71.5, 72.7)] if crops else [
                 (0, 93.4, 93.4, 93.2, 93.3, 93.0), (0.2, 93.1, 93.3, 93.0, 93.2, 92.9), (0.4, 90.7, 93.0, 92.0, 93.1, 92.8),
                 (0.6, 88.2, 90.8, 90.6, 92.9, 92.4), (0.8, 87.1, 89.1, 89.3, 89.9, 91.6), (1, 87.1, 88.7, 89.3, 89.3, 88.2)]
    measured = "accuracy of a linear classifier on test points" if labelled else (
        "recall on test pairs, means of both directions and, as recall, of R@1, R@5 and R@10")
    return [
        Section("The claim", [
            "Chuang et al. (CVPR 2022; thesis, chapter 5): InfoNCE weighs pairs that do not match most and loses accuracy "
            "to wrong ones; RINCE, whose q leads from InfoNCE (q near 0) to a symmetric loss (q = 1), loses the less the "
            "larger q is.",
            f"{what} Every loss has, at every fraction, its own temperature and lambda, tuned on validation "
            f"{'points' if labelled else 'pairs'} with one seed. The setting of all runs: {result['settings']}.",
            f"Measured here with a fraction of {last:g}, {score} in percent and how much of it was lost to noise: {ends}. "
            f"Heads that are not trained: {_with_error(result, 'untrained')}.",
            f"Numbers are means over {result['rows'][0]['seeds']} seeds ± standard error: {measured}; over CLIP, lost to "
            "noise: of the same seed."], [
            lines(score, f"{score.capitalize()} over the fraction of wrong {noun}",
                  axis(score if labelled else "mean of R@1, R@5, R@10", "%")),
            lines("over_clip", f"{score.capitalize()} over CLIP's",
                  axis("difference", "percentage points"), f"With the same wrong {noun} and the same seed.")]),
        Section("The thesis", [
            "Table A.2: accuracy of a linear probe on CIFAR-10, percent, where images are cropped to a fifth with a probability, "
            "after SimCLR's augmentations." if crops else
            "Table A.1: accuracy of a linear probe on CIFAR-10, percent, where positives are images of one label and "
            "labels are exchanged with those of a similar class; ResNet-50, 500 epochs, tau 0.5."], [
            table_item("Table A.2" if crops else "Table A.1", Table([Column("noise"), *(Column(name, ".1f") for name in
                       ("InfoNCE", "q = 0.01", "q = 0.1", "q = 0.5", "q = 1"))], [list(row) for row in published]))]),
    ]
