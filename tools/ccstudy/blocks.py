"""The block loss of Arora et al. (ICML 2019), section 6.3 and table 2: whether larger blocks of similar points give a
tighter bound and a better mean classifier, and how pairs of the same points compare (QT)."""
from __future__ import annotations

from typing import Any

from . import blocks_data
from .blocks_data import SIZES, Parts
from .study import (Column, Option, Options, Progress, Section, Table, UsageError, axis, check_dataset, figure, np,
                    series, table_item)
from .towers import Blocks, train_tower

PURPOSE = "compares CURL's block loss, for several block sizes, with pairs"
TITLE = "CURL: blocks of similar points"
OPTIONS = [
    Option("data", "d", metavar="DIR",
           help="dataset with labels and at least 44 images per class; with --captions, any dataset with captions [default: a random "
                "mixture of Gaussians]"),
    Option("captions", "", bool, help="with --data: use its captions, grouped by topic, instead of its images"),
    Option("topics", "", str, "water,snow,grass,street,beach,bike,pool,soccer,football,mountain,tennis,car,skateboard,"
           "baseball,basketball,horse,frisbee,boat,slide,swing", "WORDS",
           help="with --captions: topics, words separated by commas; a caption belongs to a topic if it contains this word (or its plural "
                "in s) and no other topic's"),
    Option("size", "", int, 32, "PX", "with --data: image size in pixels", 8, 128),
    Option("loss", "", str, "logistic", "NAME", "block loss", choices=("logistic", "hinge")),
    Option("blocks", "b", int, 32, "N", "blocks per step, each with one anchor", 2, 512),
    Option("negatives", "k", int, 4, "K", "negative blocks per anchor (paper: 4 on CIFAR-100)", 1, 511),
    Option("equal", "", str, "blocks", "WHAT", choices=("blocks", "points"),
           help="what is kept equal when block sizes are compared. blocks: the number of blocks, --blocks, so that larger blocks use more "
                "points per step; points: the number of points per step, that of --blocks pairs, with at least K + 1 blocks"),
    Option("steps", "", int, 2000, "N", "training steps per tower", 1, 1000000),
    Option("lr", "", float, 0.0003, "X", "peak learning rate of AdamW; cosine schedule to 0", 0, 10),
    Option("repeats", "r", int, 5, "N", "towers of each kind, each with its own seed", 1, 100),
]
NOTES = [
    "Each step draws a class for each block, with replacement, and from each class an anchor and b points. blocks: the anchor is compared "
    "with the mean of the b points (CURL, eq. (12)); pairs: with each of them, and the losses are averaged (QT). For b = 1 they are "
    "equal. The tower is a perceptron with one hidden layer on the points or pixels, with 32 unnormalised outputs, not a VGG or GRU, so "
    "numbers cannot be compared with the paper's.",
    "--captions: points are TF-IDF vectors of words, without the topic words; captions of every fourth image are for testing. Topics are "
    "chosen words, which the caption's other words partly reveal. The result shows the effect of blocks on bags of words, not on a "
    "recurrent tower that reads sentences.",
    "Measured on held-out points: AVG-2 (all pairs of classes, exactly) and top-1 of the mean classifier, with means of all training "
    "points, and mu-5, with means of 5 points per class. The bound: let tau = 1 / classes be the probability that two blocks have the "
    "same class, and L the logistic loss with one negative. Then (L - tau) / (1 - tau) is an upper bound of the mean classifier's average "
    "loss on two classes (Proposition 6.2), and falls with b.",
    "--json: rows of method, b, repeats, avg2, top1, avg2_5, top1_5 (percent; 5: mu-5), gain (in avg2, over b = 1 in the "
    "same repeat), each with _sd over the repeats, and mean_loss; bound: rows of method and b (of the training), size (of "
    "the measurement) and bound. --quick: 200 steps, 2 repeats.",
]
EXAMPLES = [
    "ccstudy blocks -o studies",
    "ccstudy blocks --data cifar10 -o studies",
    "ccstudy blocks --data flickr8k --captions -o studies",
    "ccstudy blocks --quick --json",
]
METHODS = ("blocks", "pairs")
MEASURES = {"avg2": "AVG-2", "top1": "top-1", "avg2_5": "AVG-2, mu-5", "top1_5": "top-1, mu-5"}


