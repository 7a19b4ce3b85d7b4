"""Columns: values that were joined to a dataset's samples by id."""

from __future__ import annotations

import json
import os
import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from . import _ccstream

if TYPE_CHECKING:
    from .dataset import Dataset

DTYPES = {"f32": "<f4", "f16": "<f2", "f64": "<f8", "bf16": "<u2", "i8": "i1", "u8": "u1", "i32": "<i4", "u32": "<u4",
          "i64": "<i8", "u64": "<u8"}
MAX_CAPTIONS = 1024
BLOCK_ROWS = 4096  # that one call writes: the bytes of a file depend on it
BLOCK_BYTES = 16 << 20


class Caption(NamedTuple):
    text: str
    weight: float
    source: int  # which of the table's columns it is from


class Column:
    """A column of a dataset; ds.column(name). `column[id]` is the value of a sample, `column[ids]` those of several:
    an array whose first axis is ids, or a list of str, of lists of str (captions) or of JSON values.
    NotFoundError (a LookupError): a sample has none.

    Numbers are mapped from the file and not copied until they are chosen; CorruptError is found by 'ccdump verify',
    and by ds.column(name).get(id), which checks the row. A column that is replaced stays as it was opened.
    """

    def __init__(self, dataset: Dataset, name: str):
        self.name = name
        self._handle = _ccstream.Column(dataset._handle, name)
        self._dataset = dataset
        info = self._handle.info()
        self.kind: str = info["kind"]
        self.rows: int = info["rows"]
        self.hash = f"{info['hash']:016x}"
        self.source: dict[str, Any] = json.loads(info["source"])
        self.shape: tuple[int, ...] = ()  # of a value; a text has none
        if info["values"] > 0:
            vectors = info["vectors"]
            self.shape = (() if info["values"] == 1 else (info["values"],) if vectors == 1
                          else (vectors, info["values"] // vectors))
        self._path = os.path.join(dataset.path, "columns", f"{name}.ccc")

    @cached_property
    def ids(self) -> numpy.ndarray:
        """int64 (rows): the ids of samples that have a value, ascending."""
        out = numpy.empty(self.rows, numpy.int64)
        self._handle.fill_ids(out)
        return out

    @cached_property
    def values(self) -> numpy.ndarray:
        """Numbers of all rows in the order of ids, mapped from the file; bf16 as its 16 bits."""
        if self.kind not in DTYPES:
            raise _ccstream.UsageError(f"column '{self.name}' is {self.kind}: it has no numbers")
        dtype, shape = numpy.dtype(DTYPES[self.kind]), (self.rows, *self.shape)
        if self.rows > 0 and os.path.exists(self._path):
            return numpy.memmap(self._path, dtype, "r", shape=shape)
        return numpy.frombuffer(b"".join(self._handle.get(i) for i in self.ids), dtype).reshape(shape)

    def has(self, ids: Any) -> numpy.ndarray:
        """bool: which of the ids have a value."""
        return self._find(ids)[1]

    def __len__(self) -> int:
        return self.rows

    def __contains__(self, id: int) -> bool:
        return bool(self.has([id])[0])

    def __getitem__(self, ids: Any) -> Any:
        wanted = numpy.asarray(ids)
        rows, found = self._find(wanted.reshape(-1))
        if not found.all():
            missing = wanted.reshape(-1)[~found][0]
            raise _ccstream.NotFoundError(f"sample {missing} has no value in column '{self.name}'")
        if self.kind in DTYPES:
            out = self.values[rows]
            if self.kind == "bf16":
                out = (out.astype("<u4") << 16).view("<f4")
            return out.reshape(wanted.shape + self.shape) if wanted.ndim else out[0]
        texts = [self._text(int(i)) for i in wanted.reshape(-1)]
        return texts if wanted.ndim else texts[0]

    def get(self, id: int) -> bytes:
        """The stored bytes of a sample's row, which are checked."""
        return self._handle.get(id)

    def captions(self, id: int) -> list[Caption]:
        """A sample's captions with weight and source."""
        return _captions(self._handle.get(id))

    def __repr__(self) -> str:
        return f"Column({self.name!r}, {self.kind}{list(self.shape) or ''}, {self.rows} rows)"

    def _find(self, ids: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
        wanted = numpy.asarray(ids)
        live = self._dataset.ids  # a sample that was removed has no value, though its row is still there
        if self.rows == 0 or len(live) == 0:
            return numpy.zeros(wanted.shape, int), numpy.zeros(wanted.shape, bool)
        rows = numpy.minimum(numpy.searchsorted(self.ids, wanted), self.rows - 1)
        at = numpy.minimum(numpy.searchsorted(live, wanted), len(live) - 1)
        return rows, (self.ids[rows] == wanted) & (live[at] == wanted)

    def _text(self, id: int) -> Any:
        row = self._handle.get(id)
        if self.kind == "captions":
            return [c.text for c in _captions(row)]
        text = row.decode("utf-8", "replace")
        return json.loads(text) if self.kind == "json" else text


# The head of a row of captions: their number, and which arrays follow it before the texts.
HAS_WEIGHTS, HAS_SOURCES = 0x8000, 0x4000


def _captions(row: bytes) -> list[Caption]:
    head = struct.unpack_from("<H", row)[0]
    count, at = head & ~(HAS_WEIGHTS | HAS_SOURCES), 2
    weights: tuple[float, ...] = (1.0,) * count
    sources = bytes(count)
    if head & HAS_WEIGHTS:
        weights, at = struct.unpack_from(f"<{count}f", row, at), at + 4 * count
    if head & HAS_SOURCES:
        sources, at = row[at : at + count], at + count
    texts = row[at:].split(b"\0")
    return [Caption(text.decode("utf-8", "replace"), weight, source) for text, weight, source in zip(texts, weights, sources)]


def pack_captions(items: list[tuple[bytes, float, int]]) -> bytes:
    """The row of a sample with these captions: UTF-8, weight, source."""
    texts, weights, sources = zip(*items)
    head, arrays = len(items), b""
    if any(weight != 1 for weight in weights):
        head, arrays = head | HAS_WEIGHTS, struct.pack(f"<{len(items)}f", *weights)
    if any(sources):
        head, arrays = head | HAS_SOURCES, arrays + bytes(sources)
    return b"".join((struct.pack("<H", head), arrays, b"\0".join(texts), b"\0"))


class Writer:
    """Writes a column in blocks of rows; numbers are an array, texts a list of bytes. A context: the column is
    there when finish has returned, and otherwise everything is as it was."""

    def __init__(self, dataset: str, name: str, kind: str, shape: tuple[int, ...], source: dict[str, Any],
                 replace: bool):
        values = 0 if kind not in DTYPES else int(numpy.prod(shape, dtype=int))
        if values >= 1 << 32:
            raise _ccstream.LimitError(f"column '{name}': a row of {values} numbers")
        vectors = 0 if kind not in DTYPES else shape[0] if len(shape) > 1 else 1
        self._handle = _ccstream.ColumnWriter(dataset, name, kind, json.dumps(source, separators=(",", ":"), ensure_ascii=False), values, vectors, replace)

    def add(self, ids: numpy.ndarray, rows: Any) -> None:
        ids = numpy.ascontiguousarray(ids, numpy.uint64)
        if isinstance(rows, list):
            sizes = numpy.fromiter(map(len, rows), numpy.uint64, len(rows))
            self._handle.add(ids, b"".join(rows), sizes)
        else:
            self._handle.add(ids, numpy.ascontiguousarray(rows), None)

    def finish(self) -> None:
        self._handle.finish()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._handle.close()


def block_rows(array: numpy.ndarray) -> int:
    """How many rows of an array one call writes."""
    return max(1, min(BLOCK_ROWS, BLOCK_BYTES * len(array) // max(array.nbytes, 1)))


def kind_of(dtype: numpy.dtype) -> str:
    """The kind whose numbers these are; UsageError if there is none."""
    for kind, name in DTYPES.items():
        if kind != "bf16" and numpy.dtype(name) == dtype:
            return kind
    raise _ccstream.UsageError(f"no column has numbers of {dtype}: convert them to one of {', '.join(DTYPES)}")


def attach(dataset: Dataset, name: str, ids: Any, values: Any, replace: bool) -> None:
    wanted = numpy.asarray(ids)
    if wanted.ndim != 1 or (wanted.dtype.kind not in "iu" and len(wanted) > 0) or len(values) != len(wanted):
        raise _ccstream.UsageError("ids are one whole number for each value")
    order = numpy.argsort(wanted, kind="stable")
    wanted_of = wanted
    wanted = wanted[order]
    repeated = wanted[1:][wanted[1:] == wanted[:-1]]
    if len(repeated) > 0:
        raise _ccstream.UsageError(f"id {repeated[0]} has two values")
    if len(wanted) > 0 and wanted[0] < 0:
        raise _ccstream.UsageError(f"id {wanted[0]} is below 0")
    source = {"table": "ccstream.Dataset.attach", "on": "id"}
    if isinstance(values, list) and all(isinstance(v, (str, list)) for v in values) and values:
        kind = "text" if isinstance(values[0], str) else "captions"
        if any(isinstance(v, str) != (kind == "text") for v in values):
            raise _ccstream.UsageError("values are all texts or all lists of texts")
        with Writer(dataset.path, name, kind, (), source, replace) as w:
            for at in range(0, len(order), BLOCK_ROWS):
                some: Any = order[at : at + BLOCK_ROWS]
                if kind == "captions":  # an empty list is no value
                    some = [i for i in some if values[i]]
                rows = [values[i].encode() if kind == "text" else pack_captions([(text.encode(), 1.0, 0) for text in values[i]])
                        for i in some]
                w.add(wanted_of[some], rows)
            w.finish()
        return
    array = numpy.asarray(values)
    kind = kind_of(array.dtype.newbyteorder("<"))
    with Writer(dataset.path, name, kind, array.shape[1:], source, replace) as w:
        step = block_rows(array)
        for at in range(0, len(order), step):
            w.add(wanted[at : at + step], array[order[at : at + step]].astype(DTYPES[kind]))
        w.finish()
