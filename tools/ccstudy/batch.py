"""Whether global losses work with small batches (Yuan et al., ICML 2022; Wang et al., ICLR 2025): recall over the batch size of
CLIP, SogCLR and NUCLR, each tuned separately, on frozen features with trained heads.

Every run is a line of a file of cells:

    # SETTINGS                 settings shared by all runs; other lines that begin with # are comments
    METHOD BATCH TAU RATE GAMMA SEED V1 V5 V10 T1 T5 T10 [GCL [SAMPLES]]

V and T: R@1, R@5 and R@10 in percent, means of both directions, on validation and test pairs. GCL: the global loss at
TAU over training pairs; nan if not measured. GAMMA 0: a method without gamma. SAMPLES: number of training images; 0 or absent
if it is the same for all runs of the file. Runs with seed 0 are for tuning: the setting with the highest mean of V is chosen, and
its runs with other seeds are the result. Without seed 0, all runs of a method and batch size must share one setting.
"""
from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from . import heads
from .heads import LARGEST, RECALLS, Features, Setting, mean_and_error
from .page import write as write_file
from .study import (Column, DataError, NotFoundError, Option, Options, Progress, Section, Table, UsageError, axis, figure,
                    series, table_item)

PURPOSE = "measures recall over the batch size, of global losses and CLIP: SogCLR, NUCLR"
TITLE = "Recall over the batch"
USAGE = ["[-o DIR] [options]", "--cells FILE [-o DIR]"]
OPTIONS = [
    *heads.OPTIONS,
    Option("samples", metavar="KIND", choices=("images", "captions"), default="images",
           help="what a sample is. images: an image with one of its captions, another one in each epoch; captions: a caption with its "
                "image. Each sample has its own moving averages"),
    Option("train-images", kind=list, metavar="N",
           help="maximum number of training images; several values give several rows, all trained for the same number of steps, --epochs "
                "of the largest"),
    Option("method", "m", list, metavar="NAME", help="loss to train: clip, sogclr, sogclr-forgets, nuclr-frozen, nuclr-fixed or "
                                                     "nuclr-auto [default: all]"),
    Option("batch", "b", list, metavar="B", help="batch size, a divisor of 128 [default: 8, 16, 32, 64 and 128]"),
    Option("tau", kind=list, metavar="T", help="temperature to try [default: 0.05, 0.1, 0.2 and 0.4]"),
    Option("gamma", kind=list, metavar="G", help="gamma to try [default: 0.4 and 0.8]"),
    Option("cells", metavar="FILE",
           help="do not train; make the table and the page from the runs in FILE, one per line (see below)"),
]
NOTES = [
    "A head for images and one for texts are trained on fixed features in batches of 8 to 128, with clip; sogclr; sogclr-forgets (gamma "
    "1, so that u covers only the current batch); and nuclr with a frozen zeta, with zeta learning rate 5e-6 (as on CC3M) and with auto. "
    "All runs see the same number of pairs. The papers claim that clip needs large batches and global losses do not.",
    "For each loss and batch size, temperature and gamma (the moving-average weight) are chosen from a grid by the mean of R@1, R@5 and "
    "R@10 on the validation pairs, with one seed. The mean and standard error on the test pairs are over --repeats other seeds of the "
    "chosen setting.",
    "With -o each finished run is a line of DIR/batch.cells. The same command skips finished runs; a folder with other options is "
    "refused. Fields of a line: METHOD BATCH TAU RATE GAMMA SEED, R@1 R@5 R@10 on the validation pairs, likewise on the test pairs, the "
    "global loss over 2,000 training anchors (or nan, or omitted), and the number of training samples (or 0, or omitted). Seed 0 is for "
    "tuning; without it all runs of a loss and batch must have one setting.",
    "--json: settings; rows of method, batch, samples (0: see settings), seeds, recall (the mean of R@1, R@5 and R@10), r1, r5, r10 and over_clip "
    "(the difference from clip's recall at the same batch size and seed), each with its standard error as NAME_se; "
    "the tuned tau, lr and gamma, and validation, the recall by which they were chosen; fit, rows of method, batch, tau and gcl, the "
    "global loss at that temperature over the training pairs (lowest over gamma, one seed). --quick: 640 random pairs, a small grid, 2 "
    "seeds.",
]
EXAMPLES = [
    "ccstudy batch --quick -o studies",
    "ccstream-eval embed runs/a --data flickr --texts --features -o flickr && ccstudy batch --features flickr -o studies",
    "ccstudy batch --features flickr --samples captions --gamma 0.3 -b 8 -b 128 -o captions",
]


