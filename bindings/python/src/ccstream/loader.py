"""The loader: batches in host memory, in a reproducible, resumable order."""

from __future__ import annotations

import json
import operator
import os
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy

from . import _ccstream
from ._stage import Stage
from .column import DTYPES, Column
from .dataset import Dataset
from .norms import Norm, find_norm

_STATE = ("fingerprint", "seed", "epoch", "step", "filter", "order", "mix", "batch",
          "source_fingerprints", "source_id_offsets")


def _of_pmi() -> bool:
    try:
        os.fstat(int(os.environ["PMI_FD"]))
        return True
    except (KeyError, ValueError, OSError):
        return "PMI_PORT" in os.environ or "PMI_CONTROL_PORT" in os.environ


def _of_srun() -> bool:
    """Whether srun started this process or one of its ancestors."""
    pid, task = os.getpid(), os.environ.get("SLURM_TASK_PID")
    while pid > 1 and str(pid) != task:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid > 1


# Evidence that a launcher started this process. Its variables alone may belong to an enclosing job.
_LAUNCHERS: tuple[tuple[str, str, Callable[[], bool]], ...] = (
    ("RANK", "WORLD_SIZE", lambda: "MASTER_ADDR" in os.environ),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     lambda: "PMIX_NAMESPACE" in os.environ or "OMPI_MCA_orte_hnp_uri" in os.environ),
    ("PMI_RANK", "PMI_SIZE", _of_pmi), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", _of_srun))


class Batch(dict[str, Any]):
    """The arrays of a batch by name. All arrays have the same row order:

    image       uint8 (B, S, S, 3), RGB, or as given by dtype, norm and layout; image2 likewise, with views=2; absent with views=0
    tokens      int32 (B, T), padded at the end of each row; absent without a tokenizer or captions
    length      int32 (B), number of tokens before the padding; absent likewise
    id          int64 (B), sample ids
    caption_id  int64 (B), number of the caption among the captions of all samples in id order; -1: none
    label       int32 (B), class labels; -1: none
    caption     int32 (B), index of the caption among its sample's captions, from 0; for a caption from a column 65536 plus the
                column's index in caption_columns, from 0, not counting raw

    The option `fields` adds lists of B items: text (str, captions as stored), encoded (bytes, images as stored), key (str),
    metadata (parsed JSON; None: none). If the tokenizer is a function, tokens is its result, and further results have
    their own names.

    numpy.asarray(array) and torch.from_dlpack(array) are writable views of the loader's memory. The buffer is reused once
    the batch, its arrays and all views are gone. While a batch is alive, the loader can deliver prefetch_factor more
    batches; copy what you keep longer.

    batch.to(device) returns torch tensors, as Lightning and accelerate expect. Once ccstream.torch is imported, a Batch is
    a pytree node of torch.
    """

    __slots__ = ("epoch", "step", "replaced", "columns", "present", "_loader")
    epoch: int
    step: int  # number of the batch in the epoch, from 0
    replaced: int  # rows whose sample is damaged and was replaced by another one
    columns: dict[str, Any]  # values of the loader's columns (B, ...): arrays, after `to` tensors
    present: dict[str, Any]  # bool (B): which rows have a value
    _loader: DataLoader

    def to(self, device: Any, non_blocking: bool | None = None) -> Batch:
        """Returns the same batch, including columns, as tensors on a device; epoch, step and replaced do not change.
        On the CPU the tensors are views of the loader's memory. non_blocking: None: True for batches with
        pin_memory=True; the loader reuses their memory after the copy. UnsupportedError without torch."""
        try:
            from .torch import move_batch
        except ImportError:
            raise _ccstream.UnsupportedError("Batch.to needs torch, which is not installed") from None
        return move_batch(self, device, non_blocking)

    def __missing__(self, name: str) -> _ccstream.Array:
        why = (": the dataset has no tokenizer, which `ccpack tokenizer` makes and tokenizer=... passes, or no captions"
               if name in ("tokens", "length") else f": it has {', '.join(self)}")
        raise KeyError(f"no {name!r} in this batch{why}")