def check(options: Options) -> None:
    given = options.given
    if options.quick:
        options.steps = options.steps if "steps" in given else 200
        options.repeats = options.repeats if "repeats" in given else 2
    if not options.captions and "topics" in given:
        raise UsageError("--topics requires --captions")
    if (options.captions or options.data is None) and "size" in given:
        raise UsageError("--size applies only to the images of --data DIR")
    if options.captions and options.data is None:
        raise UsageError("--captions requires --data DIR")
    if options.negatives >= options.blocks:
        raise UsageError(f"--negatives {options.negatives}: with {options.blocks} blocks an anchor has at most "
                         f"{options.blocks - 1} others")
    if options.data is not None:
        check_dataset(options.data)


# ---- the experiment ----

def _blocks(options: Options, method: str, size: int) -> Blocks:
    blocks = options.blocks
    if options.equal == "points":
        blocks = max(2 * blocks // (size + 1), options.negatives + 1)
    return Blocks(blocks, size, options.negatives, options.loss == "hinge", method == "pairs")


def _parts(options: Options, seed: int) -> Parts:
    if options.captions:
        return blocks_data.read_captions(options.data, options.topics)
    return blocks_data.read_images(options.data, options.size) if options.data is not None else blocks_data.draw(seed)


def run(options: Options, progress: Progress) -> dict[str, Any]:
    """Every repeat has its own seed, and without --data its own points."""
    kinds = {(method, b): _blocks(options, method, b) for method in METHODS for b in SIZES if method == "blocks" or b > 1}
    progress.total = options.steps * options.repeats * sum(o.blocks * (o.size + 1) for o in kinds.values())
    found: dict[tuple[str, int], list[dict[str, float]]] = {(method, b): [] for method in METHODS for b in SIZES}
    parts = None
    for repeat in range(options.repeats):
        seed = options.seed * 1000 + repeat
        parts = parts if parts is not None and options.data is not None else _parts(options, seed)
        for row, o in kinds.items():
            tower = train_tower(parts.train.rows, parts.train.first, o, options.steps, options.lr,
                                np.random.default_rng(seed), progress.advance)
            found[row].append(blocks_data.measure(tower, parts, seed))
        found["pairs", 1].append(found["blocks", 1][-1])  # the same
    tau = 1 / parts.train.classes
    means = {row: {name: float(np.mean([m[name] for m in own])) for name in own[0]} for row, own in found.items()}
    return {"classes": parts.train.classes, "train": len(parts.train.labels), "test": len(parts.test.labels),
            "loss": options.loss, "negatives": options.negatives, "equal": options.equal, "steps": options.steps,
            "rows": [_row(found, row) | {"mean_loss": means[row]["mean_loss"]} for row in found],
            "bound": [{"method": method, "b": b, "size": size,
                       "bound": (means[method, b][f"loss_{size}"] - tau) / (1 - tau)}
                      for method, b in found for size in SIZES]}


def _row(found: dict[tuple[str, int], list[dict[str, float]]], row: tuple[str, int]) -> dict[str, Any]:
    own, pairs = found[row], found["blocks", 1]
    columns = {name: [m[name] for m in own] for name in MEASURES}
    columns["gain"] = [m["avg2"] - one["avg2"] for m, one in zip(own, pairs)]
    out: dict[str, Any] = {"method": row[0], "b": row[1], "repeats": len(own)}
    for name, values in columns.items():
        out[name] = float(np.mean(values))
        if len(values) > 1:
            out[f"{name}_sd"] = float(np.std(values, ddof=1))
    return out


# ---- text and page ----

def _with_deviation(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:.2f} ± {row[name + '_sd']:.2f}" if name + "_sd" in row else f"{row[name]:.2f}"


def table(result: dict[str, Any]) -> Table:
    columns = [Column("method", "s"), Column("b", "d"), *(Column(f"{title}, %", "s") for title in MEASURES.values()),
               Column("gain in AVG-2", "s"), Column("mean loss", ".4f")]
    return Table(columns, [[row["method"], row["b"], *(_with_deviation(row, name) for name in (*MEASURES, "gain")),
                            row["mean_loss"]] for row in result["rows"] if row["method"] == "blocks" or row["b"] > 1])


def page(result: dict[str, Any], options: Options) -> list[Section]:
    rows = {(row["method"], row["b"]): row for row in result["rows"]}
    bound = {(row["b"], row["size"]): row["bound"] for row in result["bound"] if row["method"] == "blocks"}
    size = axis("b", scale="log")
    accuracy = [series(f"{method}, {title}", SIZES, [rows[method, b][name] for b in SIZES],
                       error=[rows[method, b].get(name + "_sd", 0) for b in SIZES])
                for method in METHODS for name, title in (("avg2", "all points"), ("avg2_5", "mu-5"))]
    bounds = []
    for b in (SIZES[0], SIZES[-1]):
        bounds += [series(f"bound, tower of b = {b}", SIZES, [bound[b, s] for s in SIZES]),
                   series(f"mean classifier, tower of b = {b}", SIZES, [rows["blocks", b]["mean_loss"]] * len(SIZES),
                          dashed=True)]
    data = (f"captions of {result['classes']} topics, in bags of words" if options.captions else
            f"images of {result['classes']} classes" if options.data else f"a mixture of {result['classes']} Gaussians")
    one, ten, pairs = (rows[row]["avg2"] for row in (("blocks", 1), ("blocks", 10), ("pairs", 10)))
    measured = (
        f"Measured here: {data}, {result['train']} points to train on, {result['test']} to test, a perceptron with one "
        f"hidden layer, {result['loss']} loss, {result['negatives']} negatives, {result['steps']} steps of equally many "
        f"{result['equal']}. AVG-2 of the mean classifier is {one:.2f} % with b = 1, {ten:.2f} % with blocks of 10, "
        f"{pairs:.2f} % with the pairs of those blocks. On the tower of b = 1 the bound falls from {bound[1, 1]:.3f} to "
        f"{bound[1, 10]:.3f} bits as blocks grow from 1 to 10; the mean classifier has {rows['blocks', 1]['mean_loss']:.3f}.")
    paper = [("CIFAR-100", "CURL", 88.1, 89.6, 89.7), ("Wiki-3029", "CURL", 96.6, 97.5, 97.7),
             ("IMDB", "CURL", 89.2, 89.6, 89.7), ("IMDB", "QT", 86.5, 87.7, 86.7)]
    return [
        Section("The claim", [
            "Arora et al. (ICML 2019): the loss that compares an anchor with the mean of a block of b similar points bounds "
            "the loss of the mean classifier more tightly than pairs do, and towers trained with larger blocks classify "
            "better; pairs made of the same blocks (QT) do not gain as much.", measured,
            f"In the table means and standard deviations over {rows['blocks', 1]['repeats']} repeats; gain: over b = 1 in "
            "the same repeat."], [
            figure("lines", "AVG-2 over the size of blocks", size, axis("AVG-2", "%"), accuracy,
                   "Of the mean classifier; b: of the blocks that towers were trained with; bars: standard deviation."),
            figure("lines", "The bound over the size of blocks", size, axis("loss", "bits"), bounds,
                   "The bound that the logistic block loss of test points gives, over the size of its blocks, and what it "
                   "bounds: the loss of the mean classifier on two classes.")]),
        Section("The paper", ["Table 2 of Arora et al., percent: AVG-2 of CIFAR-100 (VGG-16) and Wiki-3029 (GRU), accuracy "
                              "on IMDB."], [
            table_item("Table 2", Table([Column("data", "s"), Column("method", "s"), Column("b = 2", ".1f"),
                                         Column("b = 5", ".1f"), Column("b = 10", ".1f")], [list(row) for row in paper]))]),
    ]