@dataclass(frozen=True)
class Method:
    title: str
    loss: str
    gammas: tuple[float, ...] | None = None  # to tune over; None: those of the grid; 0: the loss has none
    zeta_lr: float | None = 0.0  # as of heads.Setting


METHODS = {
    "clip": Method("CLIP", "clip", (0.0,)),
    "sogclr": Method("SogCLR", "sogclr"),
    "sogclr-forgets": Method("SogCLR, gamma 1", "sogclr", (1.0,)),
    "nuclr-frozen": Method("NUCLR, zeta frozen", "nuclr-frozen"),
    "nuclr-fixed": Method("NUCLR, zeta at 5e-6", "nuclr", zeta_lr=5e-6),
    "nuclr-auto": Method("NUCLR, zeta at auto", "nuclr", zeta_lr=None),
}


@dataclass(frozen=True)
class Grid:
    batches: tuple[int, ...]
    taus: tuple[float, ...]
    gammas: tuple[float, ...]


FULL = Grid((8, 16, 32, 64, 128), (0.05, 0.1, 0.2, 0.4), (0.4, 0.8))
QUICK = Grid((8, 32, 128), (0.1, 0.2), (0.6,))


# ---- cells ----

@dataclass(frozen=True)
class Key:
    """A setting and one of its seeds."""
    method: str
    batch: int
    tau: float
    rate: float
    gamma: float
    seed: int
    samples: int = 0  # that train, where runs differ in it


Recalls = tuple[float, ...]


@dataclass(frozen=True)
class Cell:
    validation: Recalls
    test: Recalls
    gcl: float  # NaN: not measured


def mean(recalls: Recalls) -> float:
    """The mean of the six recalls: rSum / 6."""
    return sum(recalls) / len(recalls)


class Cells(dict[Key, Cell]):
    """Runs in the order in which they finished."""

    def __init__(self, settings: str = ""):
        super().__init__()
        self.settings = settings

    @classmethod
    def read(cls, path: str) -> Cells:
        out = cls()
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            raise NotFoundError(f"{path}: no such file") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: {error}") from None
        for number, line in enumerate(lines, 1):
            if number == 1 and line.startswith("# "):
                out.settings = line[2:]
            elif line and not line.startswith("#"):
                try:
                    key, cell = _parse(line.split())
                except ValueError:
                    raise DataError(f"{path}: line {number} is not METHOD BATCH TAU RATE GAMMA SEED, six recalls in "
                                    "percent, and the global loss or nothing") from None
                out.setdefault(key, cell)
        return out

    def write(self, path: str) -> None:
        lines = [f"# {self.settings}"]
        for key, cell in self.items():
            numbers = (*cell.validation, *cell.test, cell.gcl, *[key.samples] * (key.samples > 0))
            lines.append(f"{key.method} {key.batch} {key.tau!r} {key.rate!r} {key.gamma!r} {key.seed} "
                         + " ".join(repr(x) for x in numbers))
        write_file(Path(path), ("\n".join(lines) + "\n").encode())

    def tuning(self, method: str, batch: int, samples: int, tau: float | None = None) -> list[tuple[Key, Cell]]:
        return [(key, cell) for key, cell in self.items() if key.seed == 0 and key.method == method and
                key.batch == batch and key.samples == samples and tau in (None, key.tau)]

    def tuned(self, method: str, batch: int, samples: int, tau: float | None = None) -> Key | None:
        """The best setting on validation pairs (the first if several are equal); without tuning runs, the only setting."""
        runs = self.tuning(method, batch, samples, tau)
        if not runs:
            given = {replace(key, seed=0) for key in self if key.method == method and key.batch == batch and
                     key.samples == samples and tau in (None, key.tau)}
            return given.pop() if len(given) == 1 else None
        return max(runs, key=lambda run: mean(run[1].validation))[0]


def _parse(words: list[str]) -> tuple[Key, Cell]:
    """Raises ValueError."""
    method, batch, tau, rate, gamma, seed, *numbers = words
    samples = int(numbers.pop()) if len(numbers) == 8 else 0
    key = Key(method, int(batch), float(tau), float(rate), float(gamma), int(seed), samples)
    values = tuple(map(float, numbers))
    if method not in METHODS or key.batch < 2 or key.seed < 0 or samples < 0 or len(values) not in (6, 7):
        raise ValueError
    if not all(0 <= x <= 100 for x in values[:6]):
        raise ValueError
    return key, Cell(values[:3], values[3:6], *(values[6:] or (math.nan,)))


# ---- the experiment ----

_GIVEN = ("samples", "train-images", "method", "batch", "tau", "gamma")


