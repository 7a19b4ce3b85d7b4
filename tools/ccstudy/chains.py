"""Whether the chains of EMC2 (Yau et al., ICML 2024), and the negative cache it is compared with, sample the negatives of the
global loss. Features are fixed, so the gradient that a step must have on average is known:

  E[G_ij] = share (p_ij - [i = j]),  p_ij = exp(S_ij / tau) / sum over k != i of exp(S_ik / tau)

Batches come from epochs, each a permutation of all samples, as in the loader. With pairs, a text feature is near its image's
feature. With two views, both views and the un-augmented image share one feature: only then are the negatives of a re-encoded
chain known exactly. The cached features are never out of date here, so the cache's only error is sampling error.
"""

from __future__ import annotations

from typing import Any

from .study import (Column, Item, Option, Options, Progress, Section, Table, UsageError, axis, ccstream, figure, np,
                    series, table_item)

PURPOSE = "compares the negatives sampled by EMC2's Markov chains with the global softmax"
TITLE = "EMC2's chains: negatives from the whole dataset"
OPTIONS = [
    Option("samples", "n", int, 64, "N", "number of samples, a multiple of --batch", least=4, most=1024),
    Option("batch", "b", int, 8, "N", "samples per step", least=2, most=1024),
    Option("tau", kind=float, default=0.07, metavar="T", help="temperature", least=0.01, most=10),
    Option("steps", kind=int, default=20000, metavar="N", help="steps of the longest run; the trace also has shorter runs",
           least=100, most=10000000),
]
NOTES = [
    "Features are fixed, so the gradient of the global loss is known exactly. The loss emc2 runs for --steps steps, and the mean of its "
    "gradients is compared with the exact one: the mass of the negatives (exact: 1 per side), the distance relative to the exact "
    "gradient, and chi-square of the chains' states against the softmax (9 degrees of freedom: 27.9 is exceeded once in 1,000). The paper "
    "claims that the chains are unbiased at any batch size. The negative cache is measured too: one negative per anchor, sampled from the "
    "softmax over features of all samples, which are never out of date here.",
    "--json: rows of views (1: pairs, 2: two views), side (the anchors: image, text; with two views first, second), n, batch, tau, steps, "
    "mass, error, chi_square, for --emc2-off-batch encode, Algorithm 1. skip: the same for --emc2-off-batch skip; negcache: for loss "
    "negcache. mixing: rows of beta, batch, proposals until an anchor's chain is within 0.25 of its softmax, steps for them, and bound, "
    "the steps of lemma 3.2. trace: rows of all three, with method, over the steps. --quick: 2,000 steps.",
]
EXAMPLES = ["ccstudy chains -o studies", "ccstudy chains --quick --json"]

_BETAS, _BATCHES, _WITHIN = (1.0, 2.0, 4.0, 8.0, 16.0), (4, 8, 16), 0.25
_METHODS, _SIDES = ("encode", "skip", "negcache"), (("image", "text"), ("first", "second"))
_DIM, _LENGTHS = 16, 5
_BINS, _THIN_VISITS = 10, 40  # visits of an anchor that follow each other are not independent
_OVERWHELMING = 1e6  # the similarity that holds the other side's chains
_NONE = 2**64 - 1


def check(options: Options) -> None:
    if options.samples % options.batch != 0:
        raise UsageError(f"--samples {options.samples} is not a multiple of --batch {options.batch}")


