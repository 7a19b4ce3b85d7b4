"""Makes datasets from samples in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _ccstream

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

    def add(self, image: Buffer, captions: Sequence[str] = (), metadata: dict[str, Any] | None = None,
            key: str | None = None, id: int | None = None, label: int = -1) -> int:
        """Adds one sample and returns its id.

        image: bytes of a JPEG, PNG, WebP or GIF. metadata: what JSON can express. key: its name in the
        shard, printable ASCII; for all samples or for none. id: None takes the next one. A refused
        sample leaves the writer as it was: CorruptError (image or text), UnsupportedError (kind of
        image), ExistsError (id or key is taken), LimitError, UsageError (a label beyond the classes, if they
        have names). StorageError ends it.
        """
        if isinstance(captions, str):
            raise TypeError("captions is a list of texts, not one text")
        return self._handle.add(image, [c.encode("utf-8", "surrogatepass") for c in captions],
                                None if metadata is None else json.dumps(metadata, ensure_ascii=False),
                                key, _NEXT_ID if id is None else id, label)

    def set_classes(self, names: Sequence[str]) -> None:
        """Names of the labels 0, 1, ...; once. UsageError: there is a label beyond them."""
        self._handle.set_classes(tuple(name.encode() for name in names))

    def finish(self) -> None:
        """Publishes the dataset. UsageError: it has no sample."""
        self._handle.finish()
        self._handle.close()

    def publish(self) -> None:
        """Publishes what was added so far, and continues in a new shard. No other thread may add meanwhile."""
        self.finish()
        self._handle = _ccstream.Writer(*self._options, False, True)

    def close(self) -> None:
        """Without finish() before it: removes what was added since the last publish()."""
        self._handle.close()

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
            self.close()
