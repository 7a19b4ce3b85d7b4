"""The model of ccstudy gradient: images with two fixed views, encoders, the exact global contrastive loss, and the losses
of ccstream as estimators of its gradient (Yau et al., EMC2, ICML 2024, eqs. 1 and 4).

Row kind n + i is image i of n as its first view, its second view, or un-augmented (kinds 0, 1, 2). R runs of one method
train in lockstep on the same batches, each with its own learning rate, parameters and per-sample state.
"""
from __future__ import annotations

import math
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .study import UsageError, ccstream, load, np
from .towers import adam, product

COMPONENTS, LINEAR_DIM, RESNET_DIM, RESNET_ROWS = 64, 32, 512, 32
PLAIN = 2  # the kind of un-augmented images
MEAN = (0.48145466, 0.4578275, 0.40821073)  # CLIP's
STD = (0.26862954, 0.26130258, 0.27577711)


# ---- images

def draw_images(count: int, side: int, seed: int) -> np.ndarray:
    """Random images, uint8 (n, side, side, 3), so that no data is needed: six soft blobs of random colours on a background."""
    r = np.random.default_rng([seed, 1])
    blobs = 6
    colour = 255 * r.random((count, blobs + 1, 3))
    radius = (0.06 + 0.2 * r.random((count, blobs))) * side
    x, y = side * r.random((2, count, blobs))
    at = np.arange(side)
    out = np.broadcast_to(colour[:, None, None, blobs], (count, side, side, 3)).copy()
    for k in range(blobs):
        distance = (at - x[:, k, None])[:, None, :] ** 2 + (at - y[:, k, None])[:, :, None] ** 2
        cover = np.exp(-distance / (2 * radius[:, k, None, None] ** 2))[..., None]
        out += cover * (colour[:, k, None, None] - out)
    return (out + 0.5).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    """Encodes uint8 (height, width, 3) as a PNG file."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows.tobytes())) + chunk(b"IEND", b""))


def read_views(directory: str, count: int, side: int, seed: int) -> np.ndarray:
    """uint8 (3n, S, S, 3) of the first images of a dataset: SimCLR's augmentation twice, and the centre crop."""
    parts: list[list[np.ndarray]] = [[], [], []]
    for augment, views, kinds in (("simclr", 2, {"image": 0, "image2": 1}), ("eval-crop", 1, {"image": PLAIN})):
        loader = ccstream.DataLoader(directory, batch_size=1, image_size=side, augment=augment, shuffle=False,
                                     seed=seed, views=views, captions=False, num_threads=1, rank=0, world_size=1,
                                     timeout=None)
        if len(loader) < count:
            raise UsageError(f"{directory} has {len(loader)} images, fewer than --samples {count}")
        for _, batch in zip(range(count), loader):
            for name, kind in kinds.items():
                parts[kind].append(np.array(batch[name]))
    return np.concatenate([image for part in parts for image in part])


def draw_views(count: int, side: int, seed: int) -> np.ndarray:
    """The same for random images of twice the size, through a temporary dataset."""
    with tempfile.TemporaryDirectory() as folder:
        with ccstream.Writer(f"{folder}/data") as writer:
            for image in draw_images(count, 2 * side, seed):
                writer.add(png(image))
        return read_views(f"{folder}/data", count, side, seed)


# ---- encoders: forward(rows) -> x (R, m, E) of length 1; gradient(dx) -> (R, P) of the last forward

def whiten(rows: np.ndarray, components: int) -> np.ndarray:
    """The first principal components of the rows, each with mean 0 and variance 1 (0 if the rows do not vary)."""
    centred = rows - rows.mean(0)
    variance, vectors = np.linalg.eigh(centred.T @ centred / len(rows))
    variance, vectors = variance[::-1][:components], vectors[:, ::-1][:, :components]
    return centred @ (vectors * np.where(variance > 1e-18, 1 / np.sqrt(np.maximum(variance, 1e-18)), 0))