def _numbers(options: Options, name: str, most: float) -> tuple[float, ...]:
    out = []
    for text in getattr(options, name.replace("-", "_")):
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number <= most:
            raise UsageError(f"--{name} '{text}' is not a number in (0, {most:g}]")
        out.append(number)
    return tuple(dict.fromkeys(out))


def _grid(options: Options) -> Grid:
    usual = QUICK if options.quick else FULL
    batches = _numbers(options, "batch", LARGEST)
    for size in batches:
        if size < 2 or LARGEST % size != 0:
            raise UsageError(f"--batch {size:g} is not a divisor of {LARGEST} and at least 2")
    return Grid(tuple(map(int, batches)) or usual.batches, _numbers(options, "tau", 10) or usual.taus,
                _numbers(options, "gamma", 1) or usual.gammas)


def _methods(options: Options) -> list[str]:
    for name in options.method:
        if name not in METHODS:
            raise UsageError(f"--method '{name}' is not one of {', '.join(METHODS)}")
    return [name for name in METHODS if name in options.method or not options.method]


def _sizes(options: Options) -> list[int | None]:
    """Numbers of training images, ascending; None: all."""
    sizes = _numbers(options, "train-images", heads.MAX_ROWS)
    for size in sizes:
        if size < LARGEST or size != int(size):
            raise UsageError(f"--train-images {size:g} is not an integer of at least {LARGEST}")
    return sorted(map(int, sizes)) or [None]


def check(options: Options) -> None:
    _grid(options), _methods(options), _sizes(options)
    training = [row.name for row in heads.OPTIONS] + ["seed", "quick", *_GIVEN]
    for name in training if options.cells is not None else ():
        if name in options.given:
            raise UsageError(f"--cells reads finished runs and trains nothing: --{name} has no effect")
    heads.check(options)


def _describe(options: Options, f: Features) -> str:
    """The settings shared by all runs, as in the first line of their file."""
    values = {name: getattr(options, name.replace("-", "_")) for name in _GIVEN if name in options.given}
    given = "".join(f", --{name} {' '.join(v) if isinstance(v, list) else v}" for name, v in values.items())
    return (f"{'given features' if options.features else 'random pairs'}, {f.count} pairs for training and "
            f"{len(f.test)} each for validation and test, {options.epochs} epochs, heads of "
            f"{f.images.shape[1]}+{f.texts.shape[1]} to {options.dim} with {options.hidden} hidden units, learning rate "
            f"{options.lr:g} sqrt(batch / 128), seed {options.seed}{', quick' if options.quick else ''}, features "
            f"{f.hash()}{given}")


def _take_over(options: Options, settings: str) -> tuple[Cells, str | None]:
    """The runs already in the folder, if any, and the file for new ones."""
    if options.out is None:
        return Cells(settings), None
    path = os.path.join(options.out, "batch.cells")
    if not os.path.exists(path):
        return Cells(settings), path
    cells = Cells.read(path)
    if cells.settings != settings:
        raise UsageError(f"{path} belongs to a study with other options; pass another folder")
    return cells, path


def _setting(options: Options, key: Key) -> Setting:
    method = METHODS[key.method]
    return Setting(options.seed * 1000 + key.seed, method.loss,
                   {"tau": key.tau} | ({"gamma": key.gamma} if key.gamma > 0 else {}), method.zeta_lr)


def _train(options: Options, progress: Progress) -> Cells:
    grid, methods, sizes = _grid(options), _methods(options), _sizes(options)
    drawn = heads.draw_pairs(options.pairs, options.seed) if options.features is None else heads.read_pairs(options.features)
    divided = [heads.divide(replace(drawn), options.held_out, options.seed, size, options.samples == "captions") for size in sizes]
    most = divided[-1].count
    cells, path = _take_over(options, _describe(options, divided[-1]))
    gammas = {name: METHODS[name].gammas or grid.gammas for name in methods}
    progress.total = (options.epochs * most * len(grid.batches) * len(sizes) *
                      sum(len(grid.taus) * len(g) + options.repeats for g in gammas.values()))

    def train(f: Features, keys: list[Key], batch: int) -> None:
        """Those that are not done, and writes down each."""
        missing = [key for key in keys if key not in cells]
        epochs = max(round(options.epochs * most / f.count), 1)
        progress.advance(options.epochs * most * (len(keys) - len(missing)))
        outcomes = heads.train_all(f, [_setting(options, key) for key in missing], batch, epochs, options, progress.advance)
        for key, outcome in zip(missing, outcomes):
            cells[key] = Cell(outcome.validation, outcome.test, outcome.gcl)
            if path is not None:
                cells.write(path)

    for f in divided:
        samples = f.count if len(divided) > 1 else 0
        for batch in grid.batches:
            rate = heads.rate_of(options, batch)
            train(f, [Key(name, batch, tau, rate, gamma, 0, samples) for name in methods for tau in grid.taus
                      for gamma in gammas[name]], batch)
            train(f, [replace(cells.tuned(name, batch, samples), seed=seed) for name in methods
                      for seed in range(1, options.repeats + 1)], batch)
    return cells


