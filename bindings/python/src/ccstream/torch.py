"""PyTorch modules for ccstream's batches: image normalisation on the device, and global contrastive losses with
per-sample state. Needs torch; the rest of ccstream does not.

Sums of exponentials are computed in log space in float64 and state is stored in float32, as in ccstream-train
(train/loss/*.c have the formulas), so tau = 0.005 neither overflows nor underflows for easy samples. No module
branches on tensor values, so torch.compile captures each as one graph.
"""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import numpy
import torch
import torch.distributed as dist
import torch.utils._pytree
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from ._torch_model import Encoder, load_model
from ._torch_rows import KeepsTypes, RankedModule, check_rows, refuse_positives
from .contrastive import Contrastive
from .loader import Batch
from .loss import Loss, State, loss_options
from .norms import NORMS, Norm, find_norm

__all__ = ["NORMS", "LOSSES", "Contrastive", "Encoder", "GlobalContrastiveLoss", "NormalizeOnDevice", "check_text", "load_model",
           "make_loss", "move_batch"]

# ---- batches ----


def _flatten(batch: Batch) -> tuple[list[Any], tuple[Any, ...]]:
    leaves = [*batch.values(), *batch.columns.values(), *batch.present.values()]
    return leaves, (tuple(batch), tuple(batch.columns), batch.epoch, batch.step, batch.replaced)


def _unflatten(leaves: Any, context: tuple[Any, ...]) -> Batch:
    names, columns, *numbers = context
    leaves = list(leaves)
    out = Batch(zip(names, leaves))
    rest = leaves[len(names) :]
    out.columns, out.present = dict(zip(columns, rest)), dict(zip(columns, rest[len(columns) :]))
    out.epoch, out.step, out.replaced = numbers
    return out


torch.utils._pytree.register_pytree_node(Batch, _flatten, _unflatten, serialized_type_name="ccstream.Batch")


def _tensor(values: Any) -> Any:
    """An array as a tensor; lists of texts and bytes unchanged."""
    if isinstance(values, (Tensor, list)):
        return values
    return torch.from_numpy(values) if isinstance(values, numpy.ndarray) else from_dlpack(values)


def move_batch(batch: Batch, device: Any, non_blocking: bool | None = None) -> Batch:
    """See Batch.to."""
    device = torch.device(device)
    loader = getattr(batch, "_loader", None)
    pinned = loader is not None and loader.pinned and device.type != "cpu"
    leaves, context = _flatten(batch)
    non_blocking = pinned if non_blocking is None else non_blocking
    moved = [x if isinstance(x, list) else x.to(device, non_blocking=non_blocking) for x in map(_tensor, leaves)]
    if loader is not None and pinned and non_blocking:
        loader._keep(leaves, device)
    return _unflatten(moved, context)


class NormalizeOnDevice(KeepsTypes):
    """Normalises uint8 images on the device: (x / 255 - mean) / std.

    norm: a name of NORMS, or (mean, std) with three numbers each, for images in [0, 1].
    Input: uint8 (N, H, W, 3), as in batches. Output: `dtype` (N, 3, H, W) in channels-last memory format. It costs one
    multiply-add per pixel and no additional copy.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, norm: str | Norm = "clip", dtype: torch.dtype = torch.float32):
        super().__init__()
        mean, deviation = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in find_norm(norm))
        self.dtype = dtype
        self.register_buffer("scale", (1 / (255 * deviation)).float(), persistent=False)
        self.register_buffer("offset", (-mean / deviation).float(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return torch.addcmul(self.offset, images.permute(0, 3, 1, 2), self.scale).to(self.dtype)


# ---- losses: which there are, and their options ----


class _Kind(NamedTuple):
    """How the arithmetic of a loss differs from sogclr's; ccstream.loss_options lists its options."""

    zeta: bool = False
    fastclip: bool = False
    times_tau: bool = False  # the loss is multiplied by tau
    anchor_gamma: bool = False  # gamma depends on the anchor's u
    slow_tau: float = 0.0  # at or below this tau, its learning rate is divided by 3


