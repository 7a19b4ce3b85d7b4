"""ccstudy margin: chapter 8 of Chuang's thesis (Chuang et al., "Measuring generalization with optimal transport",
NeurIPS 2021): whether margins normalised by k-variance, measured on training images alone, rank checkpoints as their
accuracy on other images does. With rho the margin f_y - max_{y' != y} f_y' of an image and g the norm of its gradient
in the features:

    margin        rho                       kV-margin     rho / E_c[Var_c Lip_c]
    GN-margin     rho / (g + 1e-6)          kV-GN-margin  rho / (g + 1e-6) / E_c[Var_c]

    SN-margin     rho / SC                  TV-GN-margin  rho / (g + 1e-6) / sqrt(E |z - E z|^2)

SC is the spectral complexity of the layers (Bartlett et al., 2017): prod |W|_2 (sum (|W^T|_{2,1} / |W|_2)^{2/3})^{3/2}; z are
features. Var_c is the k-variance of class c: the Wasserstein-1 distance between two disjoint random sets of k = floor(m_c / 2)
of its m_c images; Lip_c the largest g of its images.
"""
from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from .study import (Column, Item, Option, Options, Progress, Section, StudyError, Table, UsageError, axis, ccstream,
                    check_dataset, figure, load, np, series, start, table_item)
from .towers import Blocks, adam, cosine, mixture, product, train_supervised, train_tower

KINDS = {"margin": "margin", "gn_margin": "GN-margin", "sn_margin": "SN-margin", "tv_gn_margin": "TV-GN-margin",
         "kv_margin": "kV-margin", "kv_gn_margin": "kV-GN-margin"}
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
LABEL_STEPS, QUICK_LABEL_STEPS = 4000, 600  # of networks with right or random labels
ROWS_PER_CLASS = 200
SIZES, STEPS, QUICK_STEPS = (1, 2, 5, 10), (25, 50, 100, 200, 400, 800, 1600), (50, 800)

PURPOSE = "compares k-variance normalised margins of checkpoints with their test accuracy"
TITLE = "Margins normalised by k-variance"
USAGE = ["CHECKPOINT CHECKPOINT... --train DIR --data DIR [options]", "[-o DIR] [options]"]
ARGUMENTS = (0, 256)
EXAMPLES = ["ccstudy margin -o studies",
            "ccstream-train --data cifar10 --out runs/a --preset cpu-demo --task simclr --loss simclr "
            "--keep-checkpoints 100 && ccstudy margin runs/a/checkpoints/*.safetensors --train cifar10 --data "
            "cifar10-test -o studies"]
