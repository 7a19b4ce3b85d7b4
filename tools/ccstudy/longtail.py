"""NUCLR against SogCLR with long-tailed captions: a fraction of the training images has one of a few generic captions, by
Zipf's law, instead of its own, so the number of images per caption is known. Evaluated by recall on specific pairs, by zero-shot
accuracy with the generic captions as prompts, and by the correlation of zeta with the logarithm of the true popularity."""
from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from . import heads
from .heads import Features, Setting, draws, mean_and_error
from .study import Column, Option, Options, Progress, Section, Table, UsageError, axis, figure, np, series, table_item

PURPOSE = "measures the gain of NUCLR over SogCLR if many images share a caption, with known popularity"
TITLE = "NUCLR where captions are long-tailed"
OPTIONS = [
    Option("pairs", "n", int, 5000, "N", "number of random pairs", 1000, 200000),
    Option("generic", "g", list, metavar="SHARE", help="fraction of the training images with a generic caption, 0 to 0.9 [default: 0, 0.3 "
                                                       "and 0.5]"),
    Option("batch", "b", int, 32, "N", "pairs per step, a divisor of 128", 8, heads.LARGEST),
    *[row for row in heads.OPTIONS if row.name not in ("pairs", "hidden")],
]
NOTES = [
    "Synthetic images are points of 64 clusters with Zipf sizes in 12 latent dimensions, mapped to 64 dimensions with noise. A specific "
    "caption is another view of the image's point, a generic one ('a dog') a view of its cluster's centre; its popularity is the number "
    "of training images that have it. Heads are linear. Validation and test pairs have specific captions.",
    "With --features, images are those of the features, each with its first caption; clusters come from k-means, and a generic caption is "
    "the mean of the cluster's training captions.",
    "Methods: sogclr; nuclr with --zeta-lr auto; nuclr with frozen zeta (frozen), without xi, without freezing zeta for the first sixth "
    "of the steps (no freeze), and with initial zeta -tau / 2 (zeta0). The temperature is tuned by recall on validation pairs with one "
    "seed; gamma is 0.8.",
    "--json: rows of generic, method, seeds, recall, zero_shot (percent), over_sogclr and zero_shot_over (differences from sogclr with "
    "the same seed), and correlation (of zeta with log popularity over the training captions; null if zeta is not learned or popularity "
    "is constant), each "
    "with its standard error as NAME_se, and tau. --quick: 1,200 pairs, 4 epochs, 2 seeds.",
]
EXAMPLES = ["ccstudy longtail -o studies", "ccstudy longtail --generic 0.5 --batch 8 --json", "ccstudy longtail --quick"]


@dataclass(frozen=True)
class Method:
    title: str
    loss: str
    zeta_lr: float | None = 0.0
    more: tuple[tuple[str, Any], ...] = ()
    freeze: bool = True
    zeta0: float = 0.0  # in tau


METHODS = {"sogclr": Method("SogCLR", "sogclr"), "nuclr": Method("NUCLR", "nuclr", None),
           "frozen": Method("zeta frozen", "nuclr-frozen"), "noxi": Method("without xi", "nuclr-noxi", None),
           "nofreeze": Method("without the freeze", "nuclr", None, freeze=False), "zeta0": Method("zeta from -tau / 2", "nuclr", None, zeta0=-0.5)}
CLUSTERS, LATENT, WIDTH = 64, 12, 64
TAUS = (0.1, 0.2)
_DRAW, _GENERIC, _CLUSTER = 31, 32, 33  # what is drawn


def shares(options: Options) -> list[float]:
    out = []
    for text in options.generic:
        try:
            share = float(text)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 0.9:
            raise UsageError(f"--generic '{text}' is not a number in [0, 0.9]")
        out.append(share)
    return sorted(set(out)) or ([0.0, 0.5] if options.quick else [0.0, 0.3, 0.5])