class DataLoader:
    """Batches of one or several datasets; each `for` loop is one epoch.

    dataset: a Dataset, a path, or a sequence of these; a path is "DIR" or "DIR:WEIGHT", as --data of ccstream-train.
    batch_size: global batch size: rows per batch over all ranks. This process receives its part, which is one row less on
        some ranks if their number does not divide it. UsageError: fewer rows than ranks.
    drop_last: omit the last batch of an epoch if it is not full; False: deliver it, divided likewise, with a warning if some
        ranks receive no row of it.
    image_size: side of the square images in pixels. Also {epoch: size} or a function of the epoch, if the size changes;
        {0: 128, 5: 224}: 224 from epoch 5 on.
    augment: "paper", "crop", "simclr", "clip"; for evaluation "eval-crop", "eval-clip", "eval-longest", "eval-squash".
    shuffle, order: order "global" (default with shuffle), "sequential" (default without), or "block:SIZE:WINDOW".
    rank, world_size: None: from torch.distributed if it is initialised, else from the launcher (RANK,
        OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID and their sizes), else 0 and 1. Variables of an enclosing job whose
        launcher did not start this process are ignored with a warning, as are RANK and WORLD_SIZE without MASTER_ADDR,
        which torchrun also sets. Without a launcher, create the loader after torch.distributed.init_process_group (in
        Lightning: in train_dataloader()), or pass rank and world_size.
    num_threads: decoding threads; None: one per CPU. prefetch_factor: batches prepared in advance.
    pin_memory: batches in page-locked memory from torch (UnsupportedError without torch; without CUDA a warning and
        ordinary memory). Asynchronous copies of such a batch are safe if they are queued on the current stream before the
        next batch is requested, or by batch.to(): the loader reuses the memory after they are done.
    timeout: seconds to wait for a batch before TimeoutError; None: no limit.
    views: augmented views per image, 1 or 2; 0: deliver only ids and captions; images are not read unless fields contains
        "encoded".
    positives: consecutive rows per sample, each with its own crop and caption.
    tokenizer: path or bytes of a model, or "clip"; None: the dataset's. Also a function of a list of captions, such as a
        tokenizer of open_clip, or of Hugging Face with its options bound by functools.partial. The function runs on a loader
        thread, ahead of the loop, and returns an array or tensor (B, T), or a mapping with "input_ids" and others.
        max_tokens and clean_captions do not apply to it.
    caption: 0-based number of the caption to use (modulo the sample's number of captions); None: a random one.
    caption_columns: "raw:0.3,long:0.7" samples captions from attached columns and (raw) the samples' own captions, by weight
        among those that a sample has. "raw+long" with positives=2: one row of each sample has an own caption, the
        other one of column long.
    columns: names of attached numeric columns to deliver. batch.columns[name] is an array with one row per row of the
        batch, zeros for samples without a value; batch.present[name] is a bool array, true for samples with a value. With
        several datasets, each must have the columns.
    crop_scale: (min, max), the range of the fraction of an image's area that a random crop covers; interpolation:
        "bilinear", "bicubic" or "lanczos"; None: the augmentation's own.
    dtype: of images: "uint8", "float16", "bfloat16" or "float32"; floats are x / 255, or with norm (a name of NORMS, or
        (means, stds)) (x / 255 - mean) / std. layout: "nhwc", "nchw", or "channels_last", which is (B, 3, S, S) in the memory
        layout of nhwc. The loader's threads do the conversion.
    subset: ids of the samples of an epoch, or a mask over all samples in id order. weights: how often each sample, in
        id order, occurs per epoch on average (0.3: in three of ten epochs; 2.5: two or three times). Either may be a
        function of the epoch that returns such an array, equal on all ranks. It is called before the first batch of an
        epoch, also by state_dict() after the last one. If a sample occurs several times, each occurrence is a separate
        row with the same crop and caption. Both are part of the position: an interrupted epoch continues only with the
        same samples.
    fields: additional contents of batches: "text", "encoded", "key", "metadata"; the last two read each sample a second
        time.

    Other options are as in ccstream-train and ccstream.h. Pixels and tokens depend only on the seed, not on the number of
    threads and ranks. UsageError: a wrong option; NotFoundError, CorruptError, MismatchError: the dataset or its tokenizer.

    The interface follows torchdata's StatefulDataLoader. state_dict() returns the position after the last batch,
    which is equal on all ranks and valid for any number of ranks and threads; after load_state_dict(s) the next `for`
    loop continues there. Breaking out of a loop ends its epoch; the next loop starts the next one.

    A loader may be used by one thread at a time, and not in a child process after fork (ForkedError).
    """

    def __init__(self, dataset: Dataset | str | os.PathLike[str] | Sequence[Dataset | str | os.PathLike[str]],
                 batch_size: int = 512, image_size: int | Mapping[int, int] | Callable[[int], int] = 256, augment: str = "paper", shuffle: bool = True,
                 seed: int = 0, rank: int | None = None, world_size: int | None = None, drop_last: bool = True,
                 num_threads: int | None = None, prefetch_factor: int = 3, pin_memory: bool = False,
                 timeout: float | None = 60.0, *, views: int = 1, positives: int = 1, order: str | None = None,
                 filter: str | None = None, captions: bool = True, clean_captions: bool = True,
                 verify_images: bool = True, max_tokens: int = 30, max_corrupt: int = 1000,
                 tokenizer: str | os.PathLike[str] | bytes | Callable[[list[str]], Any] | None = None,
                 columns: Sequence[str] = (), caption_columns: str | None = None,
                 crop_scale: tuple[float, float] | None = None, interpolation: str | None = None,
                 dtype: Literal["uint8", "float16", "bfloat16", "float32"] = "uint8", norm: str | Norm | None = None,
                 layout: Literal["nhwc", "nchw", "channels_last"] = "nhwc", subset: Any = None, weights: Any = None,
                 caption: int | None = None, fields: Sequence[str] = ()):
        if rank is None and world_size is None:
            rank, world_size = _find_rank()
        if rank is None or world_size is None:
            raise _ccstream.UsageError("pass both rank and world_size, or neither")
        for name, number in (("batch_size", batch_size), ("seed", seed),
                             ("num_threads", num_threads or 0), ("prefetch_factor", prefetch_factor), ("views", views),
                             ("positives", positives), ("max_tokens", max_tokens), ("max_corrupt", max_corrupt),
                             ("caption", caption or 0)):
            _check_count(name, number)
        if timeout is not None and not timeout >= 0:
            raise _ccstream.UsageError(f"timeout is {timeout}: expected seconds, or None for no limit")
        if 0 < batch_size < world_size:
            raise _ccstream.UsageError(f"batch_size {batch_size} is the global batch size and must be at least {world_size}, the number of ranks")
        if crop_scale is not None and (isinstance(crop_scale, (int, float)) or len(crop_scale) != 2):
            raise _ccstream.UsageError(f"crop_scale is {crop_scale}: expected (min, max)")
        columns = [columns] if isinstance(columns, str) else columns
        _check_choice("layout", layout, ("nhwc", "nchw", "channels_last"))
        _check_choice("dtype", dtype, ("uint8", "float16", "bfloat16", "float32"))
        for name in (fields := [fields] if isinstance(fields, str) else list(fields)):
            _check_choice("fields", name, ("text", "encoded", "key", "metadata"))
        function = tokenizer if callable(tokenizer) else None
        model = tokenizer if isinstance(tokenizer, bytes) else None
        path = None if tokenizer is None or model or function else os.fsdecode(tokenizer)  # type: ignore[arg-type]
        if not captions and (function or "text" in fields):
            raise _ccstream.UsageError("the tokenizer function and the field 'text' require captions=True")
        if subset is not None and weights is not None:
            raise _ccstream.UsageError("pass either subset or weights; a weight of 0 excludes a sample")
        self.rank, self.world_size = rank, world_size
        self.timeout = timeout
        allocate = _allocate_pinned() if pin_memory else None
        self.pinned = allocate is not None
        self._last: list[Any] | None = None  # pinned arrays of the last batch, until the next is requested
        self._copying: deque[tuple[Any, list[Any]]] = deque()  # (event, pinned arrays in use until the event)
        several = _listed(dataset)
        needs_work = bool(function or "key" in fields or "metadata" in fields)
        self._datasets = ([_open(d) for d in several] if needs_work or columns or subset is not None or weights is not None
                          else [])
        self._work = _Work({name: _columns_of(self._datasets, name) for name in columns}, self._datasets, function, fields)
        self._staged = needs_work
        size_of = _function_of_epoch(image_size)
        self._chosen = subset if subset is not None else weights
        self._weighted = weights is not None
        changes = (callable(self._chosen) or weights is not None or callable(image_size)
                   or isinstance(image_size, Mapping))
        floats = find_norm(norm) if norm is not None else None
        low, high = crop_scale if crop_scale is not None else (0.0, 0.0)
        ahead = min(64, prefetch_factor + 2) if needs_work else prefetch_factor

        def options(epoch: int, ids: numpy.ndarray | None) -> tuple[Any, ...]:  # without self, so that it keeps no reference
            size = size_of(epoch)
            _check_count("image_size", size)
            return (tuple(map(_path_of, several)), batch_size, rank, world_size, size, augment, views, positives,
                    order or ("global" if shuffle else "sequential"), filter, captions, drop_last,
                    clean_captions, verify_images, seed, max_tokens, num_threads or 0, ahead,
                    max_corrupt, model, caption_columns, path, -1 if caption is None else caption, function is None,
                    function is not None or "text" in fields, "encoded" in fields, layout == "nchw",
                    layout == "channels_last", dtype, floats, low, high, interpolation, ids,
                    epoch + 1 if changes else 0, allocate)

        self._make_options, self._changes = options, changes
        self._seed = seed
        self._batch_size, self._drop_last = batch_size, drop_last
        self._stage: tuple[Stage, Callable[[], Any]] | None = None  # the stage, and the function that ends it
        self._at: dict[str, Any] | None = None  # with a stage: the position after the last batch
        self._iteration = 0  # number of `for` loops started
        self._inside = False  # a `for` loop is within its epoch
        self._open(0)

    def _open(self, epoch: int) -> None:
        """Opens the loader at the start of an epoch."""
        self._options = self._make_options(epoch, self._ids_of(epoch))
        handle = _ccstream.Loader(*self._options)
        self._info = handle.info()
        last = self._info["samples"] % self._batch_size
        if 0 < last < self.world_size and not self._drop_last:
            warnings.warn(f"the last batch of an epoch has {last} rows, and some of {self.world_size} ranks receive none; "
                          "use drop_last=True, or another batch_size", stacklevel=3)
        self._opened = epoch
        self._handle = handle

    def _ids_of(self, epoch: int) -> numpy.ndarray | None:
        """uint64: ids of the samples of an epoch, ascending; None: all samples."""
        if self._chosen is None:
            return None
        name = "weights" if self._weighted else "subset"
        values = numpy.asarray(self._chosen(epoch) if callable(self._chosen) else self._chosen)
        offsets = _offsets(self._datasets)
        every = numpy.concatenate([d.ids + offset for d, offset in zip(self._datasets, offsets)])
        if values.ndim != 1 or (self._weighted or values.dtype == bool) and len(values) != len(every):
            raise _ccstream.UsageError(f"{name} has shape {values.shape}: expected {len(every)} values, one per sample"
                                       + ("" if self._weighted else ", or ids"))
        if self._weighted:
            values = values.astype(numpy.float64)
            if not (numpy.isfinite(values).all() and (values >= 0).all()):
                raise _ccstream.UsageError("weights must be finite numbers, 0 or more")
            draws = numpy.random.Generator(numpy.random.Philox(key=[self._seed, epoch])).random(len(values))
            counts = (numpy.floor(values) + (draws < values % 1)).astype(numpy.int64)
            chosen: numpy.ndarray = numpy.repeat(every, counts).astype(numpy.uint64)
            return chosen
        if values.dtype == bool:
            chosen = every[values].astype(numpy.uint64)
            return chosen
        if values.dtype.kind not in "iu" or len(values) and values.min() < 0:
            raise _ccstream.UsageError(f"subset is of {values.dtype}: expected ids, 0 or more, or one bool per sample")
        chosen = numpy.sort(values).astype(numpy.uint64)
        return chosen

    def __len__(self) -> int:
        """Number of batches per epoch."""
        steps: int = self._info["steps"]
        return steps

    def __repr__(self) -> str:
        return (f"DataLoader({self._info['samples']} samples, {len(self)} batches of {self._batch_size}, "
                f"rank {self.rank} of {self.world_size})")

    def __iter__(self) -> Iterator[Batch]:
        if self._inside:
            self.set_epoch(self.epoch + 1)
        self._prepare(self.epoch)
        self._iteration += 1
        iteration, epoch = self._iteration, self.epoch
        while True:
            if iteration != self._iteration:
                raise _ccstream.UsageError("this `for` loop is no longer valid: another loop was started, or the position was changed")
            if self.epoch != epoch:
                return
            yield self._next(epoch)  # no variable here keeps the batch alive

    def _next(self, epoch: int) -> Batch:
        if self._last is not None:
            self._keep(self._last, None)
            self._last = None
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()
        batch = self._take_staged() if self._staged else self._take()
        self._inside = self.epoch == epoch
        batch._loader = self
        if self.pinned:
            self._last = [a for a in batch.values() if isinstance(a, _ccstream.Array)]
        return batch

    def _take(self) -> Batch:
        while True:
            try:
                batch = _make_batch(self._handle.next(self.timeout))
                break
            except _ccstream.UsageError:  # every batch is held, perhaps by pending copies
                if not self._copying:
                    raise
                self._copying[0][0].synchronize()
                self._copying.popleft()
        return self._work(batch)

    def _take_staged(self) -> Batch:
        if self._stage is None:
            handle, work = self._handle, self._work

            def take(seconds: float) -> tuple[Batch, dict[str, Any]]:
                return _make_batch(handle.next(seconds)), handle.get_state()

            self._at = handle.get_state()
            stage = Stage(take, lambda pair: (work(pair[0]), pair[1]), 1)
            self._stage = stage, weakref.finalize(self, stage.drop)
        while len(self._copying) > 1:
            self._copying[0][0].synchronize()
            self._copying.popleft()
        batch: Batch
        batch, self._at = self._stage[0].get(self.timeout)
        return batch

    def _end_stage(self) -> None:
        if self._stage is not None:
            self._stage[1]()
            self._stage = None
        self._at = None

    def _keep(self, arrays: list[Any], device: Any) -> None:
        """Keeps pinned arrays until the work queued on the device so far is done."""
        self._copying.append((_record_event(device), arrays))

    def _end_copies(self) -> None:
        if self._last is not None:
            self._keep(self._last, None)
            self._last = None
        while self._copying:
            self._copying[0][0].synchronize()
            self._copying.popleft()

    def _position(self) -> dict[str, Any]:
        state = dict(self._at) if self._at is not None else self._handle.get_state()
        if state["step"] >= len(self):
            state.update(epoch=state["epoch"] + 1, step=0)
        return state

    @property
    def epoch(self) -> int:
        """Epoch of the next batch."""
        epoch: int = self._position()["epoch"]
        return epoch

    def set_epoch(self, epoch: int) -> None:
        """The next `for` loop starts this epoch. Has no effect if the position is already in this epoch, as after
        load_state_dict, unless a loop was broken out of there."""
        _check_count("epoch", epoch)
        if self._inside or self.epoch != epoch:
            self._move(epoch, None)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the last batch: a dict of integers and lists of integers."""
        state = self._position()
        if state["epoch"] != self._opened and self._changes:
            self._prepare(state["epoch"])
            state = self._position()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at this position. Raises MismatchError, and changes nothing, if it belongs to another dataset,
        seed, order, filter, subset or batch size; the message names the difference."""
        missing = [name for name in _STATE if name not in state]
        if missing:
            raise _ccstream.UsageError(f"not a state of a DataLoader: it has no {missing[0]!r}")
        self._move(state["epoch"], state)

    def _prepare(self, epoch: int) -> None:
        """Applies what changes with the epoch, if the position is at the start of another one."""
        if self._changes and epoch != self._opened:
            self._move(epoch, None)

    def _move(self, epoch: int, state: dict[str, Any] | None) -> None:
        """Moves to a state of this epoch; None: to its start."""
        self._end_copies()
        at = self._at
        self._end_stage()
        old = (self._handle, self._info, self._options, self._opened)
        try:
            if self._changes and epoch != self._opened:
                self._open(epoch)
            state = {**self._handle.get_state(), "epoch": epoch, "step": 0} if state is None else state
            self._seek(state)
        except BaseException:
            if self._handle is not old[0]:
                self._handle.close()
                self._handle, self._info, self._options, self._opened = old
            if at is not None:  # the stage holds batches that were not delivered
                self._seek(at)
            raise
        if self._handle is not old[0]:
            old[0].close()
        self._iteration += 1
        self._inside = False

    def _seek(self, state: dict[str, Any]) -> None:
        numbers = [state[name] for name in _STATE]
        try:
            self._handle.seek(*numbers)
        except _ccstream.UsageError:  # a batch is still held: it may outlive its loader
            handle = _ccstream.Loader(*self._options)
            handle.seek(*numbers)
            self._handle.close()
            self._handle = handle

    def stats(self) -> dict[str, float]:
        """Counters since the start or the last change of position: samples, batches, read_bytes, read_requests, replaced
        (rows), corrupt (samples), elapsed_seconds, stall_seconds (waiting for batches, excluding the first),
        first_batch_seconds."""
        return self._handle.stats()

    @property
    def info(self) -> dict[str, Any]:
        """samples (per epoch), captions, id_space, fingerprint, steps, max_count (maximum rows per batch on this
        rank), vocabulary, threads, sources, engine ("io_uring" or "pread")."""
        return dict(self._info)

    def close(self) -> None:
        """Stops the threads. Existing batches remain valid; later use of the loader raises ClosedError."""
        self._end_copies()
        self._end_stage()
        self._handle.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a DataLoader has threads and cannot be pickled: send its state_dict(), and create one in each process")

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _check_count(name: str, value: Any) -> None:
    try:
        wrong = operator.index(value) < 0
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an integer") from None
    if wrong:
        raise _ccstream.UsageError(f"{name} is {value}, expected 0 or more")


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise _ccstream.UsageError(f"{name}: {value!r}, expected one of {', '.join(choices)}")