NOTES = [
    "For each checkpoint the linear probe of ccstream-eval is trained on the image tower's output. The epochs are doubled until it "
    "classifies --fit percent of --train correctly or would exceed --steps. The margin rho of a training image is the score of its class "
    "minus the highest other score; g is the norm of rho's gradient with respect to the features.", "kV-margin: rho / E[Var Lip], an "
        "expectation over classes, where Var is the Wasserstein-1 distance between two disjoint halves of a class (by exact assignment) "
        "and Lip the class's largest g; kV-GN-margin: rho / (g + 1e-6) / E[Var]; margin: rho; GN-margin: rho / (g + 1e-6); TV-GN-margin: "
        "GN-margin divided by the root of the features' total variance; SN-margin: rho divided by the spectral complexity of the layers "
        "trained here (for checkpoints only the classifier). Each is a median over up to 200 random images per class, averaged over 4 "
        "draws (--quick: 1).",
    "The thesis claims that a larger normalised margin predicts a smaller generalisation error. The result is Spearman's rank correlation "
    "of each margin with the accuracy on --data, over the checkpoints.",
    "Normalised margins are meaningful only if the classifier fits --train: a negative median margin (less than half of --train correct) "
    "is closer to 0 the less concentrated the classes are. Increase --steps then.",
    "Without checkpoints, towers of 'ccstudy blocks' are trained on its mixture of 20 Gaussians, with blocks of 1, 2, 5 and 10 for 25 to "
    "1,600 steps (--quick: 50 and 800). Classifiers of their hidden units are trained on its 1,000 training points and evaluated on 2,000 "
    "others. Then two perceptrons are trained on these points, with correct and with random labels.",
    "--json: train and data; rows of checkpoint, accuracy and train_accuracy in percent, epochs of the classifier, "
    "margin, gn_margin, sn_margin, tv_gn_margin, kv_margin, kv_gn_margin, variance and lipschitz (means over classes); "
    "rank_correlation of each margin, null if it is constant; distributions, the quantiles 0.05, 0.25, 0.5, 0.75 and 0.95 of the margins "
    "of four checkpoints; without checkpoints also labels and label_distributions, the same for networks with correct and random labels.",
]
_PASSED = [  # to ccstream-eval embed
    Option("transform", metavar="KIND", choices=("crop", "squash"), default="crop",
           help="how images are brought to the model's size. crop: resize the shorter side and crop the centre, as in the papers; squash: "
                "resize without keeping the aspect ratio, as evaluation during training"),
    Option("image-norm", metavar="NAME", default="own", former="normalize",
           choices=("own", "clip", "imagenet", "cifar10", "cifar100", "none", "inception"),
           help="channel mean and std for normalising images; own: as in training (the papers use the dataset's or ImageNet's for "
                "zero-shot classification and probes)", group="Common options"),
    Option("batch-size", "b", int, 128, "N", "images per forward pass; does not change the result", least=1,
           most=32768, group="Common options", former="batch"),
    Option("device", metavar="NAME", default="cpu", group="Common options",
           help="cpu (oneDNN); cuda or cuda:N; auto: cuda if it works, else cpu, and the reason is logged; cpu-ref (plain loops, for "
                "checking only)"),
    Option("threads", "t", int, 0, "N", "compute threads; 0: all CPUs", most=1024, least=0, group="Common options"),
    Option("loader-threads", "", int, 0, "N", "decode threads; 0: one per CPU", least=0, most=1024,
           group="Common options"),
    Option("endpoint", metavar="URL", group="Remote datasets",
           help="server of s3:// locations: MinIO, Ceph, R2, https://storage.googleapis.com; else that of "
                "AWS_ENDPOINT_URL_S3 or the profile, or Amazon's"),
    Option("cache", metavar="DIR", group="Remote datasets",
           help="keep what is read on the local disk, in chunks of 8 MiB that all processes with this folder share"),
    Option("cache-size", metavar="SIZE", group="Remote datasets",
           help="limit of --cache; what was not used for longest goes first [256MiB..1024TiB, default 64GiB]"),
    Option("instance-metadata", kind=bool, group="Remote datasets",
           help="if S3 keys are neither in the environment nor in the files of the AWS tools, ask the metadata "
                "service of this machine"),
    Option("allow-private", kind=bool, group="Remote datasets",
           help="names and redirects may lead to private addresses, as inside a company"),
]
OPTIONS = [
    Option("data", "d", metavar="DIR", help="dataset with labels on which checkpoints are evaluated"),
    Option("train", metavar="DIR",
           help="dataset with labels on which the classifier is trained and margins are measured"),
    Option("epochs", "e", int, 32, "N", "epochs of the classifier over --train; doubled until it reaches --fit", least=1,
           most=100000),
    Option("fit", "", float, 90.0, "PERCENT",
           "training accuracy in percent that the classifier must reach; 0: train for --epochs only", least=0, most=100),
    Option("steps", "", int, 20000, "N", "maximum number of steps of 512 images for reaching --fit", least=1,
           most=10000000),
    *_PASSED,
]


# ---- margins

def k_variance(rows: np.ndarray) -> float:
    """Mean distance between the rows of the first half and their partners in the second half, in the cheapest assignment."""
    k = len(rows) // 2
    cost = load("scipy.spatial").distance.cdist(rows[:k], rows[k:2 * k])
    return float(cost[load("scipy.optimize").linear_sum_assignment(cost)].mean())


def spectral_complexity(layers: Sequence[np.ndarray]) -> float:
    """Spectral complexity of matrices (out, in)."""
    norms = [np.linalg.norm(w.astype(np.float64), 2) for w in layers]
    sums = [np.linalg.norm(w.astype(np.float64), axis=1).sum() for w in layers]
    return float(np.prod(norms) * sum((s / n) ** (2 / 3) for s, n in zip(sums, norms)) ** 1.5)