class Run:
    """One method, on pairs with the anchors of one side (0: images), or on two views. On pairs, emc2's chains of the other side
    are held at an off-batch sample of overwhelming similarity, so that the gradient is that of this side only; with negcache
    the other side's anchors have no negative."""

    def __init__(self, method: str, views: bool, side: int, options: Options):
        self.method, self.views, self.side, self.options = method, views, side, options
        n, rng = options.samples, np.random.default_rng((options.seed, options.samples))
        images = _unit(rng.standard_normal((n, _DIM)))
        texts = _unit(2.0 * images + rng.standard_normal((n, _DIM)) / _DIM**0.5)
        s = images @ (images if views else texts).T
        self.s = s.T if self.columns else s  # rows: this side's anchors
        p = np.exp((self.s - 1.0) / options.tau) * (1.0 - np.eye(n))
        self.p = p / p.sum(1, keepdims=True)
        self.rng, self.places = np.random.default_rng((options.seed, n, 1)), np.random.default_rng((options.seed, n, 2))
        self.sides = 2 if views else 1
        self.mean = np.zeros((self.sides, n, n))  # sums of weights, anchor by anchor
        self.visits = np.zeros(n, np.int64)
        self.bins = np.zeros((self.sides, _BINS))
        more = {"emc2_carry": method} if method != "negcache" else {}
        self.loss = ccstream.Loss("negcache" if method == "negcache" else "emc2", n, id_space=n + 1, views=views,
                                  max_batch=options.batch, tau=options.tau, **more)
        if method != "negcache" and not views:
            other = _SIDES[0][1 - side]
            self.loss.write(f"{other}.chain_log_score", np.full(n, _OVERWHELMING))
            self.loss.write(f"{other}.chain_id", np.full(n, n))

    @property
    def columns(self) -> bool:
        """Whether the anchors are the columns of the loss's matrix."""
        return not self.views and self.side == 1

    def _orders(self, first: int, count: int) -> np.ndarray:
        """ids (count, B) of the steps from `first` on."""
        n, b = self.options.samples, self.options.batch
        per_epoch = n // b
        epochs = range(first // per_epoch, (first + count - 1) // per_epoch + 1)
        orders = [np.random.default_rng((self.options.seed, n, 3, epoch)).permutation(n) for epoch in epochs]
        return np.concatenate(orders).reshape(-1, b)[first % per_epoch:][:count]

    def _draw(self, anchors: np.ndarray) -> np.ndarray:
        """Samples one negative per anchor from the softmax over the features of all samples."""
        u = self.rng.random(anchors.shape)[..., None]
        return np.minimum((self.p.cumsum(1)[anchors] < u).sum(-1), self.options.samples - 1).astype(np.uint64)

    def advance(self, first: int, count: int) -> None:
        """Runs steps `first` to `first + count - 1`. Whatever can be computed for all of them at once, is."""
        n, b = self.options.samples, self.options.batch
        ids = self._orders(first, count)
        rows = np.tile(ids, 2) if self.views else ids
        blocks = self.s[rows[:, :, None], rows[:, None, :]].astype(np.float32)
        table = np.full((n, n + 1), _OVERWHELMING, np.float32)  # with sample n, and for anchors without one
        table[:, :n] = self.s
        gradients = np.empty_like(blocks)
        carried = np.full((count, 2, b), _NONE, np.uint64)
        far = np.zeros((count, 2, b), np.float32)
        visits = (first + np.arange(count)) // (n // b) + 1
        thin = visits % _THIN_VISITS == 0
        states = np.full((count, b), n, np.uint64)
        for side in range(2 if self.method == "negcache" else 0):
            if self.views or side == self.side:
                carried[:, side] = self._draw(ids)
        for k in range(count):
            if self.method == "encode":
                carried[k] = self.loss.carried(ids[k])
            has = self.method != "skip"
            similarity = table[ids[k], np.minimum(carried[k], n).astype(np.int64)] if has else None
            step = self.loss.step(blocks[k].T if self.columns else blocks[k], ids[k], step=first + k,
                                  carried_ids=carried[k] if has else None, carried_similarity=similarity)
            gradients[k] = step.gradient.T if self.columns else step.gradient
            if step.carried_gradient is not None:
                far[k] = step.carried_gradient
            if thin[k] and self.method != "negcache":
                states[k] = self.loss["text.chain_id" if self.columns else "image.chain_id"][ids[k]]
        for side in range(self.sides):
            row = side if self.views else self.side
            self._add(side, ids, gradients, carried[:, row], far[:, row])
            self._count(side, ids[thin], (carried[:, row] if self.method == "negcache" else states)[thin])

    def _add(self, side: int, ids: np.ndarray, gradients: np.ndarray, carried: np.ndarray, far: np.ndarray) -> None:
        """Adds the weights of steps, that is gradients over (0.5 / (B tau)), per anchor."""
        n, b = self.options.samples, self.options.batch
        unit = 2.0 * b * self.options.tau
        of_anchors = gradients[:, side * b:(side + 1) * b]
        if self.views:
            of_anchors = of_anchors[:, :, :b] + of_anchors[:, :, b:]
        has = carried < n
        places = [(ids[:, :, None] * n + ids[:, None, :]).ravel(), ids[has] * n + carried[has].astype(np.int64)]
        weights = [unit * of_anchors.ravel().astype(float), unit * far[has].astype(float)]
        if self.method == "encode" and not self.views:  # the other side's own pair, whose negatives are outside
            places.append(ids.ravel() * (n + 1))
            weights.append(np.ones(ids.size))
        self.mean[side] += np.bincount(np.concatenate(places), np.concatenate(weights), n * n).reshape(n, n)
        if side == 0:
            self.visits += np.bincount(ids.ravel(), minlength=n)

    def _count(self, side: int, anchors: np.ndarray, states: np.ndarray) -> None:
        """Counts the quantile of each state in its anchor's distribution over candidates, in id order. It is uniform in [0, 1)
        if the state is sampled from that distribution."""
        has = states < self.options.samples
        where = anchors[has], states[has].astype(np.int64)
        at = self.p.cumsum(1)[where] - self.p[where] * self.places.random(len(where[0]))
        self.bins[side] += np.bincount(np.clip((at * _BINS).astype(int), 0, _BINS - 1), minlength=_BINS)

    def result(self, side: int) -> dict[str, float]:
        """mass: mean sum of an anchor's negative weights; exact: 1. error: |mean G - E[G]| / |E[G]|, Frobenius norm.
        chi_square: of the chains' states, or of the sampled negatives, against p, with 9 degrees of freedom."""
        got = self.mean[side] / np.maximum(self.visits, 1)[:, None]
        want = self.p - np.eye(len(got))
        expected = self.bins[side].sum() / _BINS
        chi = float(((self.bins[side] - expected) ** 2).sum() / expected) if expected > 0 else 0.0
        return {"mass": float((got.sum() - np.trace(got)) / len(got)),
                "error": float(np.linalg.norm(got - want) / np.linalg.norm(want)), "chi_square": chi}


# ---- lemma 3.2


def kernel(scores: np.ndarray) -> np.ndarray:
    """The transition matrix of one proposal, uniform over all candidates (n), with these scores beta S."""
    n = len(scores)
    move = np.minimum(1.0, np.exp(scores[None, :] - scores[:, None])) / n
    return move + np.diag(1.0 - move.sum(1))


def proposals(scores: np.ndarray, within: float) -> int:
    """The smallest number of proposals after which a chain, from any start, is within this total variation of the softmax."""
    p = np.exp(scores - scores.max())
    p /= p.sum()

    def distance(k: np.ndarray) -> float:
        return float(np.abs(k - p).sum(1).max()) / 2

    powers = [kernel(scores)]  # of 1, 2, 4, ... proposals
    while distance(powers[-1]) > within:
        powers.append(powers[-1] @ powers[-1])
    count, at = 0, np.eye(len(p))
    for k in reversed(range(len(powers))):
        further = at @ powers[k]
        if distance(further) > within:
            at, count = further, count + (1 << k)
    return count + 1


def _mixing(options: Options) -> list[dict[str, Any]]:
    """With images as anchors, over beta = 1 / tau: the mean over anchors of the proposals until their chains mix, and per B the
    steps that this takes and those of eq. (13) with c = 1: of the chains of all n anchors, B get R = B - 1 proposals per
    step."""
    n, rng = options.samples, np.random.default_rng((options.seed, options.samples))
    images = _unit(rng.standard_normal((n, _DIM)))
    s = images @ _unit(2.0 * images + rng.standard_normal((n, _DIM)) / _DIM**0.5).T
    out = []
    for beta in _BETAS:
        needed = float(np.mean([proposals(beta * np.delete(s[a], a), _WITHIN) for a in range(min(n, 32))]))
        for b in _BATCHES:
            rate = b * (b - 1) / (2 * n * (n - 1) * np.exp(2 * beta))
            out.append({"beta": beta, "batch": b, "proposals": needed, "steps": needed / (b - 1) * n / b,
                        "bound": float(np.log(_WITHIN) / np.log1p(-min(rate, 0.5)))})
    return out


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def measure(run: Run, lengths: list[int], progress: Progress) -> list[list[dict[str, float]]]:
    """The results of each side after these numbers of steps. A shorter run is a prefix of a longer one."""
    n, b = run.options.samples, run.options.batch
    chunk = min(1000, max(1, 4_000_000 // max(4 * b * b, n * b)))
    out: list[list[dict[str, float]]] = [[] for _ in range(run.sides)]
    done = 0
    for length in lengths:
        while done < length:
            count = min(chunk, length - done)
            run.advance(done, count)
            done += count
            progress.advance(count)
        for side in range(run.sides):
            out[side].append(run.result(side))
    return out


def run(options: Options, progress: Progress) -> dict[str, Any]:
    steps = 2000 if options.quick and "steps" not in options.given else options.steps
    lengths = [steps >> k for k in reversed(range(_LENGTHS))]
    progress.total = 3 * len(_METHODS) * steps
    trace: list[dict[str, Any]] = []
    for method in _METHODS:
        for views in (False, True):
            results = [r for side in range(1 if views else 2)
                       for r in measure(Run(method, views, side, options), lengths, progress)]
            trace += [{"method": method, "views": views + 1, "side": _SIDES[views][side], "n": options.samples,
                       "batch": options.batch, "tau": options.tau, "steps": length} | of_length
                      for side, of_side in enumerate(results) for length, of_length in zip(lengths, of_side)]
    last = {method: [{k: v for k, v in row.items() if k != "method"} for row in trace
                     if row["method"] == method and row["steps"] == steps] for method in _METHODS}
    return {"rows": last["encode"], "skip": last["skip"], "negcache": last["negcache"], "trace": trace, "mixing": _mixing(options)}


def table(result: dict[str, Any]) -> Table:
    steps = max(row["steps"] for row in result["trace"])
    columns = [Column("method", "s"), Column("views"), Column("side", "s"), Column("steps"), Column("mass", ".4f"),
               Column("error", ".4f"), Column("chi-square", ".1f")]
    keys = ("method", "views", "side", "steps", "mass", "error", "chi_square")
    return Table(columns, [[row[key] for key in keys] for row in result["trace"] if row["steps"] == steps])


# ---- the page


def _errors(result: dict[str, Any], views: int, title: str) -> Item:
    lines = []
    for method in _METHODS:
        for side in _SIDES[views - 1]:
            rows = [r for r in result["trace"] if (r["method"], r["views"], r["side"]) == (method, views, side)]
            anchors = f"{side}s" if views == 1 else f"{side} views"
            lines.append(series(f"{method}, {anchors} as anchors", [r["steps"] for r in rows],
                                [r["error"] for r in rows]))
    return figure("lines", f"{title}: distance of the mean gradient from that of the global loss, relative to it",
                  axis("steps", scale="log"), axis("relative error", scale="log"), lines)


def _mixing_section(result: dict[str, Any], options: Options) -> Section:
    rows = result["mixing"]
    lines = []
    for b in _BATCHES:
        own = [r for r in rows if r["batch"] == b]
        betas = [r["beta"] for r in own]
        lines += [series(f"B = {b}", betas, [r["steps"] for r in own]), series(f"B = {b}, bound", betas, [r["bound"] for r in own], dashed=True)]
    at = {(r["beta"], r["batch"]): r for r in rows}
    low, high = at[_BETAS[1], 8], at[_BETAS[-1], 8]
    growth = np.log(high["steps"] / low["steps"]) / (high["beta"] - low["beta"])
    found = Table([Column("beta"), Column("B"), Column("proposals", ".1f"), Column("steps", ".1f"), Column("bound of the steps", ".3g")],
                  [[r["beta"], r["batch"], r["proposals"], r["steps"], r["bound"]] for r in rows])
    return Section("Mixing time", [
        "Lemma 3.2 (Yau et al., ICML 2024): the chains come within a distance of the softmax that falls as (1 - BR / (2 m m_neg "
        "exp(2 c^2 beta)))^steps, so BR times faster with larger batches, and at worst exp(2 beta) times slower at a larger beta.",
        f"Computed here, not drawn, for the chain of each anchor over {options.samples - 1} contrasts: the steps until it is within {_WITHIN:g} of its softmax "
        f"in total variation, from the worst start. At B = 8 they grow as exp({growth:.2f} beta) from beta {_BETAS[1]:g} to {_BETAS[-1]:g}, not exp(2 "
        f"beta): {low['steps']:.0f} and {high['steps']:.0f}, where the bound has {low['bound']:.3g} and {high['bound']:.3g}. By the number of proposals alone, a "
        f"step of batch 16 does the work of {at[_BETAS[0], 4]['steps'] / at[_BETAS[0], 16]['steps']:.0f} steps of batch 4, as BR has it."],
        [figure("lines", "Steps until chains have mixed", axis("beta = 1 / tau"), axis("steps", scale="log"), lines),
         table_item("Proposals for one chain, and steps", found)])


def page(result: dict[str, Any], options: Options) -> list[Section]:
    encode, skip, cache = (result[key][0] for key in ("rows", "skip", "negcache"))
    return [
        Section("The claim", [
            "The paper's claim (Yau et al., ICML 2024): a Markov chain for every sample draws its negatives from the "
            "softmax over all of the dataset, so that the gradient is that of the global loss even in small batches.",
            f"Measured here: {options.samples} samples, batches of {options.batch}, tau = {options.tau:g}. With chains "
            f"that encode a sample outside the batch again (Algorithm 1) the negatives of an image weigh "
            f"{encode['mass']:.3f} and the mean gradient is {encode['error']:.3f} of the exact one off, which falls with "
            f"the steps. With chains that skip it they weigh {skip['mass']:.3f}, and {skip['error']:.3f} remains. The "
            f"negative cache draws each negative independently, which leaves {cache['error']:.3f}: here its features are "
            "never out of date, and it keeps one for every sample."],
            [_errors(result, 1, "Pairs"), _errors(result, 2, "Two views")]),
        _mixing_section(result, options),
        Section("Numbers", [], [table_item(f"After {encode['steps']} steps", table(result))]),
    ]
