"""ccstudy gradient: figure 7 of EMC2 (Yau et al., ICML 2024): which small-batch losses reach a stationary point of the
global contrastive loss, by its exact gradient over all negatives."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from .gradient_model import METHODS, OBJECTIVES, Linear, Method, Problem, ResNet, burn_in_methods, draw_views, read_views, train
from .page import write
from .study import (Column, DataError, Item, Option, Options, Progress, Section, Table, UsageError, axis, check_dataset,
                    figure, load, np, series, table_item)

PURPOSE = "measures the exact gradient of the global loss during small-batch training: EMC2, figure 7"
TITLE = "EMC2: the exact gradient of the global loss"
EXAMPLES = ["ccstudy gradient -o studies", "ccstudy gradient --quick --json",
            "ccstudy gradient --data cifar10 --model resnet18 -t 0 -o studies", "ccstudy gradient --burn-in -o studies"]
NOTES = [
    "Each image has two fixed augmented views (SimCLR's augmentation). L is the global loss of eq. (1): each of the 2n views is an "
    "anchor, the other view its positive, all views of other images its negatives (998 for 500 images). L and |grad L|^2 are computed "
    "exactly at 41 points of each run. The paper claims that EMC2's |grad L|^2 ends two orders of magnitude lower.", "Methods. simclr: "
        "InfoNCE of the batch; sogclr: gamma 0.9, as in EMC2's code, and 0.1; emc2-encode, emc2-view, emc2-skip: --emc2-off-batch encode "
        "(a sample outside the batch is encoded un-augmented), view (the view that is the chain's state, as in the published code of this "
        "figure) and skip; emc2-fresh: one of the two views, chosen at random in each step; negcache: the negative cache, of which a "
        "fraction of 0.1 is re-encoded per step.",
    "Each method is run with each learning rate, and the run with the smallest final L is reported, because the gradient is also 0 when "
    "all images have collapsed to one point. Scaled values are multiplied by the squared norm of the parameters, relative to its initial "
    "value: embeddings are normalised, so L does not depend on that norm, its gradient falls as 1 / norm, and large steps alone would "
    "make |grad L|^2 small.",
    "bias2 is |mean of the estimator - grad L|^2 over 40,000 steps (--quick: 2,000) with the final model held fixed: a lower bound of the "
    "|grad L|^2 that the method can reach. The rest is gradient noise and incomplete convergence.",
    "--json: rows of method, loss, carry, gamma, lr (the best), steps, seconds (of the steps, without measuring; the only numbers that "
    "--seed does not reproduce), L, norm2, scaled_norm2, bias2, scaled_bias2, length, norm2_with_own (for InfoNCE over all views, which "
    "the published code measures) and norm2_unaugmented (for L with un-augmented negatives). grid: method, lr, L, norm2, scaled_norm2, "
    "bias2 of each run. trace: method, step, seconds, L, norm2, scaled_norm2 of the best run. null: not finite. settings: what the "
    "numbers depend on. --quick: 100 images, 2,000 steps, two learning rates.",
    "--burn-in is figure 4 on the same problem, with L and its gradient instead of accuracy. Methods emc2-P-0, emc2-P-b/2, emc2-P-b and "
    "emc2-P-3b/2 are emc2-view with the first 0, b/2, b and 3b/2 of a step's 2b - 2 proposals discarded.",
    "--model resnet18 requires torch.",
]
OPTIONS = [
    Option("data", "d", metavar="DIR", help="dataset whose first images are used [default: generated images]"),
    Option("samples", "n", int, 500, "N", "number of images, even", least=4, most=2000),
    Option("batch", "b", int, 4, "N", "images per step", least=2, most=256),
    Option("tau", "", float, 0.2, "T", "temperature; the paper's beta is 1 / tau", least=0.01, most=10),
    Option("model", "m", metavar="NAME", choices=("linear", "resnet18"), default="linear",
           help="encoder; linear: a linear map of 64 principal components of the pixels"),
    Option("norm", metavar="KIND", choices=("none", "group"), default="none",
           help="normalisation layers of resnet18, instead of batch norm"),
    Option("image-size", "", int, None, "PX", "image size in pixels; auto: linear 8 (maximum 16), resnet18 32 (paper: 96)",
           least=8, most=224, word="auto"),
    Option("steps", "", int, None, "N", "steps per run; auto: linear 300,000, resnet18 1,250, as in the paper's code",
           least=40, most=100000000, word="auto"),
    Option("optimizer", metavar="NAME", choices=("sgd", "adam"), default="sgd",
           help="optimiser; sgd: as in the figure's caption and the published command"),
    Option("schedule", metavar="NAME", choices=("cosine", "constant"), default="cosine",
           help="learning-rate schedule; cosine: to 0, so that the end of the run shows bias rather than noise"),
    Option("lr", kind=list, metavar="X", help="learning rate to try, up to 8 [default: a grid that depends on the model]"),
    Option("threads", "t", int, 1, "N", "threads for resnet18; 0: all CPUs", least=0, most=1024),
    Option("burn-in", kind=bool, help="measure figure 4 instead: only EMC2, with burn-in P of 0, b/2, b and 3b/2 proposals; requires "
                                      "--batch 6 or more [default 8]"),
    Option("resume", kind=bool, help="resume an interrupted run after its last finished method; requires --out"),
]
MAX_RATES, POINTS, BIAS_STEPS, QUICK_BIAS_STEPS = 8, 41, 20000, 1000
_GRIDS = {("linear", "sgd"): [0.001, 0.003, 0.01], ("linear", "adam"): [0.0001, 0.0003, 0.001],
          ("resnet18", "sgd"): [0.001, 0.01, 0.1], ("resnet18", "adam"): [0.00003, 0.0001, 0.0003]}


# ---- settings

def _rates(o: Options) -> list[float]:
    if len(o.lr) > MAX_RATES:
        raise UsageError(f"--lr: at most {MAX_RATES} learning rates")
    out = []
    for text in o.lr:
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 0 < rate <= 1e6:
            raise UsageError(f"--lr '{text}' is not a number in (0, 1e6]")
        out.append(rate)
    return out or _GRIDS[o.model, o.optimizer][1 if o.quick else 0:]


def check(o: Options) -> None:
    linear = o.model == "linear"
    if o.quick and "samples" not in o.given:
        o.samples = 100
    if o.burn_in and "batch" not in o.given:
        o.batch = 8
    if o.burn_in and o.batch < 6:
        raise UsageError(f"--burn-in: with --batch {o.batch} all 2b - 2 proposals of a step are the burn-in of P = 3b/2; 6 is the least")
    if o.steps is None:
        o.steps = 2000 if o.quick else 300000 if linear else 1250
    if o.image_size is None:
        o.image_size = 8 if linear else 32
    if linear and o.image_size > 16:
        raise UsageError(f"--image-size {o.image_size}: the principal components of --model linear need images of at "
                         "most 16")
    if o.samples % 2 or 2 * o.batch > o.samples:
        raise UsageError(f"--samples {o.samples} must be an even number, and at least twice --batch {o.batch}")
    if o.resume and o.out is None:
        raise UsageError("--resume requires --out, the folder of the study")
    o.rates = _rates(o)
    if o.data is not None:
        check_dataset(o.data)
    if not linear:
        load("torch")


def _methods(o: Options) -> tuple[Method, ...]:
    return burn_in_methods(o.batch) if o.burn_in else METHODS


def settings(o: Options) -> str:
    """Everything that the numbers depend on, except the dataset's pixels."""
    return (f"{o.data or 'generated'} n={o.samples} px={o.image_size} batch={o.batch} tau={o.tau:g} model={o.model} "
            f"norm={o.norm} steps={o.steps} optimizer={o.optimizer} schedule={o.schedule} seed={o.seed}"
            f"{' burn-in' if o.burn_in else ''}{' quick' if o.quick else ''} lr {' '.join(f'{rate:g}' for rate in o.rates)}")


