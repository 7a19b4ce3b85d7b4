"""Datasets and their samples."""

from __future__ import annotations

import base64
import html
import json
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, overload

import numpy

from . import _ccstream
from . import column as _column

_FORMATS = {1: "jpeg", 2: "png", 3: "webp", 4: "gif"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample as stored."""

    id: int
    position: int
    key: str  # its name in the shard
    image: bytes  # compressed, as stored
    captions: list[str]
    metadata: Any  # parsed JSON; None: none
    label: int  # class label; -1: none
    width: int  # in pixels, after the EXIF rotation; 0: unknown
    height: int
    format: str  # "jpeg", "png", "webp" or "gif"
    image_hash: int  # XXH64 of the image

    def __repr__(self) -> str:  # omits the image's bytes
        shown = (f"{f.name}=<{len(self.image)} bytes>" if f.name == "image" else f"{f.name}={getattr(self, f.name)!r}"
                 for f in fields(self))
        return f"Sample({', '.join(shown)})"


    def _repr_html_(self) -> str:
        """In a notebook: the image and its captions."""
        image = base64.b64encode(self.image).decode()
        lines = "".join(f"<li>{html.escape(caption)}</li>" for caption in self.captions)
        return (f'<img src="data:image/{self.format};base64,{image}" style="max-height:16em"/>'
                f"<div>id {self.id}, {html.escape(self.key)}, {self.width} x {self.height}</div><ul>{lines}</ul>")


class Dataset:
    """A packed dataset, open for reading: a directory written by ccpack or Writer, or a location (https://, s3://, hf://).
    ds[i] is the sample at position i, from 0 to len(ds) - 1 in the order of ids. The id of a sample never changes; its
    position changes when samples are added or removed.

    Any number of threads may use one dataset, and so may a child process after fork. NotFoundError: no such directory;
    CorruptError, VersionError: it cannot be read, with the reason.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        self._handle = _ccstream.Dataset(self.path)
        self._info = self._handle.info()

    def __len__(self) -> int:
        """Number of samples, without removed ones."""
        return self._info["samples"]

    @overload
    def __getitem__(self, position: int) -> Sample: ...
    @overload
    def __getitem__(self, position: slice) -> list[Sample]: ...
    def __getitem__(self, position: int | slice) -> Sample | list[Sample]:
        """Reads the sample at a position and checks it against its hash; for a slice a list of samples.
        IndexError: beyond the end; CorruptError, StorageError."""
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        s = self._handle.get(self._position(position))
        s["metadata"] = json.loads(s["metadata"]) if s["metadata"] else None
        s["format"] = _FORMATS.get(s["format"], "unknown")
        return Sample(**s)

    def by_id(self, id: int) -> Sample:
        """The sample with this id. NotFoundError (a LookupError): no sample has it, or it was removed."""
        return self[self._handle.find(id)]

    def captions(self, position: int) -> list[str]:
        """The captions of the sample at a position. Faster than ds[position]: the image is not read. Same errors."""
        return self._handle.captions(self._position(position))

    @cached_property
    def ids(self) -> numpy.ndarray:
        """int64 (len(ds)): the id at every position, ascending."""
        out = numpy.empty(len(self), numpy.int64)
        self._handle.fill_ids(out)
        return out

    @property
    def fingerprint(self) -> str:
        """Hash of ids, images and captions, 16 hexadecimal digits, as printed by ccdump info."""
        return f"{self._info['fingerprint']:016x}"

    @property
    def id_space(self) -> int:
        """Exclusive upper bound of the sample ids: the length of per-sample arrays."""
        return self._info["id_space"]

    @property
    def info(self) -> dict[str, int]:
        """Counts: samples, captions, id_space, image_bytes, shards, classes; and tokenizer, 1 if the dataset has one."""
        return dict(self._info)

    @cached_property
    def classes(self) -> list[str]:
        """Names of the labels 0, 1, ...; empty if the dataset has none."""
        return [self._handle.class_name(label) or "" for label in range(self._info["classes"])]

    @property
    def columns(self) -> list[str]:
        """Names of the attached columns in alphabetical order; of a remote dataset those in its columns/names.txt."""
        return self._handle.columns()

    def column(self, name: str) -> _column.Column:
        """An attached column: ds.column("teacher")[ids]. NotFoundError; MismatchError: it is attached to another dataset."""
        return _column.Column(self, name)

    def attach(self, name: str, ids: Any, values: Any, *, replace: bool = False) -> None:
        """Attaches a column atomically: values[i] belongs to sample ids[i].

        ids: any of the dataset's ids, in any order, each at most once.
        values: an array whose first axis is ids (float16 to float64, or integers), a list of str, or a list of lists of
            str, which become captions.
        ExistsError: the column exists and replace is False, or another process is writing to the dataset; NotFoundError: no
        sample has an id; UsageError: a repeated id, or values of another kind.
        """
        _column.attach(self, name, ids, values, replace)

    def detach(self, name: str) -> None:
        """Deletes a column. NotFoundError; ExistsError: another process is writing to the dataset."""
        _ccstream.remove_column(self.path, name)

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """A DataFrame with one row per sample, indexed by id: captions, and the attached columns in `columns` (None: all;
        missing values where a sample has none). Images are not read. UnsupportedError: pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise _ccstream.UnsupportedError("to_pandas needs pandas, which is not installed") from None
        frame = pandas.DataFrame({"captions": [self.captions(i) for i in range(len(self))]}, index=pandas.Index(self.ids, name="id"))
        for name in self.columns if columns is None else columns:
            column = self.column(name)
            ids = self.ids[column.has(self.ids)]
            values = column[ids]
            frame[name] = pandas.Series(list(values) if numpy.ndim(values) != 1 else values, index=ids)
        return frame

    def close(self) -> None:
        """Releases files and memory. Any later use raises ClosedError."""
        self._handle.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Dataset], tuple[str]]:
        return Dataset, (self.path,)

    def __repr__(self) -> str:
        return f"Dataset({self.path!r}, {len(self)} samples, fingerprint {self.fingerprint})"

    def _position(self, position: int) -> int:
        index = operator.index(position)
        if not -len(self) <= index < len(self):
            raise IndexError(f"position {index} of a dataset with {len(self)} samples")
        return index % len(self)