def _listed(dataset: Dataset | str | os.PathLike[str] | Sequence[Dataset | str | os.PathLike[str]]
            ) -> list[Dataset | str | os.PathLike[str]]:
    return [dataset] if isinstance(dataset, (Dataset, str, os.PathLike)) else list(dataset)


def _function_of_epoch(value: int | Mapping[int, int] | Callable[[int], int]) -> Callable[[int], int]:
    if callable(value):
        return value
    if not isinstance(value, Mapping):
        return lambda epoch: value
    steps = sorted(value.items())
    if not steps or steps[0][0] != 0:
        raise _ccstream.UsageError("a mapping from epochs must begin with epoch 0")
    return lambda epoch: [v for first, v in steps if first <= epoch][-1]


def _make_batch(parts: tuple[dict[str, Any], int, int, int]) -> Batch:
    batch = Batch(parts[0])
    batch.epoch, batch.step, batch.replaced = parts[1:]
    batch.columns, batch.present = {}, {}
    return batch


class _Work:
    """Processes a batch of the extension before it is delivered. Holds no reference to the loader."""

    def __init__(self, columns: dict[str, list[tuple[Column, int]]], datasets: list[Dataset],
                 tokenizer: Callable[[list[str]], Any] | None, fields: list[str]):
        self._columns, self._datasets, self._tokenizer, self._fields = columns, datasets, tokenizer, fields
        self._ends = numpy.array([d.id_space + offset for d, offset in zip(datasets, _offsets(datasets))], numpy.int64)

    def __call__(self, batch: Batch) -> Batch:
        ids = numpy.asarray(batch["id"])
        for name, sources in self._columns.items():
            batch.columns[name], batch.present[name] = _rows_of(sources, ids)
        if self._tokenizer is not None:
            self._tokenize(batch)
        if "key" in self._fields or "metadata" in self._fields:
            samples = [self._sample(id) for id in ids.tolist()]
            if "key" in self._fields:
                batch["key"] = [s["key"] for s in samples]
            if "metadata" in self._fields:
                batch["metadata"] = [json.loads(s["metadata"]) if s["metadata"] else None for s in samples]
        return batch

    def _sample(self, id: int) -> dict[str, Any]:
        at = int(numpy.searchsorted(self._ends, id, side="right"))
        dataset = self._datasets[at]
        handle = dataset._handle
        return handle.get(handle.find(id - (int(self._ends[at]) - dataset.id_space)))

    def _tokenize(self, batch: Batch) -> None:
        assert self._tokenizer is not None
        texts = batch["text"] if "text" in self._fields else batch.pop("text")
        made = self._tokenizer(texts)
        parts = dict(made) if hasattr(made, "keys") else {"input_ids": made}
        if "input_ids" not in parts:
            raise _ccstream.UsageError(f"the tokenizer returned {', '.join(map(str, parts))}: expected an array or 'input_ids'")
        parts = {"tokens": parts.pop("input_ids"), **parts}
        for name, values in parts.items():
            values = numpy.asarray(values) if isinstance(values, (list, tuple)) else values
            if not hasattr(values, "shape") or len(values.shape) < 1 or values.shape[0] != len(texts):
                shape = getattr(values, "shape", type(values).__name__)
                raise _ccstream.UsageError(f"the tokenizer's {name!r} of {len(texts)} captions is {tuple(shape) if not isinstance(shape, str) else shape}: "
                                           f"expected {len(texts)} rows, padded to one length")
            batch[name] = values


