"""The error of the normaliser that a loss divides by, log u of every anchor, against the exact one over all pairs, for fixed
embeddings that drift as in training: what the batch costs CLIP, and what memory returns.

    exact:  log g_i = log mean_{j != i} exp((S_ij - S_ii) / tau) over all n pairs
    clip    that of the batch alone       sogclr, fastclip    u with a constant gamma, or with FastCLIP's cosine
    scent   gamma of the anchor, by its u
    neuclip no memory of samples but a small network for each side, m prototypes W (of its contrasts' space) (NeuCLIP, 2026):
            alpha_i = log mean_k exp((<x_i, W_k/|W_k|> - S_ii) / tau), stepped along J = mean_i [exp(-alpha_i) g_i + alpha_i - 1]
            by AdaGrad, 10 times a batch; here alone, as ccstream-train has no such loss (docs/coverage.md)
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .heads import draws, mean_and_error
from .study import Column, Option, Options, Progress, Section, Table, axis, ccstream, figure, np, series, table_item

PURPOSE = "measures the error of log u, relative to the exact normaliser, over the batch size: SogCLR, FastCLIP, SCENT, NeuCLIP and CLIP"
TITLE = "Error of the normaliser"
OPTIONS = [
    Option("pairs", "n", int, 2048, "N", "number of random pairs", 256, 16384),
    Option("epochs", "e", int, 10, "N", "epochs; the error is measured in the last one", 2, 1000),
    Option("tau", "", float, 0.07, "X", "temperature", 1e-3, 10),
    Option("drift", "", float, 0.3, "X", "distance that an embedding moves during the run, relative to its length; 0: it stays "
                                         "fixed", 0, 10),
    Option("repeats", "r", int, 5, "N", "random draws of pairs and batches", 2, 100),
]
NOTES = [
    "Synthetic images are random unit vectors of dimension 32 around 64 centres, texts are their images with noise, and each pair drifts "
    "in its own fixed direction. Each loss trains on batches of 8 to 128. For each anchor of the last epoch, log u right after its step "
    "is compared with the exact value at that moment; the result is the root mean square and the mean (bias) of the difference. For "
    "NeuCLIP, alpha replaces log u: two networks of 256 prototypes, initialised with the latest embeddings at the start and every 500 "
    "steps, with 10 steps of AdaGrad at 0.05 per batch (the paper has 4,096 prototypes and does not state the rate).",
    "--json: rows of method, batch, repeats, rms, bias, each with its standard error as NAME_se, in nats. --quick: 512 pairs, 4 "
    "epochs, 2 repeats.",
]
EXAMPLES = ["ccstudy normalizer -o studies", "ccstudy normalizer --drift 0 --quick --json"]
METHODS = {"clip": ("CLIP: the batch alone", "sogclr", {"gamma": 1.0}), "sogclr-8": ("SogCLR, gamma 0.8", "sogclr", {"gamma": 0.8}),
           "sogclr-3": ("SogCLR, gamma 0.3", "sogclr", {"gamma": 0.3}),
           "fastclip": ("FastCLIP, cosine to 0.2", "fastclip-v1", {"gamma": 0.2}), "scent": ("SCENT", "scent", {"temperature": "constant"}),
           "neuclip": ("NeuCLIP, 256 prototypes", "", {})}
BATCHES = (8, 32, 128)
_DRAW, _BATCHES = 21, 22  # what is drawn
PROTOTYPES, NETWORK_STEPS, RESTART, RATE = 256, 10, 500, 0.05


def check(options: Options) -> None:
    for name, small in (("pairs", 512), ("epochs", 4), ("repeats", 2)):
        if options.quick and name not in options.given:
            setattr(options, name, small)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def exact(s: np.ndarray, tau: float) -> np.ndarray:
    """(2, n): log g of images, then of texts, of all similarities s (n, n)."""
    out = []
    for m in (s, s.T):
        e = (m - np.diag(s)[:, None]) / tau
        np.fill_diagonal(e, -np.inf)
        top = e.max(1, keepdims=True)
        out.append(top[:, 0] + np.log(np.exp(e - top).sum(1)) - np.log(len(s) - 1))
    return np.array(out)


class Network:
    """NeuCLIP's network of one side. A prototype initialised with the anchor's own candidate is ignored for that anchor:
    otherwise alpha would be at least log 1/m after a restart, whatever the sum is."""

    def __init__(self, width: int):
        self.recent, self.ids = np.zeros((0, width)), np.zeros(0, int)
        self.weight, self.owner, self.squares = self.recent, self.ids, self.recent

    def _shares(self, x: np.ndarray, own: np.ndarray, ids: np.ndarray, tau: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """alpha (B), shares pi (B, m) and cosines (B, m)."""
        c = x @ _unit(self.weight).T
        e = np.where(self.owner == ids[:, None], -np.inf, (c - own[:, None]) / tau)
        top = e.max(1)
        counts = np.isfinite(e).sum(1)
        alpha = top + np.log(np.exp(e - top[:, None]).sum(1) / counts)
        return alpha, np.exp(e - alpha[:, None]) / counts[:, None], c

    def gradient(self, x: np.ndarray, own: np.ndarray, ids: np.ndarray, log_g: np.ndarray, tau: float) -> np.ndarray:
        """dJ/dW (m, d)."""
        alpha, pi, c = self._shares(x, own, ids, tau)
        f = (1.0 - np.exp(log_g - alpha))[:, None] * pi / (len(x) * tau)
        length = np.linalg.norm(self.weight, axis=1, keepdims=True)
        return (f.T @ x - (f * c).sum(0)[:, None] * self.weight / length) / length

    def step(self, x: np.ndarray, contrasts: np.ndarray, own: np.ndarray, ids: np.ndarray, log_g: np.ndarray, tau: float,
             step: int) -> np.ndarray:
        """alpha (B) of a batch, after its steps."""
        self.recent = np.concatenate([self.recent, contrasts])[-PROTOTYPES:]
        self.ids = np.concatenate([self.ids, ids])[-PROTOTYPES:]
        if len(self.weight) < PROTOTYPES or step % RESTART == 0:
            self.weight, self.owner, self.squares = self.recent.copy(), self.ids, np.zeros_like(self.recent)
        for _ in range(NETWORK_STEPS):
            q = self.gradient(x, own, ids, log_g, tau)
            self.squares = self.squares + q * q
            self.weight = _unit(self.weight - RATE * q / (np.sqrt(self.squares) + 1e-10))
        return self._shares(x, own, ids, tau)[0]


def _steps(name: str, batch: int, options: Options, width: int) -> Callable[..., np.ndarray]:
    """A function of a batch's embeddings x and t (B, d), ids, step and epoch that returns log u (2, B) after this step."""
    if name == "neuclip":
        networks = [Network(width), Network(width)]

        def by_network(x: np.ndarray, t: np.ndarray, ids: np.ndarray, step: int, epoch: int) -> np.ndarray:
            s = x @ t.T
            log_g = exact(s, options.tau)
            return np.array([network.step(a, c, np.diag(s), ids, g, options.tau, step)
                             for network, a, c, g in zip(networks, (x, t), (t, x), log_g)])

        return by_network
    _, loss_name, more = METHODS[name]
    cosine = {"gamma_epochs": max(options.epochs // 2, 1)} if loss_name.startswith("fastclip") else {}
    loss = ccstream.Loss(loss_name, options.pairs, max_batch=batch, tau=options.tau, **more, **cosine)

    def by_loss(x: np.ndarray, t: np.ndarray, ids: np.ndarray, step: int, epoch: int) -> np.ndarray:
        loss.step((x @ t.T).astype(np.float32), ids, step=step, epoch=epoch, lr=0.0)
        return np.array([loss[f"{side}.log_u"][ids] for side in ("image", "text")])

    return by_loss


def error(name: str, batch: int, options: Options, seed: int, advance: Any) -> tuple[float, float]:
    """Root mean square and mean of log u minus the exact value, over the anchors of the last epoch."""
    r = draws(seed, _DRAW)
    n, width = options.pairs, 32
    image = r.normal(size=(64, width))[r.integers(64, size=n)] + 0.7 * r.normal(size=(n, width))
    text = image + 0.8 * r.normal(size=(n, width))
    moves = _unit(r.normal(size=(2 * n, width))).reshape(2, n, width) * np.linalg.norm(image, axis=1)[:, None]
    take = _steps(name, batch, options, width)
    steps, differences = n // batch, []
    for epoch in range(options.epochs):
        order = draws(seed, _BATCHES, epoch).permutation(n)
        for step in range(steps):
            ids = order[step * batch:(step + 1) * batch]
            at = options.drift * (epoch * steps + step) / (options.epochs * steps)
            x, t = _unit(image[ids] + at * moves[0, ids]), _unit(text[ids] + at * moves[1, ids])
            kept = take(x, t, ids, epoch * steps + step, epoch)
            if epoch == options.epochs - 1 and step % max(steps // 16, 1) == 0:
                s = _unit(image + at * moves[0]) @ _unit(text + at * moves[1]).T
                differences.append(kept - exact(s, options.tau)[:, ids])
        advance(n)
    d = np.concatenate([x.ravel() for x in differences])
    return float(np.sqrt((d ** 2).mean())), float(d.mean())


def run(options: Options, progress: Progress) -> dict[str, Any]:
    progress.total = options.pairs * options.epochs * options.repeats * len(METHODS) * len(BATCHES)
    rows = []
    for name in METHODS:
        for batch in BATCHES:
            found = [error(name, batch, options, options.seed * 1000 + k, progress.advance) for k in range(options.repeats)]
            row: dict[str, Any] = {"method": name, "batch": batch, "repeats": len(found)}
            for column, values in zip(("rms", "bias"), zip(*found)):
                row[column], row[f"{column}_se"] = mean_and_error(values)
            rows.append(row)
    return {"pairs": options.pairs, "epochs": options.epochs, "tau": options.tau, "drift": options.drift, "rows": rows}


def table(result: dict[str, Any]) -> Table:
    return Table([Column("normaliser", "s"), Column("batch", "d"), Column("rms error of log u", "s"), Column("bias", "s")],
                 [[METHODS[row["method"]][0], row["batch"], *(f"{row[c]:.3f} ± {row[c + '_se']:.3f}" for c in ("rms", "bias"))]
                  for row in result["rows"]])


def page(result: dict[str, Any], options: Options) -> list[Section]:
    def lines(name: str, title: str) -> dict[str, Any]:
        own = {key: [row for row in result["rows"] if row["method"] == key] for key in METHODS}
        return figure("lines", title, axis("batch", scale="log"), axis(name, "nats"),
                      [series(METHODS[key][0], [r["batch"] for r in rows], [r[name] for r in rows], error=[r[name + "_se"] for r in rows])
                       for key, rows in own.items()], "Bars: standard errors over draws.")

    at = {(row["method"], row["batch"]): row["rms"] for row in result["rows"]}
    ends = "; ".join(f"{METHODS[key][0]} {at[key, BATCHES[0]]:.2f} and {at[key, BATCHES[-1]]:.2f}" for key in METHODS)
    return [Section("Measured", [
        "A global loss divides every anchor's gradient by u, an estimate of its sum over all pairs. CLIP's is that of the batch, which is "
        "noisy and, in its logarithm, too low: most sums are made by few hard contrasts that a small batch does not hold.",
        f"Measured here over {result['pairs']} random pairs at tau {result['tau']:g}, {result['epochs']} epochs, drift {result['drift']:g}: the root "
        f"mean square error of log u at batch {BATCHES[0]} and {BATCHES[-1]}: {ends}."], [
        lines("rms", "Error of log u over the batch"), lines("bias", "Bias of log u over the batch"), table_item("Numbers", table(result))])]