LOSSES = {
    "sogclr": _Kind(),
    "isogclr": _Kind(),
    "nuclr": _Kind(zeta=True),
    "nuclr-frozen": _Kind(zeta=True),
    "nuclr-noxi": _Kind(zeta=True),
    "fastclip-v0": _Kind(fastclip=True),
    "fastclip-v1": _Kind(fastclip=True),
    "fastclip-v2": _Kind(fastclip=True),
    "fastclip-v3": _Kind(fastclip=True, times_tau=True, slow_tau=0.03),
    "scent": _Kind(fastclip=True, times_tau=True, anchor_gamma=True, slow_tau=0.03),
}
"""The losses by name. ccstream.loss_options(name) has the options that each reads."""

_MATRIX = 1 << 24  # elements of a similarity matrix: 64 MiB of float32
_OF_TRAINER = ("zeta_lr", "zeta_lr_image_ratio", "zeta_freeze_epochs")  # Loss takes learning rates per step instead


def _complete(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The value of every option that the loss reads."""
    if name not in LOSSES:
        raise ValueError(f"no loss {name!r}: expected one of {', '.join(LOSSES)}")
    out = loss_options(name, **given)
    if out.pop("positives", 1) != 1:
        raise ValueError(f"loss {name}: several positives require ccstream.torch.Contrastive or ccstream-train")
    return out


# ---- losses: arithmetic ----


def _half_cosine(fraction: Tensor) -> Tensor:
    return 0.5 * (1 + torch.cos(math.pi * fraction.clamp(0, 1)))


def _adam(m: Tensor, v: Tensor, gradient: Tensor, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The new moments, and the step for learning rate 1 (betas 0.9 and 0.999, epsilon 1e-8)."""
    m = 0.9 * m + 0.1 * gradient
    v = 0.999 * v + 0.001 * gradient * gradient
    return m, v, m / (1 - 0.9**steps) / (torch.sqrt(v / (1 - 0.999**steps)) + 1e-8)


class _Side(KeepsTypes):
    """State of one side (images or texts): columns by sample id, and xi."""

    log_u: Tensor
    zeta: Tensor
    zeta_momentum: Tensor
    xi: Tensor
    tau: Tensor
    tau_gradient: Tensor
    tau_square: Tensor

    def __init__(self, name: str, id_space: int, options: dict[str, Any]):
        super().__init__()
        loss = LOSSES[name]
        self._column("log_u", id_space, math.nan)
        if loss.zeta:
            self._column("zeta", id_space, options["zeta0"])
            self._column("zeta_momentum", id_space, math.nan)
            self.register_buffer("xi", torch.tensor(_first_xi(options), dtype=torch.float64))
        if options["temperature"] == "individual":
            self._column("tau", id_space, options["tau"])
            self._column("tau_gradient", id_space, 0.0)
            if loss.fastclip:
                self._column("tau_square", id_space, 0.0)

    def _column(self, name: str, id_space: int, first: float) -> None:
        self.register_buffer(name, torch.full((id_space,), first, dtype=torch.float32))


def _scalar_buffer(name: str) -> str:
    """The buffer name of a scalar: log_scale_m for "log_scale.m", unchanged for "image.xi"."""
    return name.replace("log_scale.", "log_scale_")


def _size(options: dict[str, Any], zeta: Any) -> Any:
    """The measure of zeta whose maximum is xi."""
    return abs(zeta) if options.get("xi") == "norm" else zeta


def _first_xi(options: dict[str, Any]) -> float:
    return float(max(options.get("xi0", 0.0), _size(options, options["zeta0"])))


class _Batch(NamedTuple):
    """The ids of a step and which rows count: of a repeated id only the first occurrence."""

    ids: Tensor  # (B) int64, of the rows of all ranks
    first: Tensor  # (B) row of the first occurrence of each id
    distinct: Tensor  # (B) whether a row is a first occurrence
    distinct_count: Tensor  # () float64
    own: Tensor  # (b) indices of this rank's rows
    usable: Tensor  # () at least two distinct ids, and finite embeddings
    visits: Tensor  # (B) number of steps of each sample, including this one
    counts: list[int]  # number of rows of each rank
    store: bool  # whether to update the state


class _Anchors(NamedTuple):
    """One side's anchors on this rank, float64."""

    counts: Tensor  # (b) whether the anchor counts
    tau: Tensor  # (b, 1) or ()
    log_u: Tensor  # (b) after this step
    mean: Tensor  # (b) sum over candidates of weight * delta / tau
    p: Any  # (B) for zeta: sum over anchors of each candidate's fraction of their denominators; 0 without


class GlobalContrastiveLoss(RankedModule):
    """A global contrastive loss with per-sample state: sogclr, isogclr, nuclr, nuclr-frozen, nuclr-noxi, fastclip-v0 to -v3,
    or scent.

        loss = GlobalContrastiveLoss("nuclr", len(ds), id_space=ds.id_space, steps_per_epoch=len(dl), epochs=30)
        value = loss(image_embeddings, text_embeddings, ids)    # () float32
        value.backward()

    name: as --loss of ccstream-train.
    dataset_size: n, the number of samples, at least 2: len(dataset).
    id_space: larger than every sample id: dataset.id_space; None: dataset_size.
    steps_per_epoch, epochs: of the run; required by the schedules of gamma and zeta.
    compute: "float64", or "float32", with which the similarity matrices take a third of the memory and time. Sums by
        sample id, xi and temperatures stay float64; weights then have a relative error of about 1e-7 / tau. Larger batches
        are processed in groups of anchors, so that no matrix exceeds 16 million elements.
    options: the loss's options as in ccstream-train, with underscores, and with its defaults and ranges: tau, temperature,
        tau_min, tau_max, tau_lr, tau_grad_ema, rho, gamma, gamma_schedule, gamma_epochs, gamma_log_alpha, gamma_slope, eps,
        zeta0, xi0, xi, zeta_lr, zeta_lr_image_ratio, zeta_grad_ema, zeta_freeze_epochs, zeta_gradient.
        `ccstream-train --help NAME` describes those of a loss. UsageError (a ValueError): an option that the loss does not
        read, or a value out of range.

    loss(image, text, ids, lr=None, update=True) returns a float32 scalar. image, text: (b, D) L2-normalised embeddings of
    pairs, of any float type. ids: (b) sample ids, of any integer type. lr: the model's learning rate in this step, required
    if a learned temperature has tau_lr 0 (fastclip-v0). ValueError: wrong shapes, or (on the CPU) an id outside the id
    space.

    The value is for backpropagation only: its weights are constants in the gradient, so it is usually slightly negative and
    does not measure convergence. `objective` does: it estimates the loss over the whole dataset. `tau` is the (mean)
    temperature of the last step. Both are 0-d float64 tensors.

    Gradient accumulation: call the loss once per optimiser step. Encode the parts of a batch with
    torch.utils.checkpoint.checkpoint(encode, part, use_reentrant=False), concatenate the embeddings, and call the loss once;
    peak memory is that of one part. A loop that calls the loss once per part, with the features of all parts and
    gradients for one of them (open_clip's --accum-freq), must pass update=False except with the last part. Both give the
    result of one large batch.

    State is in buffers: `image` and `text` hold columns by sample id (log_u, zeta, ...), `visits` counts each sample's steps
    and `step` all steps. A forward pass in training mode updates it; in eval mode, or if an embedding is not finite (the value
    is then NaN), it stays unchanged. Of a repeated id only the first occurrence counts. Batches of DataLoader(positives=2)
    raise ValueError: use Contrastive. .half() and .bfloat16() do not change the types of the state.

    Distributed: if torch.distributed is initialised (or with `group`), each rank passes its own rows; their number may
    differ between ranks and may be 0. Each rank's rows are the anchors, contrasted with the rows of all ranks, as in open_clip
    with local_loss and gather_with_grad. The mean over ranks of value and gradient, which DistributedDataParallel computes,
    equals that of one process with all rows. The state is identical on all ranks. equal_rows=True promises that all ranks always
    pass equally many rows; this saves an exchange for which a GPU would wait. A compiled module assumes it.
    """

    image: _Side
    text: _Side
    visits: Tensor
    step: Tensor
    objective: Tensor
    tau: Tensor
    log_scale: Tensor
    log_scale_m: Tensor
    log_scale_v: Tensor
    learned_steps: Tensor

    def __init__(self, name: str, dataset_size: int, *, id_space: int | None = None,
                 steps_per_epoch: int | None = None, epochs: int | None = None,
                 group: dist.ProcessGroup | None = None, compute: str = "float64", equal_rows: bool = False, **options: Any):
        super().__init__()
        self.name = name
        self.options = _complete(name, options)
        if compute not in ("float64", "float32"):
            raise ValueError(f"compute is {compute!r}, expected 'float64' or 'float32'")
        self.compute, self.equal_rows, self._stepped = getattr(torch, compute), equal_rows, False
        self.dataset_size = int(dataset_size)
        if self.dataset_size < 2:
            raise ValueError(f"loss {name}: the dataset must have at least two samples")
        id_space = self.dataset_size if id_space is None else int(id_space)
        self.steps_per_epoch, self.epochs, self.group = steps_per_epoch or 0, epochs or 0, group
        self._moves_zeta = LOSSES[name].zeta and "zeta_lr" in self.options
        if self._moves_zeta or self.options.get("gamma_schedule") == "cosine":
            if not steps_per_epoch or not epochs:
                raise ValueError(f"loss {name}: its schedules require steps_per_epoch and epochs")
        self.image = _Side(name, id_space, self.options)
        self.text = _Side(name, id_space, self.options)
        self.register_buffer("visits", torch.zeros(id_space, dtype=torch.int64))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        if self.options["temperature"] == "global":
            for scalar, first in (("log_scale", -math.log(self.options["tau"])), ("log_scale_m", 0.0),
                                  ("log_scale_v", 0.0), ("learned_steps", 0.0)):
                self.register_buffer(scalar, torch.tensor(first, dtype=torch.float64))
        self.register_buffer("objective", torch.tensor(math.nan, dtype=torch.float64), persistent=False)
        self.register_buffer("tau", torch.tensor(self.options["tau"], dtype=torch.float64), persistent=False)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.name), f"{self.dataset_size}"] + [f"{k}={v}" for k, v in self.options.items()])

    def forward(self, image: Tensor, text: Tensor, ids: Tensor, lr: float | Tensor | None = None,
                update: bool = True) -> Tensor:
        ids = check_rows(image, text, ids, len(self.visits))
        with torch.autocast(image.device.type, enabled=False):
            image, text = image.float(), text.float()
            counts = self._counts(len(image))
            images, texts = self._gather(image, counts), self._gather(text, counts)
            batch = self._begin(images, texts, ids, counts, self.training and update)
            value, sums = images.new_zeros(()), []
            for side, anchors, contrasts in (("image", image, texts), ("text", text, images)):
                of_anchors, of_contrasts, logged = self._side_step(side, anchors.detach(), contrasts.detach(), batch)
                # weights are constants, and so are these gradients: value and gradient are those of <G, S>
                linear = (of_anchors * anchors).sum() + (of_contrasts * contrasts).sum()
                value = value + linear + (logged[3] * self._world()[1] - linear.detach()).float()
                sums.append(logged)
            self._end(batch, sums[0] + sums[1], lr)
            return value

    # ---- files ----

    def save(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        """Writes the state as a ccstream checkpoint without a model, which ccstream.State, `ccdump state` and
        `ccdump popularity` read. fingerprint: the dataset's. Every rank has the whole state: call it on one rank.
        ExistsError: path exists and is not such a file; StorageError."""
        loss = self._host_loss()
        for name, values in self._columns().items():
            loss.write(name, values.cpu().numpy())
        for name in loss.scalars:
            loss.set_scalar(name, self.get_buffer(_scalar_buffer(name)).item())
        loss.save(path, fingerprint, int(self.step.item()))

    @torch.no_grad()
    def load(self, path: str | os.PathLike[str]) -> None:
        """Loads a file of save, or a checkpoint of ccstream-train. MismatchError: another loss, or a larger id space."""
        loss = self._host_loss()
        loss.load(path)
        for name, values in self._columns().items():
            values.copy_(torch.from_numpy(loss[name].astype("int64" if name == "visits" else "float32")))
        for name, value in loss.scalars.items():
            self.get_buffer(_scalar_buffer(name)).fill_(value)
        self.step.fill_(State(path).step)

    def _columns(self) -> dict[str, Tensor]:
        return {name: b for name, b in self.named_buffers() if b.dim() == 1}

    def _host_loss(self) -> Loss:
        options = {k: v for k, v in self.options.items() if k not in _OF_TRAINER}
        if self.options.get("gamma_schedule") == "cosine":
            options["gamma_epochs"] = self._gamma_epochs()
        return Loss(self.name, self.dataset_size, id_space=len(self.visits), max_batch=2, **options)

    # ---- the step ----

    @torch.no_grad()
    def _begin(self, images: Tensor, texts: Tensor, ids: Tensor, counts: list[int], store: bool) -> _Batch:
        rank, _ = self._world()
        rows = torch.arange(len(images), device=ids.device)
        own = rows[sum(counts[:rank]) :][: counts[rank]]
        ids = self._gather(ids, counts)
        in_order, place = torch.sort(ids, stable=True)
        first = place[torch.searchsorted(in_order, ids)]
        distinct = first == rows
        if store and not self._stepped and not torch.compiler.is_compiling():
            self._stepped = True
            refuse_positives(self.name, len(ids), int(distinct.sum()))
        finite = torch.isfinite(images).all() & torch.isfinite(texts).all()
        visits = self.visits[ids] + 1
        batch = _Batch(ids, first, distinct, distinct.sum().double(), own, finite & (distinct.sum() >= 2), visits,
                       counts, store)
        self._store(self.visits, batch, visits, finite)
        return batch

    @torch.no_grad()
    def _side_step(self, name: str, anchors: Tensor, contrasts: Tensor, batch: _Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of anchors (b, D) and candidates (B, D), float32, and four sums over this rank's anchors that _end
        adds over ranks and sides: objective, mean temperature, gradient of a global temperature, and value."""
        side, other = getattr(self, name), getattr(self, "text" if name == "image" else "image")
        shift = torch.where(batch.distinct, 0.0, math.inf).double()  # subtracted from each candidate's delta
        if LOSSES[self.name].zeta:
            shift = shift + other.zeta[batch.ids].double()
        of_contrasts = torch.zeros_like(contrasts)
        of_anchors, logged, parts = [], torch.zeros(4, dtype=torch.float64, device=shift.device), []
        most = max(1, _MATRIX // max(len(contrasts), 1))
        for at in range(0, max(len(anchors), 1), most):
            rows = anchors[at : at + most]
            gradient, a, own = self._anchors(name, rows, contrasts, batch, batch.own[at : at + most], shift, side)
            of_anchors.append(gradient @ contrasts)
            of_contrasts.addmm_(gradient.T, rows)
            logged += own
            parts.append(a)
        if batch.store:
            tau = parts[0].tau if parts[0].tau.dim() == 0 else torch.cat([a.tau for a in parts])
            self._store_side(name, _Anchors(torch.cat([a.counts for a in parts]), tau, torch.cat([a.log_u for a in parts]),
                                            torch.cat([a.mean for a in parts]),
                                            sum((a.p for a in parts[1:]), parts[0].p)), batch)
        return torch.cat(of_anchors), of_contrasts, logged

    def _anchors(self, name: str, rows: Tensor, contrasts: Tensor, batch: _Batch, own: Tensor, shift: Tensor,
                 side: _Side) -> tuple[Tensor, _Anchors, Tensor]:
        """For a group of c anchors: the gradient (c, B) of their similarities, and their part of what _side_step returns."""
        loss, o = LOSSES[self.name], self.options
        ids, counts = batch.ids[own], batch.distinct[own]
        tau = side.tau[ids].double()[:, None] if o["temperature"] == "individual" else self._global_tau()
        delta = (rows @ contrasts.T).to(self.compute)
        delta.sub_(delta.gather(1, own[:, None]))
        # (delta - shift) / tau; if tau is per anchor, shift is 0 or infinite
        offset = -shift if tau.dim() else -shift / tau
        weight = torch.addcmul(offset.to(self.compute)[None, :], delta, (1 / tau).to(self.compute))
        weight.scatter_(1, own[:, None], -math.inf)
        top = weight.amax(1, keepdim=True).clamp_(min=torch.finfo(self.compute).min)
        total = weight.sub_(top).exp_().sum(1).double()
        top = top.flatten().double()
        log_negatives = torch.log(batch.distinct_count - 1)
        log_u = self._running_mean(side.log_u[ids].double(), top + torch.log(total) - log_negatives)
        log_norm = log_u
        if loss.zeta:
            log_norm = torch.logaddexp(log_u, self._own_term(name, ids) - math.log(self.dataset_size - 1))
        share = (0.5 if loss.fastclip else 1.0) / batch.distinct_count
        scale = (share / tau if loss.fastclip and not loss.times_tau else share * torch.ones_like(tau)).flatten()
        # turns exponentials into the weights of the mean over candidates; `weights` is their sum per anchor
        factor = torch.where(counts & batch.usable, torch.exp(top - (log_norm + log_negatives)), 0.0)
        weights = factor * torch.where(torch.isfinite(total), total, 0.0)
        p = self._shares(name, weight, top, log_u, counts, own, ids, batch) if self._moves_zeta and batch.store else 0.0
        weight.mul_((factor * scale * self._world()[1])[:, None].to(self.compute))
        weight.scatter_(1, own[:, None], (-weights * scale * self._world()[1])[:, None].to(self.compute))
        pull = delta.mul_(weight).sum(1).double() / (scale * self._world()[1])
        mean = pull / tau.flatten()
        counted = share * torch.where(counts, 1.0, 0.0)  # weight of each anchor in the means
        a = _Anchors(counts, tau, log_u, mean, p)
        logged = torch.stack([(counted * self._objective(a, name, ids)).sum(), (counted * tau.flatten()).sum(),
                              (counted * (log_u - mean)).sum(), (scale * pull).sum()])
        return weight.float(), a, logged

    def _shares(self, name: str, exponentials: Tensor, top: Tensor, log_u: Tensor, counts: Tensor, own: Tensor,
                ids: Tensor, batch: _Batch) -> Tensor:
        """(B) for each candidate the sum over anchors of its fraction p of their denominators; see train/loss/nuclr.c."""
        o, n = self.options, self.dataset_size
        zeta = getattr(self, "text" if name == "image" else "image").zeta[ids].double()
        log_norm = torch.logaddexp(math.log(n - 1) + log_u, -zeta / o["tau"])
        factor = torch.where(counts & batch.usable, torch.exp(top - log_norm), 0.0)
        p = torch.mv(exponentials.T, factor.to(self.compute)).double()
        own_p = torch.where(counts & batch.usable, torch.exp(-zeta / o["tau"] - log_norm), 0.0)
        if o["zeta_gradient"] == "paper":
            return (p.index_add(0, own, own_p)) * n / batch.distinct_count
        return (p * (n - 1) / (batch.distinct_count - 1)).index_add(0, own, own_p)

    def _running_mean(self, log_u: Tensor, log_g: Tensor) -> Tensor:
        """u <- (1 - gamma) u + gamma (g + eps) in log space; at the first visit u is g + eps."""
        o = self.options
        if o.get("eps", 0.0) > 0:
            log_g = torch.logaddexp(log_g, torch.full_like(log_g, math.log(o["eps"])))
        if LOSSES[self.name].anchor_gamma:
            logit = o["gamma_log_alpha"] + o["gamma_slope"] * log_u
            mean = torch.logaddexp(log_u + torch.nn.functional.logsigmoid(-logit),
                                   log_g + torch.nn.functional.logsigmoid(logit))
            return torch.where(torch.isnan(log_u), log_g, mean)
        gamma = self._gamma(log_g.device)
        mean = torch.logaddexp(torch.log1p(-gamma) + log_u, torch.log(gamma) + log_g)
        return torch.where(torch.isnan(log_u) | (gamma >= 1), log_g, mean)

    def _own_term(self, anchors: str, ids: Tensor) -> Tensor:
        """log of the positive pair's term in (n - 1) times the denominator: -xi / tau."""
        contrasts = self.text if anchors == "image" else self.image
        if self.name == "nuclr-noxi":
            return -contrasts.zeta[ids].double() / float(self.options["tau"])
        return -contrasts.xi / float(self.options["tau"])

    def _objective(self, a: _Anchors, name: str, ids: Tensor) -> Tensor:
        """Objective of each anchor; see the files of the losses in train/loss."""
        loss, tau, log_others = LOSSES[self.name], a.tau.flatten(), math.log(self.dataset_size - 1)
        if loss.zeta:
            contrasts = self.text if name == "image" else self.image
            own = contrasts.zeta[ids].double()
            return tau * torch.logaddexp(log_others + a.log_u, -own / tau) + own
        if loss.times_tau or self.options["temperature"] == "individual":
            return tau * (a.log_u + float(self.options["rho"]))
        return (1.0 if loss.fastclip else tau) * (a.log_u + log_others)

    # ---- state ----

    def _store(self, column: Tensor, batch: _Batch, values: Tensor, condition: Tensor) -> None:
        if batch.store:
            column[batch.ids] = torch.where(condition, values.to(column.dtype), column[batch.ids])

    def _store_side(self, name: str, a: _Anchors, batch: _Batch) -> None:
        side = getattr(self, name)
        keep = [("log_u", a.log_u)]
        if self.options["temperature"] == "individual":
            keep += self._step_taus(side, a, batch)
        everyone = self._gather(torch.stack([values for _, values in keep], 1), batch.counts)[batch.first]
        if self._moves_zeta:
            self._step_zeta("text" if name == "image" else "image", a, batch)
        for (column, _), values in zip(keep, everyone.unbind(1)):
            self._store(getattr(side, column), batch, values, batch.usable)

    def _step_taus(self, side: _Side, a: _Anchors, batch: _Batch) -> list[tuple[str, Tensor]]:
        """Updates the anchors' temperatures with h = log u + rho - mean, and the moving averages of h."""
        o, ids = self.options, batch.ids[batch.own]
        h = (a.log_u + o["rho"] - a.mean).clamp(-5, 5)
        tau, m = side.tau[ids].double(), side.tau_gradient[ids].double()
        kept = []
        if LOSSES[self.name].fastclip:
            m, v, step = _adam(m, side.tau_square[ids].double(), h, batch.visits[batch.own].double())
            kept = [("tau_square", v)]
        else:
            m = step = (1 - o["tau_grad_ema"]) * m + o["tau_grad_ema"] * h
        tau = (tau - o["tau_lr"] * step).clamp(o["tau_min"], o["tau_max"])
        return kept + [("tau", tau), ("tau_gradient", m)]

    def _step_zeta(self, contrasts: str, a: _Anchors, batch: _Batch) -> None:
        """Updates zeta of the candidates with gradient 1 - sum of p, then xi. See train/loss/nuclr.c."""
        o, side = self.options, getattr(self, contrasts)
        zeta = side.zeta[batch.ids].double()
        q = 1 - self._sum(a.p)
        z = side.zeta_momentum[batch.ids].double()
        z = torch.where(torch.isnan(z), q, (1 - o["zeta_grad_ema"]) * z + o["zeta_grad_ema"] * q)
        rate = self._zeta_rate(contrasts)
        moves = batch.usable & (rate > 0)
        step = rate * z
        if o["zeta_lr"] == "auto":
            epochs = torch.div(self.step, self.steps_per_epoch, rounding_mode="floor") - int(o["zeta_freeze_epochs"])
            visit = torch.minimum(batch.visits - 1, epochs.clamp(min=0)).double()
            step = (step * o["tau"] * (1 / (visit + 2)).clamp(min=0.1)).clamp(-o["tau"], o["tau"])
        zeta = (zeta - step)[batch.first].float()
        self._store(side.zeta_momentum, batch, z[batch.first], moves)
        self._store(side.zeta, batch, zeta, moves)
        if o.get("xi") == "all":
            xi = side.zeta.max().double().clamp(min=_first_xi(o))
        else:
            xi = torch.maximum(side.xi, _size(o, zeta.double()).max())
        side.xi.copy_(torch.where(moves, xi, side.xi))

    @torch.no_grad()
    def _end(self, batch: _Batch, sums: Tensor, lr: float | Tensor | None) -> None:
        loss, o = LOSSES[self.name], self.options
        objective, tau, tau_gradient, value = self._sum(sums).unbind()
        self.objective.copy_(objective)
        self.tau.copy_(tau if o["temperature"] == "individual" and loss.fastclip else
                       tau / 2 if o["temperature"] == "individual" else self._global_tau())
        if not batch.store:
            return
        self.step.add_(1)
        if o["temperature"] != "global":
            return
        rho = o.get("rho", 0.0) * (1 if loss.fastclip else 2)
        gradient = -self._global_tau() * (tau_gradient + rho) if loss.times_tau or not loss.fastclip else value
        self._learn_scale(gradient, lr, batch.usable)

    def _learn_scale(self, gradient: Tensor, lr: float | Tensor | None, usable: Tensor) -> None:
        """One Adam step along the gradient of log(1 / tau)."""
        o = self.options
        rate = o["tau_lr"] if o["tau_lr"] > 0 else lr
        if rate is None:
            raise ValueError(f"loss {self.name}: its temperature is learned at the model's rate: pass lr, or set tau_lr")
        steps = self.learned_steps + 1
        m, v, step = _adam(self.log_scale_m, self.log_scale_v, gradient, steps)
        slow = torch.where(self._global_tau() <= LOSSES[self.name].slow_tau, 1 / 3, 1.0)
        scale = (self.log_scale - rate * slow * step).clamp(-math.log(o["tau_max"]), -math.log(o["tau_min"]))
        for kept, new in ((self.log_scale, scale), (self.log_scale_m, m), (self.log_scale_v, v),
                          (self.learned_steps, steps)):
            kept.copy_(torch.where(usable, new, kept))

    # ---- schedules ----

    def _global_tau(self) -> Tensor:
        if self.options["temperature"] == "global":
            return torch.exp(-self.log_scale)
        return torch.full((), self.options["tau"], dtype=torch.float64, device=self.step.device)

    def _gamma(self, device: torch.device) -> Tensor:
        last = torch.full((), self.options["gamma"], dtype=torch.float64, device=device)
        if self.options["gamma_schedule"] == "constant":
            return last
        epoch = torch.div(self.step, self.steps_per_epoch, rounding_mode="floor").double()
        return torch.where(epoch == 0, 1.0, last + (1 - last) * _half_cosine(epoch / self._gamma_epochs()))

    def _gamma_epochs(self) -> int:
        return int(self.options["gamma_epochs"]) or max(self.epochs // 2, 1)

    def _zeta_rate(self, side: str) -> Tensor:
        """0 in the frozen epochs, then a cosine schedule; auto: constant instead, see train/loss/nuclr.c."""
        o = self.options
        frozen = o["zeta_freeze_epochs"] * self.steps_per_epoch
        moving = max(self.epochs * self.steps_per_epoch - frozen, 0)
        auto = o["zeta_lr"] == "auto"
        ratio = o["zeta_lr_image_ratio"]
        ratio = (1.0 if auto else 0.1) if ratio == "auto" else ratio
        peak = (1.0 if auto else o["zeta_lr"]) * (ratio if side == "image" else 1.0)
        done = (self.step - frozen).double()
        if auto:
            return torch.where(done >= 0, peak, 0.0)
        return torch.where(done >= 0, peak * _half_cosine(done / max(moving, 1)), 0.0) if moving else 0.0 * done


# ---- for scripts ----


def make_loss(name: str, dataset_size: int, *, max_batch: int = 4096, **options: Any) -> RankedModule:
    """GlobalContrastiveLoss(compute="float32"), on the tensors' device, if `name` is in LOSSES; else Contrastive, on the host."""
    if name in LOSSES:
        return GlobalContrastiveLoss(name, dataset_size, compute="float32", **options)
    return Contrastive(name, dataset_size, max_batch=max_batch, **options)


def check_text(model: nn.Module, tokenizer: Any, max_tokens: int) -> None:
    """Raises ValueError if the text tower of an open_clip model does not match a ccstream.Tokenizer: its vocabulary is too
    small, its context length is not max_tokens, or it would pool the features of a token other than the end token. Create
    the model with text_cfg {"vocab_size": len(tokenizer), "context_length": max_tokens, "pool_type": "eos",
    "eos_id": tokenizer.eos_id}."""
    text = getattr(model, "text", model)
    pool = getattr(text, "pool_type", getattr(model, "text_pool_type", None))
    eos = getattr(text, "eos_id", getattr(model, "text_eos_id", None))
    vocabulary, context = (getattr(text, name, getattr(model, name, None)) for name in ("vocab_size", "context_length"))
    if vocabulary is not None and vocabulary < len(tokenizer):
        raise ValueError(f"the model has {vocabulary} tokens and the tokenizer {len(tokenizer)}: set vocab_size")
    if context is not None and context != max_tokens:
        raise ValueError(f"the model has a context of {context} tokens, and rows have {max_tokens}: set max_tokens")
    if pool == "eos" and eos != tokenizer.eos_id:
        raise ValueError(f"the model pools at token {eos}, and texts end with {tokenizer.eos_id}: set eos_id")
    if pool == "argmax" and tokenizer.eos_id != len(tokenizer) - 1:
        raise ValueError(f"the model pools at the largest token id, and texts end with {tokenizer.eos_id} of "
                         f'{len(tokenizer)}: set "pool_type": "eos", "eos_id": {tokenizer.eos_id}')
