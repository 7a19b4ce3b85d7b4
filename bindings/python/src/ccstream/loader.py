"""The loader: batches in host memory, in an order that can be reproduced and resumed."""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy

from . import _ccstream
from .column import DTYPES, Column
from .dataset import Dataset

_STATE = ("fingerprint", "seed", "epoch", "step", "filter", "order", "mix", "batch",
          "source_fingerprints", "source_id_offsets")


def _of_pmi() -> bool:
    try:
        os.fstat(int(os.environ["PMI_FD"]))
        return True
    except (KeyError, ValueError, OSError):
        return "PMI_PORT" in os.environ or "PMI_CONTROL_PORT" in os.environ


def _of_srun() -> bool:
    """srun's task is this process or one that it comes from."""
    pid, task = os.getpid(), os.environ.get("SLURM_TASK_PID")
    while pid > 1 and str(pid) != task:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid > 1


# What shows that a launcher started this process: variables alone may be those of an enclosing job.
_LAUNCHERS = (("RANK", "WORLD_SIZE", lambda: "MASTER_ADDR" in os.environ),
              ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
               lambda: "PMIX_NAMESPACE" in os.environ or "OMPI_MCA_orte_hnp_uri" in os.environ),
              ("PMI_RANK", "PMI_SIZE", _of_pmi), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", _of_srun))


