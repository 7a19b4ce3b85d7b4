"""Columns: values attached to a dataset's samples by id."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from array import array
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy

from . import _ccstream

if TYPE_CHECKING:
    from .dataset import Dataset

DTYPES = {"f32": "<f4", "f16": "<f2", "f64": "<f8", "bf16": "<u2", "i8": "i1", "u8": "u1", "i32": "<i4", "u32": "<u4",
          "i64": "<i8", "u64": "<u8"}
MAX_CAPTIONS = 1024
MAX_ROW_BYTES = 1 << 17  # of numbers
TRAILER_BYTES = 32
BLOCK_ROWS = 4096  # rows per call; the bytes of a file depend on it
BLOCK_BYTES = 16 << 20


class Caption(NamedTuple):
    text: str
    weight: float
    source: int  # index of the table's column that it comes from


class Column:
    """A column of a dataset: ds.column(name). `column[id]` is the value of one sample, `column[ids]` the values of several:
    an array whose first axis is ids, or a list of str, of lists of str (captions) or of JSON values.
    NotFoundError (a LookupError): a sample has no value.

    Numbers are memory-mapped: column[ids] is a read-only view for consecutive samples, else a copy; column.values is the
    whole column. Mapped numbers are not checked; 'ccdump verify' checks the whole column and column.get(id) one row
    (CorruptError). An open column is not affected if the column is replaced or deleted.
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
        self.shape: tuple[int, ...] = ()  # of one value; () for single numbers and texts
        if info["values"] > 0:
            vectors = info["vectors"]
            self.shape = (() if info["values"] == 1 else (info["values"],) if vectors == 1
                          else (vectors, info["values"] // vectors))
        self._path = os.path.join(dataset.path, "columns", f"{name}.ccc")
        self._mapped = self._map() if self.kind in DTYPES and self.rows > 0 else None

    @cached_property
    def ids(self) -> numpy.ndarray:
        """int64 (rows): ids of the samples that have a value, ascending."""
        out = numpy.empty(self.rows, numpy.int64)
        self._handle.fill_ids(out)
        return out

    @cached_property
    def values(self) -> numpy.ndarray:
        """(rows, *shape): the numbers of all rows in the order of ids, memory-mapped; bf16 as uint16 bits. UsageError: texts."""
        if self.kind not in DTYPES:
            raise _ccstream.UsageError(f"column '{self.name}' is {self.kind}: it has no numbers")
        if self._mapped is not None:
            return self._mapped
        return numpy.frombuffer(b"".join(self._handle.get(i) for i in self.ids), DTYPES[self.kind]).reshape((self.rows, *self.shape))

    def _map(self) -> numpy.ndarray | None:
        """The mapped numbers of the open file; None: the dataset is remote, or the file was replaced."""
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(size - TRAILER_BYTES)
                info_bytes = int.from_bytes(file.read(8), "little")
                file.seek(size - TRAILER_BYTES - info_bytes)
                if json.loads(file.read(info_bytes))["hash"] != self.hash:
                    return None
                return numpy.memmap(file, DTYPES[self.kind], "r", shape=(self.rows, *self.shape))
        except (OSError, ValueError, KeyError):
            return None

    def has(self, ids: Any) -> numpy.ndarray:
        """bool, in the shape of ids: which of them have a value."""
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
            one_run = wanted.ndim == 1 and len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1 and (numpy.diff(rows) == 1).all()
            out = self.values[rows[0] : rows[-1] + 1] if one_run else self.values[rows]
            if self.kind == "bf16":
                out = (out.astype("<u4") << 16).view("<f4")
            return out.reshape(wanted.shape + self.shape) if wanted.ndim else out[0]
        texts = [self._text(int(i)) for i in wanted.reshape(-1)]
        return texts if wanted.ndim else texts[0]

    def get(self, id: int) -> bytes:
        """The stored bytes of a sample's row, checked. NotFoundError, CorruptError."""
        return self._handle.get(id)

    def captions(self, id: int) -> list[Caption]:
        """A sample's captions with weight and source."""
        return _captions(self._handle.get(id))

    def __repr__(self) -> str:
        return f"Column({self.name!r}, {self.kind}{list(self.shape) or ''}, {self.rows} rows)"

    def _find(self, ids: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
        wanted = numpy.asarray(ids)
        live = self._dataset.ids  # removed samples have no value, although the row may still be stored
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


# The first two bytes of a row of captions: their number, and which arrays follow before the texts.
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
    """The row of a sample with these captions: (UTF-8, weight, source) each."""
    texts, weights, sources = zip(*items)
    head, arrays = len(items), b""
    if any(weight != 1 for weight in weights):
        head, arrays = head | HAS_WEIGHTS, struct.pack(f"<{len(items)}f", *weights)
    if any(sources):
        head, arrays = head | HAS_SOURCES, arrays + bytes(sources)
    return b"".join((struct.pack("<H", head), arrays, b"\0".join(texts), b"\0"))


class Writer:
    """Writes a column in blocks of rows: an array of numbers, or a list of bytes. A context manager: finish publishes the
    column; without it nothing changes."""

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
    """Number of rows of an array that one call writes."""
    return max(1, min(BLOCK_ROWS, BLOCK_BYTES * len(array) // max(array.nbytes, 1)))


def kind_of(dtype: numpy.dtype) -> str:
    """The column kind of a dtype. UsageError: no kind stores it."""
    for kind, name in DTYPES.items():
        if kind != "bf16" and numpy.dtype(name) == dtype:
            return kind
    raise _ccstream.UsageError(f"no column kind stores {dtype}; convert the numbers to one of {', '.join(DTYPES)}")


class Pending:
    """Values of samples added by ccstream.Writer, in an unnamed temporary file until the dataset is published; 16 bytes of
    memory per value, of any size. The first value determines kind and shape."""

    def __init__(self, directory: str, name: str, old: Column | None):
        self.directory, self.name = directory, name
        self.kind = old.kind if old is not None else ""
        self.shape = old.shape if old is not None else ()
        self.ids, self.ends = array("Q"), array("Q")
        self._file: IO[bytes] | None = None

    def encode(self, value: Any) -> bytes | None:
        """The row of a value; None: an empty list of captions, which is not stored. UsageError."""
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, (list, tuple)) and all(isinstance(t, (str, Caption)) for t in texts):
            self._decide("text" if isinstance(value, str) else "captions", ())
            if isinstance(value, str):
                return value.encode()
            items = [t if isinstance(t, Caption) else Caption(t, 1.0, 0) for t in texts]
            if len(items) > MAX_CAPTIONS or any(not 0 <= t.weight <= 3e38 or not 0 <= t.source < 256 for t in items) or (
                    items and not any(t.weight > 0 for t in items)):
                raise _ccstream.UsageError(f"column '{self.name}': at most {MAX_CAPTIONS:,} captions, with weights of at least 0 and not all 0, "
                                           "and sources below 256")
            return pack_captions([(t.text.encode(), t.weight, t.source) for t in items]) if items else None
        try:
            numbers = numpy.asarray(value)
        except ValueError:  # lists of different lengths
            numbers = numpy.asarray(None)
        if numbers.dtype.kind not in "iuf" or not 0 < numbers.nbytes <= MAX_ROW_BYTES:
            raise _ccstream.UsageError(f"column '{self.name}': a value is not a text, a list of texts, or numbers of at most {MAX_ROW_BYTES:,} bytes")
        if not hasattr(value, "dtype"):
            wide, numbers = numbers, numbers.astype("f4")
            if wide.dtype.kind != "f" and (numbers != wide).any():
                raise _ccstream.UsageError(f"column '{self.name}': {value} is not exact in float32; pass numpy.int64")
        self._decide(kind_of(numbers.dtype.newbyteorder("<")), numbers.shape)
        return numbers.astype(DTYPES[self.kind]).tobytes()

    def add(self, id: int, row: bytes) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self.directory)
            self._file.write(row)
        except OSError as e:
            raise _ccstream.StorageError(f"{self.directory}: the values of column '{self.name}': {e.strerror}") from None
        self.ids.append(id)
        self.ends.append((self.ends[-1] if self.ends else 0) + len(row))

    def _decide(self, kind: str, shape: tuple[int, ...]) -> None:
        if self.kind == "":
            self.kind, self.shape = kind, shape
        if (kind, shape) != (self.kind, self.shape):
            raise _ccstream.UsageError(f"column '{self.name}': a value is {kind}{list(shape) or ''}, earlier values are "
                                       f"{self.kind}{list(self.shape) or ''}")

    def publish(self, dataset: Dataset) -> None:
        """Writes the column, including its existing rows, and discards the pending values."""
        if self._file is None:
            return
        try:
            self._file.flush()
        except OSError as e:
            raise _ccstream.StorageError(f"{self.directory}: the values of column '{self.name}': {e.strerror}; it is not published") from None
        old = dataset.column(self.name) if self.name in dataset.columns else None
        here = numpy.frombuffer(self.ids, numpy.uint64) if self.ids else numpy.zeros(0, numpy.uint64)
        kept = old.ids[old.has(old.ids)].astype(numpy.uint64) if old is not None else here[:0]
        ids = numpy.concatenate([kept, here])
        order = numpy.argsort(ids, kind="stable")
        step = BLOCK_ROWS if self.kind not in DTYPES else max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(self.ends[0], 1)))
        with Writer(dataset.path, self.name, self.kind, self.shape, {"table": "ccstream.Writer", "on": "id"}, True) as w:
            for at in range(0, len(order), step):
                some = order[at : at + step]
                rows = [old.get(int(kept[i])) if old is not None and i < len(kept) else self._row(int(i) - len(kept)) for i in some]
                w.add(ids[some], rows if self.kind not in DTYPES else numpy.frombuffer(b"".join(rows), DTYPES[self.kind]))
            w.finish()
        self.close()
        self.ids, self.ends = array("Q"), array("Q")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _row(self, i: int) -> bytes:
        assert self._file is not None
        first = self.ends[i - 1] if i > 0 else 0
        return os.pread(self._file.fileno(), self.ends[i] - first, first)


def attach(dataset: Dataset, name: str, ids: Any, values: Any, replace: bool) -> None:
    wanted = numpy.asarray(ids)
    if wanted.ndim != 1 or (wanted.dtype.kind not in "iu" and len(wanted) > 0) or len(values) != len(wanted):
        raise _ccstream.UsageError("ids must be one integer per value")
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
            raise _ccstream.UsageError("values must be all texts or all lists of texts")
        with Writer(dataset.path, name, kind, (), source, replace) as w:
            for at in range(0, len(order), BLOCK_ROWS):
                some: Any = order[at : at + BLOCK_ROWS]
                if kind == "captions":  # an empty list is not stored
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