def run(options: Options, progress: Progress) -> dict[str, Any]:
    cells = Cells.read(options.cells) if options.cells is not None else _train(options, progress)
    return result_of(cells)


# ---- numbers ----

def result_of(cells: Cells) -> dict[str, Any]:
    """The JSON, and _tuning for the page: test recall of the best setting at each temperature."""
    batches, taus, counts = (sorted({getattr(key, name) for key in cells}) for name in ("batch", "tau", "samples"))
    rows = [row for name in METHODS for samples in counts for batch in batches if (row := _row(cells, name, batch, samples))]
    fit, tuning = [], []
    for name, samples, batch, tau in product(METHODS, counts, batches, taus):
        at = {"method": name, "batch": batch, "samples": samples, "tau": tau}
        values = [cell.gcl for _, cell in cells.tuning(name, batch, samples, tau) if math.isfinite(cell.gcl)]
        fit += [at | {"gcl": min(values)}] if values else []
        best = cells.tuned(name, batch, samples, tau)
        tuning += [at | {"recall": mean(cells[best].test)}] if best in cells else []
    return {"settings": cells.settings, "runs": len(cells), "rows": rows, "fit": fit, "_tuning": tuning}


def _seeds(cells: Cells, tuned: Key) -> Iterator[tuple[Key, Cell]]:
    return ((key, cell) for key, cell in cells.items() if key.seed > 0 and replace(key, seed=0) == tuned)


def _row(cells: Cells, name: str, batch: int, samples: int) -> dict[str, Any] | None:
    """None if there are no runs of its tuned setting."""
    tuned, clip = cells.tuned(name, batch, samples), cells.tuned("clip", batch, samples)
    runs = list(_seeds(cells, tuned)) if tuned else []
    if not tuned or not runs:
        return None
    chosen = [cells[tuned]] if tuned in cells else [cell for _, cell in runs]
    same = [(cell, cells.get(replace(clip, seed=key.seed))) for key, cell in runs] if clip else []
    columns: dict[str, Iterable[float]] = {"recall": [mean(cell.test) for _, cell in runs]}
    columns |= {r: [cell.test[k] for _, cell in runs] for k, r in enumerate(RECALLS)}
    columns["over_clip"] = [mean(cell.test) - mean(other.test) for cell, other in same if other]
    row: dict[str, Any] = {"method": name, "batch": batch, "samples": samples, "seeds": len(runs)}
    for column, values in columns.items():
        row[column], row[f"{column}_se"] = mean_and_error(values)
    return row | {"tau": tuned.tau, "lr": tuned.rate, "gamma": tuned.gamma,
                  "validation": mean_and_error([mean(cell.validation) for cell in chosen])[0]}


def _with_error(row: dict[str, Any], name: str) -> str | None:
    value, error = row[name], row[name + "_se"]
    return None if value is None else f"{value:.2f}" if error is None else f"{value:.2f} ± {error:.2f}"


def table(result: dict[str, Any]) -> Table:
    columns = [Column("loss", "s"), Column("samples", "d"), Column("batch", "d"), Column("seeds", "d"), Column("recall, %", "s"),
               *(Column(f"R@{r[1:]}, %", ".2f") for r in RECALLS), Column("over CLIP", "s"), Column("tau"), Column("lr", ".3g"),
               Column("gamma")]
    return Table(columns, [[METHODS[row["method"]].title, row["samples"] or None, row["batch"], row["seeds"], _with_error(row, "recall"),
                            *(row[r] for r in RECALLS), _with_error(row, "over_clip"), row["tau"], row["lr"],
                            row["gamma"] or None] for row in result["rows"]])


def _lines(title: str, rows: list[dict[str, Any]], x: str, y: str, label: str, unit: str = "", note: str = "") -> dict[str, Any]:
    """One line per method, with a band of one standard error."""
    lines = []
    for name, method in METHODS.items():
        own = [row for row in rows if row["method"] == name and row[y] is not None]
        errors = [row.get(y + "_se") or 0 for row in own]
        more = {"low": [row[y] - e for row, e in zip(own, errors)], "high": [row[y] + e for row, e in zip(own, errors)]}
        lines += [series(method.title, [row[x] for row in own], [row[y] for row in own],
                         **(more if any(errors) else {}))] if own else []
    return figure("lines", title, axis(x, scale="log"), axis(label, unit), lines, note)