def margins(rows: np.ndarray, labels: np.ndarray, weight: np.ndarray, bias: np.ndarray,
            layers: Sequence[np.ndarray] = ()) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """The six margins of f_c(z) = <weight_c, z> + bias_c at each labelled row computed by `layers`; and variance and lipschitz,
    means over classes weighted by their number of rows. A class with one row has no variance and is omitted from the means."""
    rows, weight = rows.astype(np.float64), weight.astype(np.float64)
    each = np.arange(len(rows))
    scores = rows @ weight.T + bias
    own = scores[each, labels]
    scores[each, labels] = -np.inf
    rival = scores.argmax(1)
    rho = own - scores[each, rival]
    slope = np.linalg.norm(weight[labels] - weight[rival], axis=1)
    classes, counts = np.unique(labels, return_counts=True)
    share = counts[counts > 1]
    if not len(share):
        raise UsageError("no class has two images")
    variance = np.array([k_variance(rows[labels == c]) for c in classes[counts > 1]])
    lipschitz = np.array([slope[labels == c].max() for c in classes[counts > 1]])
    mean_variance, mean_lipschitz, mean_product = (np.average(x, weights=share)
                                                   for x in (variance, lipschitz, variance * lipschitz))
    gn = rho / (slope + 1e-6)
    total = np.sqrt(((rows - rows.mean(0)) ** 2).sum(1).mean())
    values = {"margin": rho, "gn_margin": gn, "sn_margin": rho / spectral_complexity([*layers, weight]),
              "tv_gn_margin": gn / total, "kv_margin": rho / mean_product, "kv_gn_margin": gn / mean_variance}
    return values, {"variance": mean_variance, "lipschitz": mean_lipschitz}


def mean_margins(rows: np.ndarray, labels: np.ndarray, weight: np.ndarray, bias: np.ndarray, subsets: int,
                 r: np.random.Generator, layers: Sequence[np.ndarray] = ()) -> dict[str, Any]:
    """Median margins, averaged over random subsets of 200 labelled rows per class (fewer if there are fewer). _values: the
    margins of all these rows."""
    labelled = np.flatnonzero((labels >= 0) & (labels < len(weight)))
    count = min(ROWS_PER_CLASS * len(weight), len(labelled))
    found = []
    for _ in range(subsets):
        chosen = r.permutation(labelled)[:count]
        found.append(margins(rows[chosen], labels[chosen], weight, bias, layers))
    out: dict[str, Any] = {key: float(np.mean([np.median(values[key]) for values, _ in found])) for key in KINDS}
    out |= {key: float(np.mean([means[key] for _, means in found])) for key in found[0][1]}
    return out | {"_values": {key: np.concatenate([values[key] for values, _ in found]) for key in KINDS}}


# ---- the classifier