class Batch(dict[str, Any]):
    """The arrays of a batch by name. Rows of one sample are at the same place in each:

    image       uint8 (B, S, S, 3), RGB; image2 likewise, with views=2
    tokens      int32 (B, T), padded at the end of each row; absent without tokenizer or captions
    length      int32 (B), tokens before the padding; absent likewise
    id          int64 (B), sample ids
    caption_id  int64 (B), the caption's number among those of all samples by id; -1: none
    label       int32 (B), classes; -1: none

    numpy.asarray(array) and torch.from_dlpack(array) are views of the loader's memory, and may be
    written to. The buffer is reused once the batch, its arrays and all views are gone. The next
    prefetch_factor batches may be taken while a batch is alive; copy what is kept longer.

    batch.to(device) is the batch with tensors of torch, as Lightning and accelerate move it; once ccstream.torch
    is imported, a Batch is a node of torch's pytrees.
    """

    __slots__ = ("epoch", "step", "replaced", "columns", "present", "_loader")
    epoch: int
    step: int  # of the epoch, from 0
    replaced: int  # rows whose own sample is damaged and was replaced by another one
    columns: dict[str, Any]  # values of the loader's columns: arrays, after `to` tensors
    present: dict[str, Any]  # bool: which rows have one

    def to(self, device: Any, non_blocking: bool | None = None) -> Batch:
        """The same batch with tensors on a device, columns included; epoch, step and replaced stay. On the CPU
        the tensors are views of the loader's memory. non_blocking: None is True for batches of pin_memory=True;
        the loader reuses their memory after the copy. UnsupportedError without torch."""
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
    """Batches of a dataset; one epoch for each `for`.

    dataset: a Dataset, a path, or several of them, each path "DIR" or "DIR:WEIGHT" as --data of
    ccstream-train. batch_size: rows of all ranks together, as --batch-size there; this process gets its
    part. rank, world_size: None asks torch.distributed if it is initialised, then the launcher
    (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID and their sizes), and is 0 of 1 otherwise. Variables of
    an enclosing job, whose launcher did not start this process, are ignored with a warning, and so are RANK and
    WORLD_SIZE without MASTER_ADDR, which torchrun sets too. Without a launcher, make the loader after
    torch.distributed.init_process_group, in Lightning in train_dataloader(), or pass rank and world_size.
    augment: "paper", "crop", "simclr", "clip", "eval-crop", "eval-clip", "eval-squash". order: "global" with shuffle,
    "sequential" without, or "block:SIZE:WINDOW". tokenizer: a model, its path or bytes; None: the dataset's.
    num_threads: None takes one for each CPU. pin_memory: batches in page-locked memory from torch
    (UnsupportedError without torch); where torch finds no CUDA, a warning and ordinary memory. Asynchronous copies
    of such a batch are safe if they are queued on the current stream before the next batch is taken, or by
    batch.to(): the loader reuses the memory once they are done.
    timeout: seconds to wait for a batch, then TimeoutError; None waits without end.
    caption_columns: "raw:0.3,long:0.7" draws captions from attached columns and (raw) the samples' own, by weight among
    those that a sample has.
    columns: names of attached columns of numbers, which batch.columns then has by name: an array with a row for each
    row of the batch, zeros where a sample has no value, and batch.present has bool arrays of which have one. Of several
    datasets each must have them.
    Other options as in ccstream-train and ccstream.h. The same seed gives the same pixels and tokens
    on any number of threads and ranks.

    It follows torchdata's StatefulDataLoader. state_dict() is the position after the last batch, the
    same on every rank and valid for any number of ranks and threads; the next `for` after
    load_state_dict(s) continues there. Breaking out of a loop ends its epoch; the next loop starts the next one.

    A loader is used by one thread at a time, and not by a child after fork (ForkedError).
    """

    def __init__(self, dataset: Dataset | str | os.PathLike[str] | Sequence[Dataset | str | os.PathLike[str]],
                 batch_size: int = 512, image_size: int = 256, augment: str = "paper", shuffle: bool = True,
                 seed: int = 0, rank: int | None = None, world_size: int | None = None, drop_last: bool = True,
                 num_threads: int | None = None, prefetch_factor: int = 3, pin_memory: bool = False,
                 timeout: float | None = 60.0, *, views: int = 1, positives: int = 1, order: str | None = None,
                 filter: str | None = None, captions: bool = True, clean_captions: bool = True,
                 verify_images: bool = True, max_tokens: int = 30, max_corrupt: int = 1000,
                 tokenizer: str | os.PathLike[str] | bytes | None = None, columns: Sequence[str] = (),
                 caption_columns: str | None = None):
        if rank is None and world_size is None:
            rank, world_size = _find_rank()
        if rank is None or world_size is None:
            raise _ccstream.UsageError("rank and world_size go together: give both or neither")
        for name, number in (("batch_size", batch_size), ("image_size", image_size), ("seed", seed),
                             ("num_threads", num_threads or 0), ("prefetch_factor", prefetch_factor), ("views", views),
                             ("positives", positives), ("max_tokens", max_tokens), ("max_corrupt", max_corrupt)):
            _check_count(name, number)
        if timeout is not None and not timeout >= 0:
            raise _ccstream.UsageError(f"timeout is {timeout}: expected seconds, or None to wait without end")
        if tokenizer is not None and not isinstance(tokenizer, bytes):
            with open(tokenizer, "rb") as file:
                tokenizer = file.read()
        self.rank, self.world_size = rank, world_size
        self.timeout = timeout
        allocate = _allocate_pinned() if pin_memory else None
        self.pinned = allocate is not None
        self._last: list[Any] | None = None  # pinned arrays of the last batch, until the next one is asked for
        self._copying: deque[tuple[Any, list[Any]]] = deque()  # an event, and pinned arrays that are read before it
        self._options = (_paths(dataset), batch_size, rank, world_size, image_size, augment, views, positives,
                         order or ("global" if shuffle else "sequential"), filter, captions, drop_last,
                         clean_captions, verify_images, seed, max_tokens, num_threads or 0, prefetch_factor,
                         max_corrupt, tokenizer, caption_columns, allocate)
        several = dataset if isinstance(dataset, (list, tuple)) else [dataset]
        self._columns = {name: [_open_column(d, name) for d in several] for name in columns}
        self._handle = _ccstream.Loader(*self._options)
        self._info = self._handle.info()
        self._iteration = 0  # how many times a `for` has begun
        self._inside = False  # a `for` has begun and not reached the end of its epoch

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self._info["steps"]

    def __repr__(self) -> str:
        return (f"DataLoader({self._info['samples']} samples, {len(self)} batches of {self._options[1]}, "
                f"rank {self.rank} of {self.world_size})")

    def __iter__(self) -> Iterator[Batch]:
        if self._inside:
            self.set_epoch(self.epoch + 1)
        self._iteration += 1
        iteration, epoch = self._iteration, self.epoch
        while True:
            if iteration != self._iteration:
                raise _ccstream.UsageError("this `for` has ended: another loop was started, or the position was changed")
            if self.epoch != epoch:
                return
            yield self._next(epoch)  # which no variable here keeps alive

    def _next(self, epoch: int) -> Batch:
        if self._last is not None:
            self._keep(self._last, None)
            self._last = None
        while self._copying and self._copying[0][0].query():
            self._copying.popleft()
        while True:
            try:
                arrays, *numbers = self._handle.next(self.timeout)
                break
            except _ccstream.UsageError:  # every slot is held, perhaps by copies
                if not self._copying:
                    raise
                self._copying[0][0].synchronize()
                self._copying.popleft()
        self._inside = self.epoch == epoch
        batch = Batch(arrays)
        batch.epoch, batch.step, batch.replaced = numbers
        batch._loader = self
        if self.pinned:
            self._last = list(arrays.values())
        batch.columns, batch.present = {}, {}
        if self._columns:
            ids = numpy.asarray(batch["id"])
            for name, sources in self._columns.items():
                batch.columns[name], batch.present[name] = _rows_of(sources, ids)
        return batch

    def _keep(self, arrays: list[Any], device: Any) -> None:
        """Keeps pinned arrays until what is queued on the device by now is done."""
        self._copying.append((_record_event(device), arrays))

    def _end_copies(self) -> None:
        if self._last is not None:
            self._keep(self._last, None)
            self._last = None
        while self._copying:
            self._copying[0][0].synchronize()
            self._copying.popleft()

    @property
    def epoch(self) -> int:
        """Of the next batch."""
        return self.state_dict()["epoch"]

    def set_epoch(self, epoch: int) -> None:
        """The next `for` begins this epoch. Nothing changes if the position is already in it, as after
        load_state_dict, unless a `for` was left there."""
        state = self.state_dict()
        if self._inside or state["epoch"] != epoch:
            self._seek({**state, "epoch": epoch, "step": 0})

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch: whole numbers and lists of them."""
        state = self._handle.get_state()
        if state["step"] >= len(self):
            state.update(epoch=state["epoch"] + 1, step=0)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues there. MismatchError: it belongs to another dataset, seed, order, filter or batch
        size; the text names the difference, and nothing changes."""
        missing = [name for name in _STATE if name not in state]
        if missing:
            raise _ccstream.UsageError(f"not a state of a DataLoader: it has no {missing[0]!r}")
        self._seek(state)

    def _seek(self, state: dict[str, Any]) -> None:
        numbers = [state[name] for name in _STATE]
        self._end_copies()
        try:
            self._handle.seek(*numbers)
        except _ccstream.UsageError:  # a batch is alive, which outlives its loader
            handle = _ccstream.Loader(*self._options)
            handle.seek(*numbers)
            self._handle.close()
            self._handle = handle
        self._iteration += 1
        self._inside = False

    def stats(self) -> dict[str, float]:
        """Counters since the beginning or the last change of position: samples, batches, read_bytes,
        read_requests, replaced (rows), corrupt (samples), elapsed_seconds, stall_seconds (waiting for
        batches after the first), first_batch_seconds."""
        return self._handle.stats()

    @property
    def info(self) -> dict[str, Any]:
        """samples (of an epoch), captions, id_space, fingerprint, steps, max_count (most rows of a
        batch of this rank), vocabulary, threads, sources, engine ("io_uring" or "pread")."""
        return dict(self._info)

    def close(self) -> None:
        """Stops the threads. Batches that are alive stay valid; later use raises ClosedError."""
        self._end_copies()
        self._handle.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _check_count(name: str, value: Any) -> None:
    try:
        wrong = operator.index(value) < 0
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected a whole number") from None
    if wrong:
        raise _ccstream.UsageError(f"{name} is {value}, expected 0 or more")