def check(options: Options) -> None:
    options.hidden = 0
    if heads.LARGEST % options.batch:
        raise UsageError(f"--batch {options.batch} is not a divisor of {heads.LARGEST}")
    if options.quick and options.features is None and "pairs" not in options.given:
        options.pairs = 1200
        options.given.add("pairs")
    heads.check(options)
    shares(options)


def clusters(x: np.ndarray, seed: int) -> np.ndarray:
    """The cluster of each row, by k-means."""
    centres = x[draws(seed, _CLUSTER).choice(len(x), CLUSTERS, replace=False)].astype(np.float64)
    kind = np.zeros(len(x), int)
    for _ in range(30):
        kind = np.argmin((centres ** 2).sum(1) - 2 * x @ centres.T, axis=1)
        for c in np.unique(kind):
            centres[c] = x[kind == c].mean(0)
    return kind


def _pairs(options: Options) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray]:
    """Images, one caption of each, the generic caption of each cluster (None: the mean of its captions), and each image's
    cluster."""
    if options.features is not None:
        f = heads.read_pairs(options.features)
        return f.images, f.texts[f.first_text[:-1]], None, clusters(f.images, options.seed)
    r = draws(options.seed, _DRAW)
    centres = r.normal(size=(CLUSTERS, LATENT))
    views = r.normal(size=(2, LATENT, WIDTH)) / np.sqrt(LATENT)
    size = 1 / np.arange(1, CLUSTERS + 1)
    kind = r.choice(CLUSTERS, options.pairs, p=size / size.sum())
    z = centres[kind] + 0.7 * r.normal(size=(options.pairs, LATENT))
    images = np.tanh(z @ views[0]) + 0.7 * r.normal(size=(options.pairs, WIDTH))
    texts = np.tanh(z @ views[1]) + 0.7 * r.normal(size=(options.pairs, WIDTH))
    return images, texts, np.tanh(centres @ views[1]), kind


def draw(options: Options, share: float) -> tuple[Features, np.ndarray]:
    """Split features in which a fraction of the training images has a generic caption, and the popularity of every training
    image's caption."""
    images, texts, prompts, kind = _pairs(options)
    count = len(images)
    order = heads.divide(Features(images.astype(np.float32), texts.astype(np.float32), np.arange(count)), options.held_out, options.seed)
    if prompts is None:
        own = [order.train[kind[order.train] == c] for c in range(CLUSTERS)]
        prompts = np.stack([texts[rows if len(rows) > 0 else order.train].mean(0) for rows in own])
    f = Features(images.astype(np.float32), np.concatenate([texts, prompts]).astype(np.float32), np.arange(count))
    generic = order.train[draws(options.seed, _GENERIC).random(len(order.train)) < share]
    f.texts[generic] = f.texts[count + kind[generic]]
    f.owners = np.concatenate([f.owners, np.full(CLUSTERS, count)])  # of no image
    f = heads.divide(f, options.held_out, options.seed)
    f.prompts, f.kinds = f.texts[count:], kind
    f.texts, f.owners = f.texts[:count], f.owners[:count]
    popularity = np.ones(count)
    popularity[generic] = np.bincount(kind[generic], minlength=CLUSTERS)[kind[generic]]
    return f, popularity[f.train]


def _setting(options: Options, name: str, tau: float, seed: int) -> Setting:
    m = METHODS[name]
    more: dict[str, Any] = {"gamma": 0.8, **dict(m.more)}
    if m.zeta0 or m.loss.startswith("nuclr"):
        more["zeta0"] = m.zeta0 * tau
    return Setting(options.seed * 1000 + seed, m.loss, {"tau": tau, **more}, m.zeta_lr, freeze=m.freeze)


