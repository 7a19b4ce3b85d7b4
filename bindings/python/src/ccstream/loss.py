"""Losses on NumPy arrays, and the per-sample state of checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy

from . import _ccstream

_KINDS: tuple[type, ...] = (numpy.float32, numpy.uint64, numpy.uint64)


def _whole_ids(ids: Any, none: bool = False) -> numpy.ndarray:
    """ids as uint64; none: -1 becomes 2**64 - 1."""
    given = numpy.asarray(ids)
    if given.size > 0 and given.dtype.kind not in "iu":
        raise _ccstream.UsageError(f"ids are {given.dtype}, expected integers")
    if given.dtype.kind == "i" and given.size > 0 and given.min() < (-1 if none else 0):
        raise _ccstream.UsageError(f"id {given.min()} is below 0, at position {given.argmin()}")
    return numpy.ascontiguousarray(given).astype(numpy.uint64)


class _Columns(Mapping[str, numpy.ndarray]):
    """Columns by name: float32 or uint64 (ids)."""

    _handle: Any  # _ccstream.Loss or State

    def _describe(self) -> dict[str, tuple[int, int]]:
        columns: dict[str, tuple[int, int]] = self._handle.columns()
        return columns

    def __getitem__(self, name: str) -> numpy.ndarray:
        """A copy of a column. NotFoundError (a LookupError) if there is none."""
        kind, ids = self._describe().get(name, (0, 0))
        out: numpy.ndarray = numpy.empty(ids, _KINDS[kind])
        self._handle.read(name, out)
        return out

    def __contains__(self, name: object) -> bool:
        return name in self._describe()

    def __iter__(self) -> Iterator[str]:
        return iter(self._describe())

    def __len__(self) -> int:
        return len(self._describe())


class State(_Columns):
    """The per-sample state of a checkpoint, by column name: state["text.zeta"] has shape (id_space).

    path: a checkpoint of ccstream-train, a run directory (its newest checkpoint), or a file of Loss.save. Samples that no
    step has visited have NaN in float32 columns and 0 in "visits"; columns of ids have 2**64 - 1 for none.
    first_caption: None, or for a run with --text-state caption an array (id_space + 1): columns of texts then have
    one entry per caption; those of id i are first_caption[i] to first_caption[i + 1] - 1: first its own captions,
    then one per column of --caption-columns.
    NotFoundError, CorruptError, VersionError.
    """

    _handle: _ccstream.State

    def __init__(self, path: str | os.PathLike[str]):
        self._handle = _ccstream.State(os.fsencode(path))
        info = self._handle.info()
        self.loss: str = info["loss"]
        self.step: int = info["step"]  # completed steps
        self.fingerprint = f"{info['fingerprint']:016x}"  # the dataset's, as Dataset.fingerprint
        self.samples: int = info["samples"]
        self.id_space: int = info["id_space"]
        first = info["first_caption"]
        self.first_caption = None if first is None else numpy.frombuffer(first, numpy.uint64)


class LossStep(NamedTuple):
    """Result of a step of a Loss."""

    gradient: numpy.ndarray  # float32, d value / d similarity, of the same shape
    value: float  # loss of the batch; weights computed from the state are constants in its gradient
    objective: float  # estimate of the loss over the whole dataset
    tau: float  # temperature of this step; if per sample, the mean over the batch
    image_gradient: numpy.ndarray | None = None  # float32 (B, B), for image_similarity; None without it
    text_gradient: numpy.ndarray | None = None
    carried_gradient: numpy.ndarray | None = None  # float32 (2, B), for carried_similarity; None without it


def _option_texts(options: Mapping[str, float | str | None]) -> tuple[bytes, ...]:
    """tau_plus=0.1 as b"tau-plus=0.1"; 5.0 as 5, since integer options accept no decimal point. None: not given."""
    out = []
    for key, value in options.items():
        whole = isinstance(value, float) and value.is_integer()
        if value is not None:
            out.append(f"{key.replace('_', '-')}={int(value) if whole else value}".encode())
    return tuple(out)


def loss_options(name: str, *, views: bool = False, **options: float | str | None) -> dict[str, float | str]:
    """The options that a loss reads, with their values: as given, else the loss's defaults. Names are as of Loss, plus
    zeta_lr, zeta_lr_image_ratio and zeta_freeze_epochs, as in ccstream-train; gamma_epochs and beta_epochs are 0 unless
    given. UsageError: an unknown loss, an option that it does not read, or a value out of range."""
    values = _ccstream.loss_options(name, views, _option_texts(options))
    return {key.replace("-", "_"): value for key, value in values.items()}


class Loss(_Columns):
    """A contrastive loss of ccstream-train on NumPy arrays, with its per-sample state: loss["image.log_u"] is a column of
    it. For tensors with autograd use ccstream.torch.GlobalContrastiveLoss or Contrastive.

    name: as --loss of ccstream-train. dataset_size: number of samples, at least 2. id_space: larger than every id; None:
    dataset_size. max_batch: largest number of pairs per step, 2 to 32768. views: True: two views of images instead of
    pairs. options: the loss's options as in ccstream-train, with underscores. Differences: gamma_epochs and beta_epochs have no
    default; learning rates of zeta are passed to each step instead, except zeta_lr="auto" (tau / (t + 2) at visit t of a
    sample, at least tau / 10), which accepts zeta_freeze_epochs. UsageError. One thread at a time.

    beyond: whether each anchor needs an off-batch sample, which the caller encodes with the current model: "named" (emc2:
    those returned by `carried`), "drawn" (negcache: the caller samples j with probability proportional to
    exp(similarity / tau) from its own cached features of all samples; cache_refresh has no effect) or "" (no).
    """

    _handle: _ccstream.Loss

    def __init__(self, name: str, dataset_size: int, *, id_space: int | None = None, max_batch: int = 4096,
                 views: bool = False, **options: float | str):
        self._handle = _ccstream.Loss(name, views, _option_texts(options), dataset_size, id_space or dataset_size, max_batch)
        self.beyond = ("", "named", "drawn")[self._handle.beyond()]

    def carried(self, ids: numpy.ndarray) -> numpy.ndarray:
        """uint64 (2, B): id of the off-batch sample that each anchor of a batch with these ids (B) needs in its next step, row
        0 for images or first views as anchors, row 1 for texts or second views; 2**64 - 1: none. UnsupportedError: `beyond`
        is not "named"."""
        own = _whole_ids(ids)
        out = numpy.empty((2, own.size), numpy.uint64)
        self._handle.carried(out, own)
        return out

    def step(self, similarity: numpy.ndarray, ids: numpy.ndarray, *, step: int = 0, epoch: int = 0, lr: float = 0.0,
             zeta_lr_image: float = 0.0, zeta_lr_text: float = 0.0, image_similarity: numpy.ndarray | None = None,
             text_similarity: numpy.ndarray | None = None, carried_ids: numpy.ndarray | None = None,
             carried_similarity: numpy.ndarray | None = None, update: bool = True) -> LossStep:
        """Computes value and gradient, and updates the state unless update is False.

        similarity: (B, B), row i image i, column j text j, of L2-normalised embeddings; with two views (2B, 2B), all views with
            all, first views first.
        ids: (B), below the id space.
        lr: the model's learning rate, used for learned scalars.
        zeta_lr_image, zeta_lr_text: learning rates of zeta in this step, 1 with zeta_lr="auto"; 0: zeta is frozen.
        image_similarity, text_similarity: (B, B), images with images and texts with texts; only for cyclip, which requires them.
        carried_ids, carried_similarity: (2, B), only for losses with off-batch samples: ids as of `carried`, and the
            similarity of each anchor with its off-batch sample.
        CorruptError: a similarity is not finite; UsageError: a wrong shape, or an id outside the id space.
        """
        if (image_similarity is None) != (text_similarity is None):
            raise _ccstream.UsageError("pass both image_similarity and text_similarity, or neither")
        similarity = numpy.ascontiguousarray(similarity, numpy.float32)
        gradient = numpy.empty_like(similarity)
        own = [x for x in (image_similarity, text_similarity) if x is not None]
        if any(numpy.shape(x) != similarity.shape for x in own):
            raise _ccstream.UsageError("image_similarity and text_similarity must have the shape of similarity")
        if (carried_ids is None) != (carried_similarity is None):
            raise _ccstream.UsageError("pass both carried_ids and carried_similarity, or neither")
        far = _whole_ids([] if carried_ids is None else carried_ids, none=True)
        far_similarity = numpy.zeros(0, numpy.float32)
        if carried_similarity is not None:
            far_similarity = numpy.ascontiguousarray(carried_similarity, numpy.float32)
        far_gradient = numpy.empty_like(far_similarity)
        selves = numpy.array(own, numpy.float32)
        self_gradients = numpy.empty_like(selves)
        numbers = self._handle.step(similarity, gradient, selves, self_gradients,
                                    _whole_ids(ids), far, far_similarity,
                                    far_gradient, step, epoch, lr, zeta_lr_image, zeta_lr_text, not update)
        image, text = self_gradients if own else (None, None)
        return LossStep(gradient, *numbers, image, text, far_gradient if carried_ids is not None else None)

    def write(self, name: str, values: numpy.ndarray) -> None:
        """Sets the first len(values) entries of a column. NotFoundError."""
        kind, _ = self._describe().get(name, (0, 0))
        self._handle.write(name, numpy.ascontiguousarray(values, _KINDS[kind]))

    @property
    def scalars(self) -> dict[str, float]:
        """State that is not per sample, such as "image.xi"."""
        return self._handle.scalars()

    def set_scalar(self, name: str, value: float) -> None:
        self._handle.set_scalar(name, value)

    def save(self, path: str | os.PathLike[str], fingerprint: str, step: int) -> None:
        """Writes the state atomically as a checkpoint without a model, which State, `ccdump state` and `ccdump popularity`
        read. fingerprint: the dataset's; step: number of completed steps. ExistsError: path exists and is not such a file;
        StorageError."""
        self._handle.save(os.fsencode(path), int(fingerprint, 16), step)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Loads a file of save, or a checkpoint of ccstream-train. MismatchError: another loss, or a larger id space."""
        self._handle.load(os.fsencode(path))