def normalise(pixels: np.ndarray) -> np.ndarray:
    return ((pixels / 255 - MEAN) / STD).astype(np.float32)


class Linear:
    """Pixels -> their first 64 principal components, variance 1 -> W c -> / norm: 32 numbers."""

    dim = LINEAR_DIM

    def __init__(self, pixels: np.ndarray, runs: int, seed: int):
        flat = normalise(pixels).reshape(len(pixels), -1).astype(np.float64)
        self._components = whiten(flat, COMPONENTS).astype(np.float32)
        first = np.random.default_rng([seed, 2]).normal(size=(LINEAR_DIM, COMPONENTS)) / np.sqrt(COMPONENTS)
        self.values = np.repeat(first.reshape(1, -1).astype(np.float32), runs, 0)  # (R, P)

    def forward(self, rows: np.ndarray) -> np.ndarray:
        self._in = self._components[rows]
        z = product(self._in, self.values.reshape(-1, LINEAR_DIM, COMPONENTS))
        self._norm = np.linalg.norm(z, axis=-1, keepdims=True)
        self._x = z / self._norm
        return self._x

    def gradient(self, dx: np.ndarray) -> np.ndarray:
        dz = (dx - self._x * (dx * self._x).sum(-1, keepdims=True)) / self._norm
        return (dz.swapaxes(1, 2) @ self._in).reshape(len(dx), -1)


class ResNet:
    """ResNet-18 with the head of SimCLR (linear 512, ReLU, linear 512), as ccstream-train has it for two views. norm:
    none, or group norm of 32 groups. By torch, in float32."""

    dim = RESNET_DIM

    def __init__(self, pixels: np.ndarray, runs: int, seed: int, norm: str, threads: int):
        self._torch = torch = load("torch")
        if threads:
            torch.set_num_threads(threads)
        torch.manual_seed(seed)
        self._pixels = torch.from_numpy(normalise(pixels)).permute(0, 3, 1, 2)
        self._model = _resnet18(torch, norm)
        first = torch.cat([p.detach().reshape(-1) for p in self._model.parameters()]).numpy()
        self.values = np.repeat(first[None], runs, 0)  # (R, P)

    def _load(self, run: int) -> None:
        at = 0
        with self._torch.no_grad():
            for p in self._model.parameters():
                p.copy_(self._torch.from_numpy(self.values[run, at:at + p.numel()]).reshape(p.shape))
                at += p.numel()

    def forward(self, rows: np.ndarray) -> np.ndarray:
        self._rows = rows = np.broadcast_to(rows, (len(self.values), rows.shape[-1])).copy()
        out = []
        with self._torch.no_grad():
            for run, mine in enumerate(rows):
                self._load(run)
                out.append(np.concatenate([self._model(self._pixels[part]).numpy() for part in _parts(mine)]))
        return np.stack(out)

    def gradient(self, dx: np.ndarray) -> np.ndarray:
        """Re-encodes each part of the rows, so that the activations of only one part are kept at a time."""
        out = []
        for run, mine in enumerate(self._rows):
            self._load(run)
            self._model.zero_grad()
            for part, of in zip(_parts(mine), _parts(dx[run]), strict=True):
                self._model(self._pixels[part]).backward(self._torch.from_numpy(np.ascontiguousarray(of, np.float32)))
            out.append(np.concatenate([p.grad.reshape(-1).numpy() for p in self._model.parameters()]))
        return np.stack(out)


def _parts(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[i:i + RESNET_ROWS] for i in range(0, len(rows), RESNET_ROWS)]


