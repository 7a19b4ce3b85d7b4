"""Sampling bias (Chuang et al., NeurIPS 2020; thesis, figure 3-2): accuracy after contrastive learning from two crops of a
point, if negatives are any other points (biased), if DCL subtracts the expected contribution of the anchor's class (debiased),
and if labels exclude that class (unbiased)."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import heads
from .heads import LARGEST, Setting, mean_and_error
from .study import Column, Options, Progress, Section, Table, axis, figure, series, table_item

PURPOSE = "compares negatives with and without those of the anchor's class: DCL, figure 3-2"
TITLE = "Negatives with and without the anchor's class"
OPTIONS = [row for row in heads.OPTIONS if row.name not in ("pairs", "features")]
NOTES = [
    "One head is trained on two crops of each synthetic point of 'ccstudy noise --noise augment', in batches of 16 to 128. Biased: clip, "
    "with all other points of the batch as negatives. Debiased: dcl with tau+ = 1 / classes. Unbiased: clip without the points of the "
    "anchor's label. The temperature is tuned for each on validation points with one seed. The result is the accuracy of a linear "
    "classifier on uncropped points.",
    "--json: settings; rows of method, batch, seeds, accuracy, over_biased (the difference from biased with the same batch and seed), "
    "each with its standard "
    "error as NAME_se, tau and validation. --quick: batches 32 and 128, 6 epochs, 2 seeds.",
]
EXAMPLES = ["ccstudy negatives -o studies", "ccstudy negatives --quick --json"]


@dataclass(frozen=True)
class Method:
    title: str
    loss: str
    unbiased: bool = False


METHODS = {"biased": Method("biased (all others)", "clip"), "debiased": Method("debiased (DCL)", "dcl"),
           "unbiased": Method("unbiased (by labels)", "clip", True)}
BATCHES, TAUS = (16, 32, 64, LARGEST), (0.1, 0.2, 0.4)


def check(options: Options) -> None:
    options.features = None
    options.dim = options.dim if "dim" in options.given else 8
    if options.quick and "held-out" not in options.given:
        options.held_out = 600
    heads.check(options)


def _setting(options: Options, classes: int, name: str, tau: float, seed: int) -> Setting:
    method = METHODS[name]
    more = {"tau_plus": 1 / classes} if method.loss == "dcl" else {"temperature": "constant"}
    return Setting(options.seed * 1000 + seed, method.loss, {"tau": tau, **more}, crops=True, unbiased=method.unbiased)


def run(options: Options, progress: Progress) -> dict[str, Any]:
    f = heads.divide(heads.draw_cropped(options.seed), options.held_out, options.seed)
    classes = int(f.labels.max()) + 1
    batches, taus = ((32, LARGEST), (0.2,)) if options.quick else (BATCHES, TAUS)
    seeds = range(1, options.repeats + 1)
    progress.total = options.epochs * f.count * len(batches) * len(METHODS) * (len(taus) + len(seeds))
    rows = []
    for batch in batches:
        found: dict[str, list[float]] = {}
        tried = [(name, tau) for name in METHODS for tau in taus]
        outcomes = list(heads.train_all(f, [_setting(options, classes, *t, 0) for t in tried], batch, options.epochs, options,
                                        progress.advance))
        best = {name: max((o.validation_score, tau) for (n, tau), o in zip(tried, outcomes) if n == name) for name in METHODS}
        settings = [_setting(options, classes, name, best[name][1], seed) for name in METHODS for seed in seeds]
        scores = iter([o.test_score for o in heads.train_all(f, settings, batch, options.epochs, options, progress.advance)])
        for name in METHODS:
            found[name] = [next(scores) for _ in seeds]
            row: dict[str, Any] = {"method": name, "batch": batch, "seeds": len(seeds)}
            for column, values in (("accuracy", found[name]),
                                   ("over_biased", [a - b for a, b in zip(found[name], found["biased"])])):
                row[column], row[f"{column}_se"] = mean_and_error(values)
            rows.append(row | {"tau": best[name][1], "validation": best[name][0]})
    settings_text = (f"drawn points, {classes} classes, {f.count} points for training "
                     f"and {len(f.test)} each for validation and test, {options.epochs} epochs, a head of {f.images.shape[1]} to "
                     f"{options.dim} with {options.hidden} hidden units, seed {options.seed}")
    return {"settings": settings_text, "rows": rows}


def _shown(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:.2f} ± {row[name + '_se']:.2f}"


def table(result: dict[str, Any]) -> Table:
    return Table([Column("negatives", "s"), Column("batch", "d"), Column("accuracy, %", "s"), Column("over biased", "s"),
                  Column("tau")], [[METHODS[row["method"]].title, row["batch"], _shown(row, "accuracy"), _shown(row, "over_biased"),
                                    row["tau"]] for row in result["rows"]])


def page(result: dict[str, Any], options: Options) -> list[Section]:
    def lines(name: str, title: str, y: dict[str, Any]) -> dict[str, Any]:
        own = {key: [row for row in result["rows"] if row["method"] == key] for key in METHODS}
        return figure("lines", title, axis("batch", scale="log"), y,
                      [series(METHODS[key].title, [r["batch"] for r in rows], [r[name] for r in rows], error=[r[name + "_se"] for r in rows])
                       for key, rows in own.items()], "Bars: standard errors over seeds.")

    largest = [row for row in result["rows"] if row["batch"] == result["rows"][-1]["batch"]]
    ends = "; ".join(f"{METHODS[row['method']].title} {_shown(row, 'accuracy')} %" for row in largest)
    ahead = all(row["over_biased"] > 0 for row in result["rows"] if row["method"] == "unbiased")
    return [Section("The claim", [
        "Chuang et al. (NeurIPS 2020; thesis, figure 3-2): negatives of the anchor's own class cost accuracy; with labels that keep "
        "them out accuracy is higher, and DCL, which corrects for them without labels, comes closer to it. On CIFAR-10 "
        "(thesis, ResNet-50, figure 3-2) the difference is several points.",
        f"Measured here at batch {largest[0]['batch']}: {ends}. Negatives without the anchor's class are "
        f"{'ahead in every batch' if ahead else 'not ahead in every batch'}. The setting of all runs: {result['settings']}."], [
        lines("accuracy", "Accuracy over the batch", axis("accuracy of a linear classifier", "%")),
        lines("over_biased", "Over biased negatives", axis("difference", "percentage points")),
        table_item("Numbers", table(result))])]
