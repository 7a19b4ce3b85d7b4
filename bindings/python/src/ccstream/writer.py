"""Makes datasets from samples in memory."""

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
    """Makes a dataset in a directory, by the rules of ccpack.

        with ccstream.Writer("out", shard_samples=10000) as w:
            w.add(image=jpeg_bytes, captions=["a dog"], metadata={"url": "..."})

    The directory is a dataset once the `with` ends, also by an exception: then it has the samples that
    were added before, and Writer(..., append=True) continues. publish() makes it one between samples, which a
    killed process then leaves. shard_samples, shard_bytes: of a shard at most. container: "tar.zst"
    or "tar". level: of zstd, 1 to 19. check: decode every image, or read its headers only.
    overwrite: replace a dataset. append: add to one; its ids stay. ExistsError: the directory is not
    empty, or another process writes to it.

    Threads may call add at once: images are decoded without the GIL. One thread alone gives the
    same shards each time. A child after fork may not use a writer (ForkedError).
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

        image: bytes of a JPEG, PNG, WebP or GIF. metadata: what JSON can express. key: its name in the
        shard, printable ASCII; for all samples or for none. id: None takes the next one. A refused
        sample leaves the writer as it was: CorruptError (image or text), UnsupportedError (kind of
        image), ExistsError (id or key is taken), LimitError, UsageError (a label beyond the classes, if they
        have names). StorageError ends it.

        columns: values by name, as Dataset.attach has them: a number (stored as float32), an array of numbers (stored as its
        own type, of one shape for all samples), a str, or captions: a list of str or ccstream.Caption. The other
        samples have no value. Columns are written after the dataset is published; those that it has are
        extended. UsageError: a value of another kind or shape than those before.
        """
        if isinstance(captions, str):
            raise TypeError("captions is a list of texts, not one text")
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
            raise _ccstream.UsageError(f"'{name}' is no name of a column: at most 32 of a-z, 0-9 and _")
        old = None
        if self._append and os.path.exists(os.path.join(directory, "columns", f"{name}.ccc")):
            with Dataset(directory) as ds:
                old = ds.column(name)
        return Pending(directory, name, old)

    def set_classes(self, names: Sequence[str]) -> None:
        """Names of the labels 0, 1, ...; once. UsageError: there is a label beyond them."""
        self._handle.set_classes(tuple(name.encode() for name in names))

    def finish(self) -> None:
        """Publishes the dataset, then its columns. UsageError: it has no sample."""
        self._handle.finish()
        self._handle.close()
        self._unpublished = 0
        if self._columns:
            with Dataset(os.fsdecode(self._options[0])) as ds:
                for column in self._columns.values():
                    column.publish(ds)

    def publish(self) -> None:
        """Publishes what was added so far, and continues in a new shard. No other thread may add meanwhile."""
        self.finish()
        self._handle = _ccstream.Writer(*self._options, False, True)
        self._append = True

    def close(self) -> None:
        """Without finish() before it: removes what was added since the last publish(), with a warning."""
        self._handle.close()
        if self._unpublished:
            warnings.warn(f"{os.fsdecode(self._options[0])}: {self._unpublished} samples were added and are removed: "
                          "finish() before close(), or `with`, keeps them", stacklevel=2)
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
            self._unpublished = 0  # whose loss the exception says
            self.close()