def run(options: Options, progress: Progress) -> dict[str, Any]:
    given = shares(options)
    seeds = range(1, options.repeats + 1)
    rows: list[dict[str, Any]] = []
    for share in given:
        f, popularity = draw(options, share)
        progress.total = len(given) * len(METHODS) * (len(TAUS) + len(seeds)) * options.epochs * f.count
        tried = list(product(METHODS, TAUS))
        outcomes = list(heads.train_all(f, [_setting(options, *t, 0) for t in tried], options.batch, options.epochs, options,
                                        progress.advance))
        best = {name: max((o.validation_score, tau) for (n, tau), o in zip(tried, outcomes) if n == name)[1] for name in METHODS}
        found = heads.train_all(f, [_setting(options, name, best[name], seed) for name in METHODS for seed in seeds], options.batch,
                                options.epochs, options, progress.advance)
        own = {name: [next(found) for _ in seeds] for name in METHODS}
        for name, runs in own.items():
            row: dict[str, Any] = {"generic": share, "method": name, "seeds": len(runs)}
            base = own["sogclr"]
            learned = METHODS[name].zeta_lr is None and len(set(popularity)) > 1
            for column, values in (("recall", [o.test_score for o in runs]), ("zero_shot", [o.zero_shot for o in runs]),
                                   ("over_sogclr", [o.test_score - b.test_score for o, b in zip(runs, base)]),
                                   ("zero_shot_over", [o.zero_shot - b.zero_shot for o, b in zip(runs, base)]),
                                   ("correlation", [float(np.corrcoef(o.zeta, np.log(popularity))[0, 1]) for o in runs] if learned else [])):
                row[column], row[f"{column}_se"] = mean_and_error(values)
            rows.append(row | {"tau": best[name]})
    return {"pairs": f.count, "held_out": options.held_out, "batch": options.batch, "epochs": options.epochs, "rows": rows}


def _shown(row: dict[str, Any], name: str) -> str | None:
    return None if row[name] is None else f"{row[name]:.2f} ± {row[name + '_se']:.2f}"


def table(result: dict[str, Any]) -> Table:
    names = (("recall", "recall, %"), ("over_sogclr", "over SogCLR"), ("zero_shot", "zero-shot, %"), ("zero_shot_over", "over SogCLR"),
             ("correlation", "zeta and log q"))
    return Table([Column("generic"), Column("loss", "s"), *(Column(title, "s") for _, title in names), Column("tau")],
                 [[row["generic"], METHODS[row["method"]].title, *(_shown(row, name) for name, _ in names), row["tau"]]
                  for row in result["rows"]])


def page(result: dict[str, Any], options: Options) -> list[Section]:
    rows = {(row["generic"], row["method"]): row for row in result["rows"]}
    given = sorted({row["generic"] for row in result["rows"]})

    def lines(name: str, title: str, unit: str) -> dict[str, Any]:
        return figure("lines", title, axis("share of images with a generic caption"), axis(title, unit), [
            series(METHODS[key].title, given, [rows[g, key][name] for g in given], error=[rows[g, key][name + "_se"] for g in given])
            for key in METHODS if key != "sogclr"], "Bars: standard errors over seeds, of the difference with the same seed.")

    told = []
    for g in given:
        row = rows[g, "nuclr"]
        sides = ["ahead" if row[c] > 2 * row[c + "_se"] else "behind" if row[c] < -2 * row[c + "_se"] else "level"
                 for c in ("over_sogclr", "zero_shot_over")]
        told.append(f"with {g:.0%} generic captions NUCLR is {sides[0]} of SogCLR in recall ({_shown(row, 'over_sogclr')}) and {sides[1]} in "
                    f"zero-shot accuracy ({_shown(row, 'zero_shot_over')})".replace("level of", "level with").replace("behind of", "behind"))
    return [Section("The claim", [
        "Wang et al. (ICLR 2025): captions differ in popularity; SogCLR takes all as equally popular, NUCLR learns it (zeta) and is better for it.",
        f"Measured here, {result['pairs']} pairs, batch {result['batch']}, {result['epochs']} epochs: {'; '.join(told)}. More than two standard "
        "errors count as a difference."], [
        lines("over_sogclr", "Recall over SogCLR's", "percentage points"),
        lines("zero_shot_over", "Zero-shot accuracy over SogCLR's", "percentage points"), table_item("Numbers", table(result))])]
