"""What a trained model loses if training restarts without the optimiser's moments and without u, and how much is recovered by
first computing them with frozen weights (TuneCLIP, 2026; `ccstream-train --init RUN --recover-state EPOCHS`).

    first half of the pairs  --CLIP, large batch-->  trained heads
    second half              --frozen epochs: moments, u-->  --the loss, small batch-->  recall per epoch
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from . import heads
from .heads import LARGEST, Features, Heads, Setting, mean_and_error
from .nets import half_cosine
from .study import Column, Option, Options, Progress, Section, Table, axis, ccstream, figure, np, series, table_item

PURPOSE = "measures what starting from trained weights costs without moments and u, and what recovering them gains: TuneCLIP"
TITLE = "Starting from a trained model"
OPTIONS = [
    *(row for row in heads.OPTIONS if row.name not in ("epochs", "lr")),
    Option("epochs", "e", int, 20, "N", "epochs of training with CLIP, at batch size 128", 1, 10000),
    Option("tune", "", int, 5, "N", "epochs of fine-tuning", 1, 1000),
    Option("recover", "", int, 5, "N", "epochs with frozen weights before fine-tuning", 1, 1000),
    Option("batch", "b", int, 32, "B", "batch size of fine-tuning, a divisor of 128", 2, LARGEST),
    Option("lr", "", float, 0.002, "RATE", "peak learning rate of fine-tuning; cosine schedule without warmup, since a warmup would also "
                                           "help", 1e-6, 1),
    Option("tau", "", float, 0.1, "X", "temperature of all losses", 1e-3, 10),
]
NOTES = [
    "Linear heads on fixed features are trained with CLIP on half of the pairs, then fine-tuned on the other half. Fine-tuning starts "
    "with nothing, with u, with AdamW's moments, or with both, which are computed in epochs with frozen weights (u with the loss's "
    "gamma). Recall is the mean of R@1, R@5 and R@10 of both directions on other pairs.",
    "--json: settings; `trained`; rows of loss, start, repeats, gained (recall after fine-tuning minus that of the trained model), first "
    "(after the first epoch), worst (the lowest of 16 measurements per epoch), each with its standard error as NAME_se, and the curve. "
    "--quick: 1,536 pairs, 6 epochs, 2 epochs of recovery and of fine-tuning, 2 repeats.",
]
EXAMPLES = ["ccstudy coldstart -o studies", "ccstudy coldstart --quick --json"]
LOSSES = {"clip": ("CLIP", "clip", {"temperature": "constant"}), "sogclr": ("SogCLR, gamma 0.3", "sogclr", {"gamma": 0.3}),
          "hgcl": ("HGCL", "hgcl", {"temperature": "constant", "gamma": 0.3, "gamma_schedule": "constant"})}
STARTS = {"nothing": "nothing", "state": "u", "moments": "moments", "both": "moments and u"}
POINTS = 16  # of a curve, in each epoch


@dataclass
class _Run:
    """Heads of all seeds, tuned by one loss in lockstep."""

    f: Features
    heads: Heads
    losses: list[Any]
    settings: list[Setting]
    batch: int
    step: int = 0

    def epoch(self, number: int, rates: Any) -> Any:
        """Runs one epoch; `rates`: the learning rate of each step. Yields after every step."""
        order = np.array([heads._Pairs(self.f, s).epoch(number) for s in self.settings]).transpose(1, 0, 2)  # (3, R, N)
        for place, rate in enumerate(rates):
            ids, images, texts = order[:, :, place * self.batch:(place + 1) * self.batch]
            x, t = self.heads.forward(self.f.images[images], self.f.texts[texts])
            similarity = x @ t.transpose(0, 2, 1)
            gradient = np.stack([loss.step(s, i, step=self.step, epoch=number, lr=rate).gradient
                                 for loss, s, i in zip(self.losses, similarity, ids)])
            self.heads.backward(gradient @ t, gradient.transpose(0, 2, 1) @ x)
            self.heads.optimizer.step(rate)
            self.step += 1
            yield place

    def recall(self) -> Any:
        """(R): recall on the test images."""
        first, part = self.f.first_text, self.f.test
        rows = np.concatenate([np.arange(first[i], first[i + 1]) for i in part])
        owners = np.repeat(np.arange(len(part)), first[part + 1] - first[part])
        return np.array([np.mean(heads.recalls(self.heads.embed(r, 0, self.f.images[part]), self.heads.embed(r, 1, self.f.texts[rows]), owners))
                         for r in range(len(self.settings))])


def check(options: Options) -> None:
    epochs = options.epochs
    heads.check(options)
    if options.quick:
        options.epochs = epochs if "epochs" in options.given else 6
        options.pairs = options.pairs if "pairs" in options.given else 1536
        for name in ("tune", "recover"):
            setattr(options, name, getattr(options, name) if name in options.given else 2)


def _begin(f: Features, options: Options, name: str, batch: int, values: Any) -> _Run:
    _, loss, more = LOSSES[name]
    settings = [Setting(options.seed * 1000 + k + 1, loss, {"tau": options.tau, **more}) for k in range(options.repeats)]
    own = Heads(f, options.hidden, options.dim, [s.seed for s in settings])
    if values is not None:
        own.bind(values.copy())
    return _Run(f, own, [ccstream.Loss(loss, f.count, max_batch=batch, **s.options) for s in settings], settings, batch)


def _tune(f: Features, options: Options, values: Any, name: str, start: str, advance: Any) -> tuple[list[float], Any]:
    """Completed epochs of tuning, and the recall of each run at these points, (1 + points, R)."""
    run = _begin(f, options, name, options.batch, values)
    steps = f.count // options.batch
    for epoch in range(options.recover if start != "nothing" else 0):
        for _ in run.epoch(epoch, np.zeros(steps)):
            advance(options.batch * options.repeats)
    if start == "moments":
        run.losses = _begin(f, options, name, options.batch, values).losses
    if start == "state":
        run.heads.bind(values.copy())
    total, times, curve = options.tune * steps, [0.0], [run.recall()]
    for epoch in range(options.tune):
        rates = [options.lr * half_cosine(epoch * steps + k, total) for k in range(steps)]
        for place in run.epoch(options.recover + epoch, rates):
            advance(options.batch * options.repeats)
            if (place + 1) % max(steps // POINTS, 1) == 0 or place + 1 == steps:
                times.append(epoch + (place + 1) / steps)
                curve.append(run.recall())
    return times, np.array(curve)


def run(options: Options, progress: Progress) -> dict[str, Any]:
    drawn = heads.read_pairs(options.features) if options.features else heads.draw_pairs(options.pairs, options.seed)
    f = heads.divide(drawn, options.held_out, options.seed)
    half = len(f.train) // 2 // LARGEST * LARGEST
    if half == 0:
        raise heads.UsageError(f"{len(f.train)} pairs train; two halves need {2 * LARGEST}")
    before, after = replace(f, train=f.train[:half]), replace(f, train=f.train[half:2 * half])
    recovered = options.recover * (len(STARTS) - 1)
    progress.total = half * options.repeats * (options.epochs + len(LOSSES) * (options.tune * len(STARTS) + recovered))
    trained = _begin(before, options, "clip", LARGEST, None)
    steps = half // LARGEST
    for epoch in range(options.epochs):
        rates = [2 * options.lr * half_cosine(epoch * steps + k, options.epochs * steps) for k in range(steps)]
        for _ in trained.epoch(epoch, rates):
            progress.advance(LARGEST * options.repeats)
    rows, values = [], trained.heads.optimizer.values
    for name in LOSSES:
        for start in STARTS:
            times, recalls = _tune(after, options, values, name, start, progress.advance)
            gained = recalls - recalls[0]
            row: dict[str, Any] = {"loss": name, "start": start, "repeats": options.repeats}
            ends = {"gained": gained[-1], "first": gained[times.index(1.0)], "worst": gained.min(0)}
            for key, found in ends.items():
                row[key], row[f"{key}_se"] = mean_and_error(found)
            rows.append(row | {"epochs": times, "curve": gained.mean(1).tolist()})
    mean, error = mean_and_error(trained.recall())
    return {"pairs": half, "tune": options.tune, "recover": options.recover, "batch": options.batch, "tau": options.tau, "lr": options.lr,
            "trained": mean, "trained_se": error, "rows": rows}


def table(result: dict[str, Any]) -> Table:
    return Table([Column("loss", "s"), Column("starts with", "s"), Column("gained", "s"), Column("after the first epoch", "s"), Column("worst", "s")],
                 [[LOSSES[row["loss"]][0], STARTS[row["start"]],
                   *(f"{row[c]:+.2f} ± {row[c + '_se']:.2f}" for c in ("gained", "first", "worst"))] for row in result["rows"]])


def page(result: dict[str, Any], options: Options) -> list[Section]:
    by = {(row["loss"], row["start"]): row for row in result["rows"]}
    figures = [figure("lines", title, axis("epochs of fine-tuning"), axis("recall over the trained model", "points"),
                      [series(STARTS[start], by[name, start]["epochs"], by[name, start]["curve"]) for start in STARTS])
               for name, (title, _, _) in LOSSES.items()]
    ends = "; ".join(f"{title}: {by[name, 'nothing']['worst']:+.1f} at worst with nothing, {by[name, 'both']['worst']:+.1f} with both"
                     for name, (title, _, _) in LOSSES.items())
    return [Section("Measured", [
        f"Heads trained with CLIP have {result['trained']:.2f} % of recall, the mean of R@1, R@5 and R@10. They are tuned on {result['pairs']} other "
        f"pairs at batch {result['batch']} for {result['tune']} epochs, after {result['recover']} epochs with frozen weights. {ends}."],
        [*figures, table_item("Points over the trained model", table(result))])]