def _open(dataset: Dataset | str | os.PathLike[str]) -> Dataset:
    """Opens a dataset given as Dataset, "DIR" or "DIR:WEIGHT"."""
    if isinstance(dataset, Dataset):
        return dataset
    path = os.fspath(dataset)
    return Dataset(path if os.path.isdir(path) else path.rsplit(":", 1)[0])


def _offsets(datasets: list[Dataset]) -> list[int]:
    """Offset of each dataset's ids: the sum of the id spaces before it."""
    return [sum(d.id_space for d in datasets[:i]) for i in range(len(datasets))]


def _columns_of(datasets: list[Dataset], name: str) -> list[tuple[Column, int]]:
    """The column in each dataset, with the dataset's id space."""
    out = []
    for ds in datasets:
        column = ds.column(name)
        if column.kind not in DTYPES:
            raise _ccstream.UsageError(f"column '{name}' is {column.kind}: only columns of numbers can be delivered in batches")
        out.append((column, ds.id_space))
    return out


def _rows_of(sources: list[tuple[Column, int]], ids: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Values and presence per id; ids of later datasets are offset by the id spaces before them."""
    first = sources[0][0]
    values = numpy.zeros((len(ids), *first.shape), first.values.dtype)
    present = numpy.zeros(len(ids), bool)
    offset = 0
    for column, id_space in sources:
        rows, found = column._find(ids.astype(numpy.int64) - offset)
        values[found] = column.values[rows[found]]
        present |= found
        offset += id_space
    return values, present


def _path_of(dataset: Dataset | str | os.PathLike[str]) -> bytes:
    return os.fsencode(dataset.path if isinstance(dataset, Dataset) else dataset)


def _find_rank() -> tuple[int, int]:
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    ignored = None
    for rank, size, started in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            if started():
                return int(os.environ[rank]), int(os.environ[size])
            ignored = ignored or (rank if os.environ[size] != "1" else None)
    if os.environ.get("SLURM_NTASKS", "1") != "1" and "SLURM_PROCID" in os.environ:
        ignored = ignored or "SLURM_PROCID"
    if ignored:
        why = (" (MASTER_ADDR, which torchrun sets, is missing)" if ignored == "RANK" else "")
        warnings.warn(f"{ignored} is ignored: it belongs to an enclosing job, whose launcher did not start this process as "
                      f"one of several{why}; pass rank and world_size", stacklevel=3)
    return 0, 1


def _record_event(device: Any) -> Any:
    """An event after everything queued on the device's current stream; device None: the current CUDA device."""
    import torch
    backend = getattr(torch, device.type) if device is not None else torch.cuda
    event = backend.Event()
    event.record(backend.current_stream(device))
    return event


def _allocate_pinned() -> Callable[[int], Any] | None:
    try:
        import torch
    except ImportError:
        raise _ccstream.UnsupportedError("pin_memory needs torch, which is not installed") from None
    if not torch.cuda.is_available():
        warnings.warn("pin_memory: torch finds no CUDA device; batches are in ordinary memory", stacklevel=3)
        return None
    return lambda size: torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
