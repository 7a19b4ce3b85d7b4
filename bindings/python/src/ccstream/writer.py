"""Writes datasets from samples in memory."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _ccstream
from .column import Pending
from .dataset import Dataset

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NEXT_ID = 2**64 - 1


class Writer:
    """Writes a dataset to a directory, by the rules of ccpack.

        with ccstream.Writer("out", shard_samples=10000) as w:
            w.add(image=jpeg_bytes, captions=["a dog"], metadata={"url": "..."})

    The directory becomes a dataset when the `with` block ends. If an exception ends the block, the dataset holds the
    samples added so far, and Writer(..., append=True) continues it. publish() makes it a dataset in between, so that a
    killed process leaves the samples published so far.

    shard_samples, shard_bytes: maximum number of samples and size per shard. container: "tar.zst" or "tar". level: zstd
    compression level of the texts, 1 to 19. check: decode every image; False: check only its headers. overwrite: replace an
    existing dataset. append: add to one, with ids above its own. ExistsError: the directory is not empty, or another
    process is writing to it.

    Several threads may call add at once: images are decoded without the GIL. Only a single thread gives identical shards
    each time. A writer cannot be used in a child process after fork (ForkedError).
    """

    def __init__(self, directory: str | os.PathLike[str], shard_samples: int = 10000, *,
                 shard_bytes: int = 1 << 30, container: str = "tar.zst", level: int = 3, check: bool = True,
                 overwrite: bool = False, append: bool = False):
        self._options = (os.fsencode(directory), shard_samples, shard_bytes, container, level, check)
        self._handle = _ccstream.Writer(*self._options, overwrite, append)
        self._append = append
        self._columns: dict[str, Pending] = {}
        self._lock = threading.Lock()
        self._unpublished = 0  # samples

    def add(self, image: Buffer, captions: Sequence[str] = (), metadata: dict[str, Any] | None = None,
            key: str | None = None, id: int | None = None, label: int = -1,
            columns: Mapping[str, Any] | None = None) -> int:
        """Adds one sample and returns its id.

        image: the bytes of a JPEG, PNG, WebP or GIF file. metadata: anything JSON can express. key: the sample's name in the
        shard, 1 to 80 bytes of printable ASCII; either all samples have one or none. id: None: one more than the largest so far. label:
        class, -1: none. A refused sample leaves the writer unchanged: CorruptError (image or text), UnsupportedError (image
        format), ExistsError (the id or key is taken), LimitError, UsageError (also a label beyond named classes).
        After StorageError the writer is unusable.

        columns: values of attached columns by name, as in Dataset.attach: a number (stored as float32), an array of numbers
        (stored as its own dtype; one shape for all samples), a str, or captions as a list of str or ccstream.Caption. Samples
        without a value have no row. Columns are written after the dataset is published; existing columns are extended.
        UsageError: a value of another kind or shape than the earlier ones.
        """
        if isinstance(captions, str):
            raise TypeError("captions must be a list of texts, not one text")
        rows = self._rows(columns or {})
        number = self._handle.add(image, [c.encode("utf-8", "surrogatepass") for c in captions],
                                  None if metadata is None else json.dumps(metadata, ensure_ascii=False),
                                  key, _NEXT_ID if id is None else id, label)
        with self._lock:
            self._unpublished += 1
            for column, row in rows:
                column.add(number, row)
        return number

    def _rows(self, values: Mapping[str, Any]) -> list[tuple[Pending, bytes]]:
        with self._lock:
            for name in values:
                if name not in self._columns:
                    self._columns[name] = self._pending(name)
            rows = [(self._columns[name], self._columns[name].encode(value)) for name, value in values.items()]
        return [(column, row) for column, row in rows if row is not None]

    def _pending(self, name: str) -> Pending:
        directory = os.fsdecode(self._options[0])
        if len(name) > 32 or not name or not set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_"):
            raise _ccstream.UsageError(f"'{name}' is not a valid column name: use at most 32 of a-z, 0-9 and _")
        old = None
        if self._append and os.path.exists(os.path.join(directory, "columns", f"{name}.ccc")):
            with Dataset(directory) as ds:
                old = ds.column(name)
        return Pending(directory, name, old)

    def set_classes(self, names: Sequence[str]) -> None:
        """Names the labels 0, 1, ...; at most once. UsageError: a sample has a label beyond them, or a name is repeated."""
        self._handle.set_classes(tuple(name.encode() for name in names))

    def finish(self) -> None:
        """Publishes the dataset, then its columns. UsageError: no sample was added."""
        self._handle.finish()
        self._handle.close()
        self._unpublished = 0
        if self._columns:
            with Dataset(os.fsdecode(self._options[0])) as ds:
                for column in self._columns.values():
                    column.publish(ds)

    def publish(self) -> None:
        """Publishes the samples added so far and continues in a new shard. No other thread may call add during it."""
        self.finish()
        self._handle = _ccstream.Writer(*self._options, False, True)
        self._append = True

    def close(self) -> None:
        """Closes the writer. Without finish() before it, the samples added since the last publish() are removed,
        with a warning."""
        self._handle.close()
        if self._unpublished:
            warnings.warn(f"{os.fsdecode(self._options[0])}: {self._unpublished} unpublished samples were removed; "
                          "call finish() before close(), or use `with`", stacklevel=2)
            self._unpublished = 0
        for column in self._columns.values():
            column.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, exception: BaseException | None, *where: object) -> None:
        try:
            self.finish()
        except _ccstream.Error:  # no sample, or the storage failed
            if exception is None:
                raise
        else:
            if exception is not None:
                exception.add_note(f"{os.fsdecode(self._options[0])} has the samples that were added before: "
                                   "Writer(..., append=True) continues")
        finally:
            self._unpublished = 0  # the exception reports their loss
            self.close()