def probe(rows: np.ndarray, labels: np.ndarray, classes: int, epochs: int,
          r: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias of the linear probe of ccstream-eval: softmax cross-entropy by AdamW, learning rate 0.005 with
    a cosine schedule to 0, decay 0.01 of the weights, batches of 512."""
    dim = rows.shape[1]
    batch = min(512, len(rows))
    values = np.zeros((classes, dim + 1), np.float32)  # the bias is the last column
    values[:, :dim] = r.uniform(-1, 1, (classes, dim)) / np.sqrt(dim)
    decay = np.full(dim + 1, 0.01, np.float32)
    decay[dim] = 0
    moments = np.zeros((2, *values.shape), np.float32)
    inputs = np.concatenate([rows, np.ones((len(rows), 1))], 1, dtype=np.float32)
    starts = range(0, len(rows), batch)
    for epoch in range(epochs):
        order = r.permutation(len(rows))
        for i, start in enumerate(starts):
            x, y = inputs[order[start:start + batch]], labels[order[start:start + batch]]
            z = product(x, values)
            z = np.exp(z - z.max(1, keepdims=True))
            z /= z.sum(1, keepdims=True)
            z[np.arange(len(y)), y] -= 1
            step = epoch * len(starts) + i
            adam(values, moments, product(z.T, x.T) / len(y), cosine(0.005, step, epochs * len(starts)), step, decay)
    return values[:, :dim], values[:, dim]


def accuracy(rows: np.ndarray, labels: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> float:
    return float(100 * np.mean((product(rows, weight) + bias).argmax(1)[labels >= 0] == labels[labels >= 0]))


def judge(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], classes: int, options: Options,
          seed: list[int], layers: Sequence[np.ndarray] = ()) -> dict[str, Any]:
    """Accuracy and margins of the shortest classifier that fits the training rows; lengths are --epochs times powers of two."""
    epochs, steps_each = options.epochs, -(-len(train[0]) // 512)
    labelled = train[1] >= 0
    while True:
        weight, bias = probe(train[0][labelled], train[1][labelled], classes, epochs,
                             np.random.default_rng([*seed, 1]))
        fit = accuracy(*train, weight, bias)
        if fit >= options.fit or 2 * epochs * steps_each > options.steps:
            break
        epochs *= 2
    found = mean_margins(*train, weight, bias, 1 if options.quick else 4, np.random.default_rng([*seed, 2]), layers)
    return {"accuracy": accuracy(*test, weight, bias), "train_accuracy": fit, "epochs": epochs, **found}


# ---- checkpoints

def embed(checkpoint: str, data: str, options: Options) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels by ccstream-eval."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["ccstream-eval", "embed", checkpoint, "--data", data, "-o", f"{folder}/x", "--features",
                 "-q", "--transform", options.transform]
        for row in _PASSED:
            if row.name in options.given and row.name != "transform":
                value = getattr(options, row.name.replace("-", "_"))
                words += [f"--{row.name}"] if row.kind is bool else [f"--{row.name}", str(value)]
        with start(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
            said = child.communicate()[1]
        if child.returncode != 0:
            lines = [line for line in said.splitlines() if "'ccstream-eval embed --help'" not in line]
            error = StudyError(lines[-1].removeprefix("ccstream-eval embed: ") if lines else f"{words[0]} failed")
            error.code = child.returncode
            raise error
        return np.load(f"{folder}/x.features.npy", allow_pickle=False), np.load(f"{folder}/x.labels.npy", allow_pickle=False).astype(int)


def measure(checkpoint: str, options: Options) -> dict[str, Any]:
    train, test = embed(checkpoint, options.train, options), embed(checkpoint, options.data, options)
    classes = int(train[1].max(initial=-1)) + 1
    if classes < 2:
        raise UsageError(f"{options.train} has fewer than two classes; pack class folders or CIFAR "
                         "files")
    names, other = (ccstream.Dataset(d).classes for d in (options.train, options.data))
    if names and other:  # classes are matched by name
        numbers = np.array([names.index(n) if n in names else -1 for n in other] + [-1])
        test = test[0], numbers[test[1]]
    return {"checkpoint": checkpoint, **judge(train, test, classes, options, [options.seed])}


def check(options: Options) -> None:
    if not options.arguments:
        for name in ["data", "train"] + [row.name for row in _PASSED]:
            if name in options.given:
                raise UsageError(f"--{name} has no effect without checkpoints")
    elif len(options.arguments) == 1:
        raise UsageError("too few arguments: rank statistics require two checkpoints")
    elif options.train is None or options.data is None:
        raise UsageError("checkpoints require --train and --data")
    else:
        check_dataset(options.train)
        check_dataset(options.data)


# ---- the study

def measure_towers(options: Options, progress: Progress) -> list[dict[str, Any]]:
    train, labels, test, test_labels = mixture(options.seed, 50, 100)
    first = np.searchsorted(labels, np.arange(labels.max() + 2))
    rows: list[dict[str, Any]] = []
    for steps in QUICK_STEPS if options.quick else STEPS:
        for size in SIZES:
            seed = [options.seed, 1 + len(rows)]  # the mixture has options.seed itself
            tower = train_tower(train, first, Blocks(32, size, 4), steps, 0.0003, np.random.default_rng(seed))
            found = judge((tower.hidden(train), labels), (tower.hidden(test), test_labels), len(first) - 1, options,
                          seed, [tower.w1])
            rows.append({"checkpoint": f"blocks of {size} for {steps} steps", **found})
            progress.advance(1 + steps * (1 + size))
    return rows


def measure_labels(options: Options, progress: Progress) -> list[dict[str, Any]]:
    """Figure 8-2: networks trained with correct and with random labels until they fit them. The features are the hidden units,
    and f is the linear layer after them."""
    train, labels, test, test_labels = mixture(options.seed, 50, 100)
    steps = QUICK_LABEL_STEPS if options.quick else LABEL_STEPS
    rows = []
    for name, given in (("right", labels), ("random", np.random.default_rng([options.seed, 999]).permutation(labels))):
        tower, head = train_supervised(train, given, steps, 0.002, np.random.default_rng([options.seed, 998]))
        weight, bias = head[:, :-1] @ tower.w2, head[:, :-1] @ tower.b2 + head[:, -1]
        hidden = tower.hidden(train)
        found = mean_margins(hidden, given, weight, bias, 1 if options.quick else 4, np.random.default_rng([options.seed, 997]),
                             [tower.w1])
        rows.append({"labels": name, "accuracy": accuracy(tower.hidden(test), test_labels, weight, bias),
                     "train_accuracy": accuracy(hidden, given, weight, bias), **found})
        progress.advance(steps)
    return rows


def _distributions(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Quantiles of the margins of every row."""
    return [{name: row[name], "kind": key, "quantiles": [float(q) for q in np.quantile(row["_values"][key], QUANTILES)]}
            for row in rows for key in KINDS]


def _spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Four runs of different accuracy, the best first."""
    order = sorted(rows, key=lambda row: -row["accuracy"])
    return [order[i] for i in sorted({round(k * (len(order) - 1) / 3) for k in range(4)})]


def run(options: Options, progress: Progress) -> dict[str, Any]:
    right: list[dict[str, Any]] = []
    if options.arguments:
        progress.total = len(options.arguments)
        rows = []
        for checkpoint in options.arguments:
            rows.append(measure(checkpoint, options))
            progress.advance()
    else:
        all_steps = QUICK_STEPS if options.quick else STEPS
        progress.total = sum(1 + steps * (1 + size) for steps in all_steps for size in SIZES)
        progress.total += 2 * (QUICK_LABEL_STEPS if options.quick else LABEL_STEPS)
        rows = measure_towers(options, progress)
        right = measure_labels(options, progress)
    return {"train": options.train or "1,000 points of a mixture", "data": options.data or "2,000 others",
            "rows": rows, "rank_correlation": rank_correlations(rows),
            "distributions": _distributions(_spread(rows), "checkpoint"), "labels": right,
            "label_distributions": _distributions(right, "labels")}


def rank_correlations(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Spearman correlation of each margin with the accuracy; null if one of them is constant."""
    def ranks(key: str) -> np.ndarray:
        return load("scipy.stats").rankdata([row[key] for row in rows]) - (len(rows) + 1) / 2

    y = ranks("accuracy")
    out: dict[str, float | None] = {}
    for key in KINDS:
        x = ranks(key)
        norm = np.sqrt((x @ x) * (y @ y))
        out[key] = float(x @ y / norm) if norm > 0 else None
    return out


def table(result: dict[str, Any]) -> Table:
    columns = [Column("checkpoint", "s"), Column("accuracy, %", ".2f"), Column("training data, %", ".2f"),
               Column("epochs", "d"), *(Column(name, ".5g") for name in KINDS.values()), Column("E[Var]", ".5g"),
               Column("E[Lip]", ".5g")]
    rows = [[row["checkpoint"], row["accuracy"], row["train_accuracy"], row["epochs"], *(row[key] for key in KINDS),
             row["variance"], row["lipschitz"]] for row in result["rows"]]
    ranks = [f"{c:.3f}" if c is not None else None for c in result["rank_correlation"].values()]
    rows.append(["rank correlation with accuracy", None, None, None, *ranks, None, None])
    if _negative(result):
        rows.append([f"negative median margin: {_negative(result)}; more --steps help", *[None] * (len(columns) - 1)])
    return Table(columns, rows)


def _negative(result: dict[str, Any]) -> int:
    """Checkpoints outside the claim: their classifiers do not fit the training images."""
    return sum(row["margin"] < 0 for row in result["rows"])


def page(result: dict[str, Any], options: Options) -> list[Section]:
    towers = not options.arguments
    rank = {key: "undefined" if c is None else f"{c:.3f}" for key, c in result["rank_correlation"].items()}
    text = [
        "The thesis's claim (Chuang, 2023, chapter 8; NeurIPS 2021): the margin of a classifier, divided by how "
        "concentrated the features of each class are, ranks models by how well they generalise, from training images "
        "alone. How concentrated a class is, its k-variance, is the Wasserstein-1 distance between two disjoint "
        "halves of its images.",
        f"Measured here over {len(result['rows'])} {'towers' if towers else 'checkpoints'}, each with a linear "
        f"classifier trained on {result['train']} and evaluated on {result['data']}: Spearman's rank correlation "
        f"with the accuracy is {rank['kv_margin']} for the kV-margin and {rank['kv_gn_margin']} for the "
        f"kV-GN-margin; without k-variance it is {rank['margin']} for the margin and {rank['gn_margin']} for the "
        "GN-margin. The thesis ranks networks trained to the end with labels, and uses features within them; here "
        "the features are fixed and the classifier is linear."]
    if _negative(result):
        text.append(f"The median margin of {_negative(result)} of them is negative: their classifiers do not fit the "
                    "training images, and dividing by k-variance then favours classes that are less concentrated. "
                    "More --steps help.")
    figures = [_scatter(result, key, rank[key], "towers" if towers else "checkpoints")
               for key in ("kv_margin", "margin", "kv_gn_margin", "gn_margin", "tv_gn_margin", "sn_margin")]
    four = _spread(result["rows"])
    seen = Section("Distributions", [
        "Figure 8-1 of the thesis: margins of training images, of models of different accuracy. A margin that distinguishes them "
        "has its densities in the order of accuracy; dividing by a number of the model, as k-variance does, moves and "
        "scales a density."],
        [_densities("Margins of models of different accuracy", [(f"{row['accuracy']:.1f} %", row["_values"]) for row in four])])
    sections = [Section("Measured", text, figures), seen]
    if result["labels"]:
        sections.append(_right_and_random(result))
    return [*sections,
            Section("Numbers", [], [table_item("At the end of training", table(result))]),
            Section("The thesis", ["Conditional mutual information between margin and generalisation over the "
                                   "networks of the tasks of PGDL, percent; margins at the eighth layer or the last "
                                   "convolution."],
                    [table_item("Table 8.1 of the thesis", THESIS)])]


def separation(right: dict[str, Any], random: dict[str, Any], key: str) -> float:
    """The probability that a margin with correct labels is larger than one with random labels; 0.5: no difference."""
    order = np.sort(random["_values"][key])
    return float(np.searchsorted(order, right["_values"][key]).mean() / len(order))


def _right_and_random(result: dict[str, Any]) -> Section:
    right, random = result["labels"]
    apart = ", ".join(f"{title} {separation(right, random, key):.2f}" for key, title in KINDS.items())
    return Section("Right and random labels", [
        "Figure 8-2 of the thesis: of networks that fit right and random labels, margins and GN-margins hardly differ, those "
        "normalised by k-variance do.",
        f"Measured here, a perceptron with {right['train_accuracy']:.1f} and {random['train_accuracy']:.1f} % of its training labels "
        f"right, and {right['accuracy']:.1f} and {random['accuracy']:.1f} % of the test's. The chance that a margin under right "
        f"labels is the larger one, of 0.5 where they do not differ: {apart}."],
        [_densities("Margins under right and random labels", [(row["labels"], row["_values"]) for row in (right, random)])])


def _densities(title: str, of: list[tuple[str, dict[str, np.ndarray]]]) -> Item:
    """A density for every kind of margin and every one of `of`, over the middle 98 % of all values."""
    items = []
    for key, name in KINDS.items():
        low, high = np.quantile(np.concatenate([values[key] for _, values in of]), (0.01, 0.99))
        edges = np.linspace(low, high, 33)
        lines = [series(label, (edges[1:] + edges[:-1]) / 2, np.histogram(values[key], edges)[0] / len(values[key]) / (edges[1] - edges[0]))
                 for label, values in of]
        items.append(figure("lines", name, axis(name), axis("density"), lines))
    return {"kind": "multiples", "title": title, "items": items}


def _scatter(result: dict[str, Any], key: str, rank: str, name: str) -> Item:
    rows = result["rows"]
    return figure("scatter", f"{KINDS[key]} and accuracy: rank correlation {rank}",
                  axis(f"{KINDS[key]}, median over training data"), axis("test accuracy", "%"),
                  [series(name, [row[key] for row in rows], [row["accuracy"] for row in rows])])


# Features here are those of the last layer, so the rows are those of the deep one.
THESIS = Table(
    [Column("", "s")] + [Column(task, ".2f") for task in
                         ("CIFAR-10, VGG", "SVHN, NiN", "CINIC, FCN with norm", "CINIC, FCN", "Flowers, NiN",
                          "Pets, NiN", "Fashion, VGG", "CIFAR-10, NiN")],
    [["margin", 13.59, 16.32, 2.03, 2.99, 0.33, 1.24, 0.45, 5.45],
     ["GN-margin", 0.39, 31.81, 7.17, 1.70, 0.17, 0.79, 2.12, 1.16],
     ["kV-margin", 30.42, 26.75, 6.05, 15.19, 0.78, 1.76, 0.33, 2.26],
     ["kV-GN-margin", 40.92, 45.61, 6.54, 15.80, 1.13, 5.92, 0.29, 8.07]])