def page(result: dict[str, Any], options: Options) -> list[Section]:
    counts = sorted({row["samples"] for row in result["fit"] + result["rows"]})
    most = counts[-1] if counts else 0  # what all but the figure over the samples shows
    rows, fit = ([row for row in result[name] if row["samples"] == most] for name in ("rows", "fit"))
    recall = "mean of R@1, R@5, R@10"
    batches = sorted({row["batch"] for row in fit + rows})
    ends = []
    for name, method in METHODS.items():
        at = {row["batch"]: row["recall"] for row in rows if row["method"] == name}
        if batches and batches[0] in at and batches[-1] in at:
            ends.append(f"{method.title} {at[batches[0]]:.2f} and {at[batches[-1]]:.2f} %")
    measured = (f"Measured here, mean recall at batch {batches[0]} and {batches[-1]}: {'; '.join(ends)}." if ends else
                "No loss has runs at both the smallest and the largest batch.")
    figures = [_lines("Recall on test pairs over the batch", rows, "batch", "recall", recall, "%"),
               _lines("Recall at 1 over the batch", rows, "batch", "r1", "R@1", "%", "Means of both directions."),
               _lines("Recall over CLIP's", rows, "batch", "over_clip", "difference", "percentage points",
                      "In the same batch, with the same seed.")] if rows else []
    for batch in batches if len(counts) > 1 else ():
        figures.append(_lines(f"Recall over CLIP's over the samples, batch {batch}",
                              [row for row in result["rows"] if row["batch"] == batch], "samples", "over_clip", "difference",
                              "percentage points", "As many steps whatever the number of samples."))
    tuning = [row for row in result.get("_tuning", []) if row["samples"] == most]
    for batch in sorted({batches[0], batches[-1]}) if tuning else ():
        figures.append(_lines(f"Recall over the temperature at batch {batch}", [r for r in tuning if r["batch"] == batch],
                              "tau", "recall", recall, "%", "The runs that tune: one seed, on test pairs."))
    for tau in sorted({row["tau"] for row in fit}):
        figures.append(_lines(f"Global loss at tau {tau:g} over the batch", [r for r in fit if r["tau"] == tau],
                              "batch", "gcl", "GCL over training pairs", note="tau is the same for all; one seed."))
    samples = ("Every caption is a sample with averages of its own here." if "--samples captions" in result["settings"] else
               "Where images have several captions, an epoch shows one of them while the averages belong to the image, which "
               "takes away a part of what memory gains (--samples captions).")
    setting = f" The setting of all runs: {result['settings']}." if result["settings"] else ""
    paper = [("CC3M", "MSCOCO", 24.23, 28.54, 29.55), ("CC3M", "Flickr30k", 46.33, 52.20, 53.55),
             ("CC12M", "MSCOCO", 30.30, 33.91, 34.36), ("CC12M", "Flickr30k", 55.21, 59.28, 60.45)]
    return [
        Section("The claim", [
            "The papers (Yuan et al., ICML 2022; Wang et al., ICLR 2025): CLIP's gradient is biased in small batches, "
            "because its contrasts are those of the batch; SogCLR and NUCLR keep moving averages of each sample's contrasts "
            "over the whole dataset, and need no large batch. SogCLR with gamma 1 keeps nothing from one batch to the next: "
            "what it gains on CLIP is not due to memory, but to the positive, which is not among its candidates; what the "
            f"others gain on it is. {samples} With few pairs CLIP can be ahead.",
            "Every loss and batch has its own temperature and gamma, tuned on validation pairs with one seed, and sees as "
            f"many pairs.{setting}",
            f"{measured} Recall is on test pairs in percent, means of both directions over seeds ± standard error (the bands); over CLIP: "
            "of the same batch and seed. A line that seems to be missing is hidden by another one with the same values."],
            figures),
        Section("The papers", [
            "Table 1 of Wang et al. (NUCLR): recall at 1, percent, of ResNet-50 and DistilBERT trained with batch 512. All at "
            "one batch, and none without memory (gamma 1). With zeta fixed NUCLR is worse there (figure 4)."], [
            table_item("Table 1", Table([Column("data", "s"), Column("tested on", "s"), Column("CLIP", ".2f"),
                                         Column("SogCLR", ".2f"), Column("NUCLR", ".2f")], [list(row) for row in paper]))]),
    ]