def _open_column(dataset, name: str) -> tuple[Column, int]:
    """The column and the dataset's id space."""
    ds = dataset if isinstance(dataset, Dataset) else None
    if ds is None:
        path = os.fspath(dataset)
        ds = Dataset(path if os.path.isdir(path) else path.rsplit(":", 1)[0])
    column = ds.column(name)
    if column.kind not in DTYPES:
        raise _ccstream.UsageError(f"column '{name}' is {column.kind}: a batch has columns of numbers")
    return column, ds.id_space


def _rows_of(sources: list[tuple[Column, int]], ids: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Ids of later datasets follow those of the ones before."""
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


def _paths(dataset) -> tuple[bytes, ...]:
    several = dataset if isinstance(dataset, (list, tuple)) else [dataset]
    return tuple(os.fsencode(d.path if isinstance(d, Dataset) else d) for d in several)


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
        why = (" (there is no MASTER_ADDR, which torchrun sets)" if ignored == "RANK" else "")
        warnings.warn(f"{ignored} is ignored: it is of an enclosing job, whose launcher did not start this process as "
                      f"one of several{why}; pass rank and world_size", stacklevel=3)
    return 0, 1


def _record_event(device: Any) -> Any:
    """An event after all that is queued on the current stream; device None: of CUDA's current device."""
    import torch
    backend = getattr(torch, device.type) if device is not None else torch.cuda
    event = backend.Event()
    event.record(backend.current_stream(device))
    return event


def _allocate_pinned():
    try:
        import torch
    except ImportError:
        raise _ccstream.UnsupportedError("pin_memory needs torch, which is not installed") from None
    if not torch.cuda.is_available():
        warnings.warn("pin_memory: torch finds no CUDA, so batches are in ordinary memory", stacklevel=3)
        return None
    return lambda size: torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