# ---- runs; those that an interrupted study has finished are in DIR/gradient.part.json

def _part(o: Options) -> str | None:
    return o.out and os.path.join(o.out, "gradient.part.json")


def _write_part(o: Options, runs: list[dict[str, Any]]) -> None:
    path = _part(o)
    if path:
        write(Path(path), json.dumps({"settings": settings(o), "runs": runs}).encode())


def _read_part(o: Options) -> list[dict[str, Any]]:
    """The finished methods of an interrupted study; none if it was interrupted before the first."""
    path = _part(o)
    if not o.resume or not path or not os.path.exists(path):
        return []
    with open(path) as file:
        try:
            found = json.load(file)
            runs, theirs = list(found["runs"]), str(found["settings"])
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: not a file of an interrupted study") from None
    if theirs != settings(o):
        raise UsageError(f"--resume: {path} belongs to a study with other options: {theirs}")
    return runs[:len(runs) // len(o.rates) * len(o.rates)]


def run(o: Options, progress: Progress) -> dict[str, Any]:
    runs = _read_part(o)
    methods = _methods(o)
    progress.total = (len(methods) * len(o.rates) - len(runs)) * o.steps
    size = o.samples, o.image_size, o.seed
    pixels = draw_views(*size) if o.data is None else read_views(o.data, *size)

    def encoder(count: int) -> Linear | ResNet:
        if o.model == "linear":
            return Linear(pixels, count, o.seed)
        return ResNet(pixels, count, o.seed, o.norm, o.threads)

    problem = Problem(pixels, o.batch, o.tau, o.seed, encoder, adam=o.optimizer == "adam", decay=o.schedule == "cosine")
    for method in methods[len(runs) // len(o.rates):]:
        runs += train(problem, method, o.rates, o.steps, POINTS, QUICK_BIAS_STEPS if o.quick else BIAS_STEPS,
                      progress.advance)
        _write_part(o, runs)
    out = result(o, runs)
    path = _part(o)
    if path:
        os.unlink(path)
    return out


# ---- numbers

def _scaled(norm2: float, point: list[float]) -> float:
    """|gradient|^2 rescaled to the initial length of the parameters: for normalised embeddings L does not depend on their
    length, and its gradient falls as 1 / length."""
    return norm2 * point[4] ** 2


def best(runs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The run with the smallest final L (not the smallest gradient: an encoder that maps all images to one point has none
    either). None: all runs have diverged."""
    finite = [r for r in runs if np.isfinite([r["points"][-1][2], _scaled(r["norm2"][0], r["points"][-1])]).all()]
    return min(finite, key=lambda r: r["points"][-1][2], default=None)


def _row(o: Options, method: Method, of: dict[str, Any] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"method": method.key, "loss": method.loss, "carry": method.carry, "gamma": method.gamma}
    if of is None:
        names = ("seconds", "L", "norm2", "scaled_norm2", "bias2", "scaled_bias2", "length", "norm2_with_own",
                 "norm2_unaugmented")
        return {**row, "lr": None, "steps": o.steps, **dict.fromkeys(names)}
    end, norms = of["points"][-1], dict(zip(OBJECTIVES, of["norm2"], strict=True))
    return {**row, "lr": of["lr"], "steps": o.steps, "seconds": end[1], "L": end[2], "norm2": norms["global"],
            "scaled_norm2": _scaled(norms["global"], end), "bias2": of["bias2"],
            "scaled_bias2": _scaled(of["bias2"], end),
            "length": end[4], "norm2_with_own": norms["with_own"], "norm2_unaugmented": norms["unaugmented"]}


def result(o: Options, runs: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"settings": settings(o), "rows": [], "grid": [], "trace": []}
    for i, method in enumerate(_methods(o)):
        mine = runs[i * len(o.rates):(i + 1) * len(o.rates)]
        chosen = best(mine)
        out["rows"].append(_row(o, method, chosen))
        out["grid"] += [{"method": method.key, "lr": r["lr"], "L": r["points"][-1][2], "norm2": r["norm2"][0],
                         "scaled_norm2": _scaled(r["norm2"][0], r["points"][-1]), "bias2": r["bias2"]} for r in mine]
        out["trace"] += [{"method": method.key, "step": int(p[0]), "seconds": p[1], "L": p[2], "norm2": p[3],
                          "scaled_norm2": _scaled(p[3], p)} for p in (chosen["points"] if chosen else [])]
    return out


_COLUMNS = {"lr": ("step size", "g"), "L": ("L", ".4f"), "norm2": ("|grad L|^2", ".3g"),
            "scaled_norm2": ("scaled", ".3g"), "scaled_bias2": ("scaled bias^2", ".3g"), "length": ("length", ".2f"), "seconds": ("seconds", ".3g"),
            "norm2_with_own": ("with own pair", ".3g"), "norm2_unaugmented": ("negatives un-augmented", ".3g")}


def table(result: dict[str, Any], keys: list[str] | None = None) -> Table:
    keys = keys or list(_COLUMNS)[:7]
    return Table([Column("method", "s"), *(Column(*_COLUMNS[key]) for key in keys)],
                 [[row["method"], *(row[key] for key in keys)] for row in result["rows"]])


# ---- the page

def _burn_in_claim(result: dict[str, Any], o: Options) -> list[str]:
    ends = "; ".join(f"{row['method'][7:]}: L {_text(row['L'])}, {_text(row['scaled_norm2'])} of which bias {_text(row['scaled_bias2'])}"
                     for row in result["rows"])
    return ["The paper's claim (Yau et al., ICML 2024, figure 4): accuracy grows with the burn-in P of every chain's proposals in a step, "
            "and no longer from about P = b on, because the first states are still those of the parameters before.",
            f"Measured here by L and its scaled squared gradient norm at the end, {o.samples} images, {o.steps:,} steps of batches of "
            f"{o.batch}: {ends}. A larger P leaves fewer recorded states, {2 * o.batch - 2} - P, so that the estimate has less bias and more noise."]


def page(result: dict[str, Any], o: Options) -> list[Section]:
    if o.burn_in:
        return [Section("Measured", _burn_in_claim(result, o), [_curves(result, value, "step", o) for value in ("scaled_norm2", "L")]),
                Section("Numbers", [f"Settings: {result['settings']}"],
                        [table_item("At the end of the best run of each", table(result, list(_COLUMNS)))])]
    rows = {row["method"]: row for row in result["rows"]}

    def end(key: str) -> str:
        return _text(rows[key]["scaled_norm2"])

    def both(key: str) -> str:
        return f"{_text(rows[key]['scaled_bias2'])} of {end(key)}"

    ratio = "?"
    if rows["simclr"]["scaled_norm2"] and rows["emc2-view"]["scaled_norm2"]:
        ratio = f"{rows['simclr']['scaled_norm2'] / rows['emc2-view']['scaled_norm2']:.1f}"
    claim = [
        "The paper's claim (Yau et al., ICML 2024, figure 7): trained on 500 images of STL-10 with two fixed "
        "augmentations each, by SGD with batches of 4, EMC2 ends with a squared gradient norm of the global loss "
        "that is lower than that of SimCLR, SogCLR and the negative cache by two orders of magnitude.",
        f"Measured here, {o.samples} images ({'generated' if o.data is None else 'of a dataset'}), {o.steps:,} steps "
        f"of batches of {o.batch}, each method with its best step size: SimCLR ends at {end('simclr')}, EMC2 at "
        f"{end('emc2-view')} if it encodes the view that is the chain's state (SimCLR's is {ratio} times that) and "
        f"at {end('emc2-encode')} if it encodes that sample un-augmented; SogCLR ends at {end('sogclr-0.9')} with "
        f"gamma 0.9, as in EMC2's code, and at {end('sogclr-0.1')} with gamma 0.1.",
        "All these are |grad L|^2 times the squared length of the parameters over that at the start. Embeddings are "
        "normalised, so L does not depend on that length and its gradient falls as 1 / length: large steps alone "
        "would make it small. The step size counts whose run ends with the smallest L, as the gradient is also 0 "
        "where all images have become one point."]
    why = [
        "What is left at the end has three parts: the estimator's bias, the noise of the last steps, and the "
        "distance that was not travelled. The bias is measured by holding the model and averaging the estimator "
        f"over {2 * (QUICK_BIAS_STEPS if o.quick else BIAS_STEPS):,} steps: a method stops where its mean is zero, "
        "and there |grad L|^2 is the squared bias.",
        f"SimCLR's is {both('simclr')}: the softmax of the batch is not that of all samples.",
        f"EMC2 with the chain's view: {both('emc2-view')}. Its noise, because a few samples represent the softmax, "
        "falls with more and smaller steps.",
        f"EMC2 as --emc2-off-batch encode has it: {both('emc2-encode')}. A sample that is encoded un-augmented is not "
        "one of the negatives of L, and not as similar to the anchor as its views are. Chains, burn-in and steps "
        "are those of the row before; a view at random instead of the un-augmented image has "
        f"{_text(rows['emc2-fresh']['scaled_bias2'])}. Nor is this the stationary point of the loss whose negatives "
        "are all un-augmented (last column of the table): negatives within the batch are views.",
        f"EMC2 as skip: {both('emc2-skip')}; chains that stay on a sample record nothing.",
        f"SogCLR: {both('sogclr-0.9')} with gamma 0.9, where its moving average is almost that of the batch alone, "
        f"and {both('sogclr-0.1')} with 0.1. Its noise is less than EMC2's, because all negatives of the batch "
        "count, weighted.",
        f"The negative cache: {both('negcache')}. All of its negatives are un-augmented, so it minimises another "
        "loss, that of the last column, which falls even where all views come together, away from the images. The "
        "published code of the figure caches views."]
    grid = Table([Column("method", "s"), Column("step size", "g"), Column("L", ".3f"),
                  Column("scaled |grad L|^2", ".3g"), Column("bias^2", ".3g")],
                 [[r["method"], r["lr"], r["L"], r["scaled_norm2"], r["bias2"]] for r in result["grid"]])
    return [Section("Measured", claim, [_curves(result, value, by, o) for by in ("step", "seconds")
                                        for value in ("scaled_norm2", "L")]),
            Section("Why", why),
            Section("Numbers", [f"Settings: {result['settings']}", "With own pair: the squared gradient norm of "
                                                                   "InfoNCE over all views, which the published code "
                                                                   "measures. Negatives un-augmented: of L with the "
                                                                   "un-augmented images as negatives."],
                    [table_item("At the end of the best run of each method", table(result, list(_COLUMNS))),
                     table_item("Each run", grid)])]


def _text(value: float | None) -> str:
    return "no finite value" if value is None or not np.isfinite(value) else f"{value:.3g}"


def _curves(result: dict[str, Any], value: str, by: str, o: Options) -> Item:
    what = "Global loss L" if value == "L" else "Squared norm of the exact gradient"
    lines = []
    for method in _methods(o):
        points = [p for p in result["trace"] if p["method"] == method.key]
        if points:
            lines.append(series(method.name, [p[by] for p in points], [p[value] for p in points]))
    return figure("lines", f"{what} over the {'steps' if by == 'step' else 'time of the steps'}",
                  axis("steps") if by == "step" else axis("time", "s"),
                  axis("L") if value == "L" else axis("scaled |grad L|^2", scale="log"), lines)