def _resnet18(torch: Any, norm: str) -> Any:
    nn: Any = torch.nn

    def normed(channels: int, gamma: float = 1.0) -> list[Any]:
        if norm == "none":
            return []
        layer = nn.GroupNorm(32, channels)
        nn.init.constant_(layer.weight, gamma)
        return [layer]

    def conv(channels: int, width: int, kernel: int, stride: int) -> Any:
        layer = nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False)
        nn.init.normal_(layer.weight, std=(2 / (width * kernel * kernel)) ** 0.5)
        return layer

    class Block(nn.Module):
        def __init__(self, channels: int, width: int, stride: int):
            super().__init__()
            self.body = nn.Sequential(conv(channels, width, 3, stride), *normed(width), nn.ReLU(),
                                      conv(width, width, 3, 1), *normed(width, 0.0))
            self.skip = nn.Sequential() if stride == 1 and channels == width else nn.Sequential(
                conv(channels, width, 1, stride), *normed(width))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.skip(x))

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (64, 64, 128, 256, 512)
            self.tower = nn.Sequential(
                conv(3, 64, 7, 2), *normed(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                *(Block(widths[s if b == 0 else s + 1], widths[s + 1], 2 if s and b == 0 else 1)
                  for s in range(4) for b in range(2)))
            self.head = nn.Sequential(nn.Linear(512, RESNET_DIM, bias=False), *normed(RESNET_DIM), nn.ReLU(),
                                      nn.Linear(RESNET_DIM, RESNET_DIM))

        def forward(self, x: Any) -> Any:
            return nn.functional.normalize(self.head(self.tower(x).mean((2, 3))))

    return Encoder()


# ---- the exact loss

OBJECTIVES = ("global", "with_own", "unaugmented")


def exact(x: np.ndarray, n: int, tau: float, objective: str = "global") -> tuple[float, np.ndarray]:
    """L and dL/dx of x (2n, E), or (3n, E) with the images themselves. Each of the 2n views is an anchor a, the other
    view of its image the positive p:

        L = mean over anchors of [ log sum_c exp(S_ac / tau) - S_ap / tau ]

    c: global, the 2n - 2 views of other images, eq. (1); with_own, the positive too: InfoNCE over all images, what the
    published code logs; unaugmented, the n - 1 other images themselves."""
    anchors, candidates = x[:2 * n], x[2 * n:] if objective == "unaugmented" else x[:2 * n]
    s = product(anchors, candidates).astype(np.float64) / tau
    image = np.arange(2 * n) % n
    at = np.arange(2 * n)
    s[at, image if objective == "unaugmented" else at] = -np.inf
    if objective == "global":
        s[at, (at + n) % (2 * n)] = -np.inf
    largest = s.max(1, keepdims=True)
    share = np.exp(s - largest)
    sums = share.sum(1, keepdims=True)
    share *= 1 / (2 * n * tau) / sums
    positives = x[(at + n) % (2 * n)].astype(np.float64)
    loss = float(np.mean(largest + np.log(sums)) - np.sum(anchors * positives) / (2 * n * tau))
    share = share.astype(np.float32)
    dx = np.zeros_like(x)
    dx[2 * n * (objective == "unaugmented"):][:len(candidates)] += product(share.T, anchors.T)
    dx[:2 * n] += product(share, candidates.T)
    dx[:2 * n] -= positives / (n * tau)  # each pair is the positive of both of its views
    return loss, dx


# ---- losses as estimators

@dataclass(frozen=True)
class Method:
    key: str  # in JSON
    name: str  # for people
    loss: str  # of ccstream, with two views
    # What a sample beyond the batch is encoded from: un-augmented, as ccstream-train does; random view; view: the very
    # view that is the chain's state, as in the published code of figure 7.
    carry: str | None = None
    gamma: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


_EMC2 = {"burn_in": 0.5}  # P = 3 of 6 proposals, as in the paper's table 3
METHODS = (
    Method("simclr", "SimCLR", "simclr"),
    Method("sogclr-0.9", "SogCLR, gamma 0.9", "sogclr", gamma=0.9),
    Method("sogclr-0.1", "SogCLR, gamma 0.1", "sogclr", gamma=0.1),
    Method("negcache", "negative cache", "negcache", "un-augmented"),
    Method("emc2-view", "EMC2, the chain's view", "emc2", "view", options=_EMC2),
    Method("emc2-fresh", "EMC2, a random view", "emc2", "random view", options=_EMC2),
    Method("emc2-encode", "EMC2, un-augmented", "emc2", "un-augmented", options=_EMC2),
    Method("emc2-skip", "EMC2, skip", "emc2", options={**_EMC2, "emc2_carry": "skip"}),
)


def burn_in_methods(batch: int) -> tuple[Method, ...]:
    """Figure 4: view chains with burn-in P of 0, b/2, b and 3b/2 of the R = 2b - 2 proposals per step."""
    names = {"0": 0, "b/2": batch // 2, "b": batch, "3b/2": 3 * batch // 2}
    return tuple(Method(f"emc2-P-{name}", f"EMC2, P = {name} = {p}", "emc2", "view", options={"burn_in": (p + 0.5) / (2 * batch - 2)})
                 for name, p in names.items())


REFRESH = 0.1  # of the negative cache, in each step: rho of the paper's table 3
_NO_ID = 2 ** 64 - 1
Encode = Callable[["np.ndarray"], "np.ndarray"]  # rows (R, m) to x (R, m, E), with the models as they are


class Estimator:
    """A loss on small batches, in R runs. The rows of a step are B first views, B second views, then the off-batch samples that
    the loss needs. Batches come from epochs, each a permutation of all samples."""

    def __init__(self, method: Method, n: int, batch: int, tau: float, seed: int, runs: int):
        options = {**method.options, **({"gamma": method.gamma} if method.gamma else {}), "tau": tau}
        self._losses = [ccstream.Loss(method.loss, n, max_batch=batch, views=True, **options) for _ in range(runs)]
        self._method, self._n, self._batch, self._tau, self._seed = method, n, batch, tau, seed
        self._scale = 1 / tau if method.loss == "sogclr" else 1.0  # dx estimates the gradient of L
        self._draws = np.random.default_rng([seed, 3])
        self._views = np.zeros((runs, n), int)  # emc2-view: the view that is the state of a sample's chain
        self._runs = np.arange(runs)[:, None]
        self._pair = np.arange(2 * batch)
        self._cache: np.ndarray | None = None  # negcache: features (R, n, E)
        self.failed = np.zeros(runs, bool)  # similarities were not finite

    def begin(self, step: int, encode: Encode) -> np.ndarray:
        """Rows (R, m) to encode."""
        n, b = self._n, self._batch
        epoch, place = divmod(step, n // b)
        if place == 0 or step == 0:
            self._order = np.random.default_rng([self._seed, 4, epoch]).permutation(n)
        self._step, self._epoch = step, epoch
        self._ids = self._order[place * b:(place + 1) * b]
        rows = np.broadcast_to(np.concatenate([self._ids, n + self._ids]), (len(self._losses), 2 * b))
        if self._method.loss == "negcache":
            self._carried = self._draw_cached(rows, encode)
            kinds: np.ndarray | int = PLAIN
        elif self._method.carry:
            self._carried = np.stack([loss.carried(self._ids)[0] for loss in self._losses])  # of both views
            kinds = self._kinds()
        else:
            return rows
        beyond = np.where(self._carried == _NO_ID, 0, self._carried).astype(int)  # no gradient if none
        return np.concatenate([rows, kinds * n + beyond], 1)

    def _kinds(self) -> np.ndarray | int:
        """(R, B): the row kind as which each off-batch sample of EMC2 is encoded."""
        if self._method.carry == "view":
            return self._views[:, self._ids]
        return PLAIN if self._method.carry == "un-augmented" else self._draws.integers(2, size=self._batch)

    def _draw_cached(self, rows: np.ndarray, encode: Encode) -> np.ndarray:
        """(R, 2B): for each anchor a another sample j, with probability proportional to exp(<x_a, c_j> / tau). Before that, the
        next part of the cache (in the first step all of it) is re-encoded un-augmented."""
        n = self._n
        due = math.ceil(REFRESH * n)
        if self._cache is None:
            self._cache = encode(np.arange(PLAIN * n, (PLAIN + 1) * n)[None])
        else:
            ids = (np.arange(due) + self._step * due) % n
            self._cache[:, ids] = encode((PLAIN * n + ids)[None])
        scores = product(encode(rows), self._cache) / self._tau
        scores[:, self._pair, np.tile(self._ids, 2)] = -np.inf
        sums = np.exp(scores - scores.max(-1, keepdims=True)).cumsum(-1)
        return (sums < sums[..., -1:] * self._draws.random(sums.shape[:2])[..., None]).sum(-1)

    def end(self, x: np.ndarray) -> np.ndarray:
        """dx (R, m, E) from x (R, m, E), the embeddings of begin's rows; updates the per-sample state."""
        views = x[:, :len(self._pair)]
        similarity = views @ views.swapaxes(1, 2)
        gradient = np.zeros((*x.shape[:2], x.shape[1]), np.float32)
        batch = gradient[:, self._pair[:, None], self._pair]
        if x.shape[1] > len(self._pair):
            at = len(self._pair) + self._pair % (x.shape[1] - len(self._pair))  # the row that each anchor carries
            carried = np.einsum("rae,rae->ra", views, x[:, at])
            ids = np.tile(self._carried, (1, len(self._pair) // self._carried.shape[1]))
        for run, loss in enumerate(self._losses):
            if self.failed[run]:
                continue
            more = {}
            if x.shape[1] > len(self._pair):
                more = {"carried_ids": ids[run], "carried_similarity": carried[run]}
            try:
                found = loss.step(similarity[run], self._ids, step=self._step, epoch=self._epoch, **more)
            except ccstream.CorruptError:
                self.failed[run] = True
                continue
            batch[run] = found.gradient
            if more:
                gradient[run, self._pair, at] = found.carried_gradient
        batch[:, self._pair, self._pair] = 0
        gradient[:, :len(self._pair), :len(self._pair)] = batch
        if self._method.carry == "view":
            self._follow_chains(similarity)
        return self._scale * ((gradient + gradient.swapaxes(1, 2)) @ x)

    def _follow_chains(self, similarity: np.ndarray) -> None:
        """Tracks which view of a sample in the batch a chain's state is: the last score is the anchor's with the second view of
        that sample. A chain that did not move keeps its view."""
        b = self._batch
        for run, loss in enumerate(self._losses):
            ids, scores = loss["image.chain_id"][self._ids], loss["image.chain_log_score"][self._ids]
            ours = (similarity[run, b:].astype(np.float64) / self._tau).astype(np.float32)  # (B, 2B)
            stands = (np.tile(self._ids, 2) == ids[:, None].astype(int)) & (ours == scores[:, None])
            moved = stands.any(1)
            self._views[run, self._ids[moved]] = stands[moved].argmax(1) >= b


# ---- runs

@dataclass
class Problem:
    pixels: np.ndarray  # (3n, S, S, 3)
    batch: int
    tau: float
    seed: int
    encoder: Callable[[int], Any]  # runs -> Linear or ResNet
    adam: bool = False
    decay: bool = True  # the step size falls to 0 along a cosine

    @property
    def n(self) -> int:
        return len(self.pixels) // 3

    def estimator(self, method: Method, runs: int) -> Estimator:
        return Estimator(method, self.n, self.batch, self.tau, self.seed, runs)


def exact_gradient(p: Problem, encoder: Any, objective: str = "global") -> tuple[np.ndarray, np.ndarray]:
    """L (R) and its gradient (R, P)."""
    x = encoder.forward(np.arange((3 if objective == "unaugmented" else 2) * p.n)[None].repeat(len(encoder.values), 0))
    found = [exact(of, p.n, p.tau, objective) for of in x]
    return np.array([loss for loss, _ in found]), encoder.gradient(np.stack([dx for _, dx in found]))


def squares(rows: np.ndarray) -> np.ndarray:
    return np.sum(rows.astype(np.float64) ** 2, axis=-1)


def bias2(p: Problem, encoder: Any, method: Method, steps: int, objective: str = "global") -> np.ndarray:
    """|mean of the estimator - exact gradient|^2 (R) of the current models, over two halves of `steps` steps each, after a
    quarter as many for burn-in: the product of the halves' deviations, whose noise is independent."""
    runs, b = len(encoder.values), 2 * p.batch
    everything = np.arange(3 * p.n)[None].repeat(runs, 0)
    table = encoder.forward(everything)
    each = np.arange(runs)[:, None]
    estimator = p.estimator(method, runs)

    def encode(rows: np.ndarray) -> np.ndarray:
        return table[each, rows]

    def mean(first: int, count: int) -> np.ndarray:
        total = np.zeros(table.shape)
        for step in range(first, first + count):
            rows = estimator.begin(step, encode)
            dx = estimator.end(encode(rows))
            total[each, rows[:, :b]] += dx[:, :b]
            for column in range(b, rows.shape[1]):  # of which several may be of one sample
                total[each[:, 0], rows[:, column]] += dx[:, column]
        encoder.forward(everything)
        return encoder.gradient((total / count).astype(np.float32)).astype(np.float64)

    burn = steps // 4
    if burn:
        mean(0, burn)
    halves = [mean(burn, steps), mean(burn + steps, steps)]
    target = exact_gradient(p, encoder, objective)[1]
    return np.sum((halves[0] - target) * (halves[1] - target), axis=-1)


def train(p: Problem, method: Method, rates: list[float], steps: int, points: int, bias_steps: int,
          advance: Callable[[float], None]) -> list[dict[str, Any]]:
    """One run per learning rate in lr, from the same initial values. points: [step, seconds, L, norm2, length], where length is
    the parameters' relative to the start; at the end norm2 of each objective, and bias2. seconds excludes measuring. A run
    whose similarities are not finite ends early with a point of infinities."""
    encoder, estimator = p.encoder(len(rates)), p.estimator(method, len(rates))
    lr = np.array(rates)[:, None]
    moments = np.zeros((2, *encoder.values.shape), np.float32) if p.adam else None
    start = np.sqrt(squares(encoder.values))
    curves: list[dict[str, Any]] = [{"lr": rate, "bias2": np.nan, "norm2": [np.inf] * len(OBJECTIVES), "points": []}
                                    for rate in rates]
    seconds, done = 0.0, 0
    with np.errstate(all="ignore"):  # of runs that diverge
        for k in range(points):
            begun, target = time.perf_counter(), steps * k // (points - 1)
            for step in range(done, target):
                x = encoder.forward(estimator.begin(step, encoder.forward))
                gradient = encoder.gradient(estimator.end(x))
                now = lr * (0.5 * (1 + math.cos(math.pi * step / steps)) if p.decay else 1.0)
                if moments is None:
                    encoder.values -= (now * gradient).astype(np.float32)
                else:
                    adam(encoder.values, moments, gradient, now.astype(np.float32), step)
                if (step + 1) % 50 == 0:
                    advance(50 * len(rates))
            seconds += (time.perf_counter() - begun) / len(rates)
            done = target
            loss, gradient = exact_gradient(p, encoder)
            for run, curve in enumerate(curves):
                found = [loss[run], squares(gradient[run]), np.sqrt(squares(encoder.values[run])) / start[run]]
                if not estimator.failed[run]:
                    curve["points"].append([target, seconds, *map(float, found)])
                elif np.isfinite(curve["points"][-1][2]):
                    curve["points"].append([target, seconds] + [np.inf] * 3)
        _measure_end(p, encoder, method, bias_steps, curves, estimator.failed)
    return curves


def _measure_end(p: Problem, encoder: Any, method: Method, bias_steps: int, curves: list[dict[str, Any]],
                 failed: np.ndarray) -> None:
    norms = [squares(exact_gradient(p, encoder, objective)[1]) for objective in OBJECTIVES]
    bias = bias2(p, encoder, method, bias_steps) if bias_steps else np.full(len(curves), np.nan)
    for run, curve in enumerate(curves):
        if not failed[run]:
            curve["norm2"], curve["bias2"] = [float(norm[run]) for norm in norms], float(bias[run])
