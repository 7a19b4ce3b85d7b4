"""ccpack attach and detach: a table's columns joined to a dataset's samples by id or key.

    table --> (id, place in the table), sorted by id --> rows, in blocks --> DATASET/columns/NAME.ccc

The table is read once to find the samples, and again, by place, for each column. Memory, whatever the values: 16 bytes
per sample for its key's hash and its id, 28 per row of the table, and the mapped index (72 per sample), which the kernel can drop. The
bytes of a column do not depend on threads, nor on the order of the table. Parquet is first written as JSON lines to a temporary file.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import re
import signal
import sys
import tempfile
import zipfile
import zlib
from array import array
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Iterator, NoReturn

import numpy

from . import Dataset, Error, ExistsError, LimitError, MismatchError, NotFoundError, StorageError, UsageError, _ccstream
from .column import BLOCK_ROWS, DTYPES, MAX_CAPTIONS, Writer, block_rows, kind_of, pack_captions

SHOWN = 10  # keys without a sample that a report lists
PIECE_ROWS = 1 << 20  # rows of the table joined at a time
MAX_TEXT_BYTES = 4 << 20
MAX_LINE_BYTES = 16 << 20
MAX_VALUES = 1 << 20  # per line or header of JSON
MAX_HEADER_BYTES = 16 << 20  # of a safetensors header
MAX_MEMBER_BYTES = 8 << 30  # per array in a .npz, which is decompressed to memory
TEXT_KINDS = ("captions", "text", "json")
# Sentences are split after . ! ? and white space, before anything except a lower-case letter.
BETWEEN_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])|(?<=[\u3002\uff01\uff1f])")
csv.field_size_limit(MAX_TEXT_BYTES)


class Fault(Exception):
    """What ends the command: exit code and message."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


class Bad(Exception):
    """What is wrong with a value."""


def _json(data: bytes) -> Any:
    """Of a stranger: each value takes up to 80 bytes of memory."""
    if sum(map(data.count, (b"[", b"{", b","))) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    return json.loads(data.decode())  # given bytes, json.loads would guess the encoding


def shown(text: str) -> str:
    """For a terminal: control characters of strangers and marks that change the direction of writing are escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


# ---- tables ----------------------------------------------------------------------------------------------------------


class TextTable:
    """Rows as dicts, found again by the byte at which they begin."""

    is_array = False

    def __init__(self, path: str):
        self.path = path
        self.file: BinaryIO = open(path, "rb")
        self.at = 3 if self.file.read(3) == b"\xef\xbb\xbf" else 0
        self.file.seek(self.at)

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        while (row := self.next()) is not None:
            yield row

    def next(self) -> tuple[int, dict[str, Any]] | None:
        raise NotImplementedError

    def read(self, place: int) -> dict[str, Any]:
        if place != self.at:
            self.file.seek(place)
            self.at = place
        row = self.next()
        assert row is not None
        return row[1]

    def fault(self, place: int, what: str) -> Fault:
        """Counts lines to say which row it is."""
        self.file.seek(0)
        number, left = 1, place
        while left > 0 and (block := self.file.read(min(left, 1 << 20))):
            number += block.count(b"\n")
            left -= len(block)
        return Fault(65, f"{self.path}: line {number}, byte {place}: {what}")

    def line(self) -> bytes:
        data = self.file.readline(MAX_LINE_BYTES + 1)
        if len(data) > MAX_LINE_BYTES:
            raise self.fault(self.at, f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
        self.at += len(data)
        return data


class Lines(TextTable):
    def next(self) -> tuple[int, dict[str, Any]] | None:
        while True:
            place, data = self.at, self.line()
            if not data:
                return None
            if data.isspace():
                continue
            try:
                row = _json(data)
            except (ValueError, RecursionError) as e:
                raise self.fault(place, f"not JSON: {e}") from None
            if not isinstance(row, dict):
                raise self.fault(place, "not a JSON object")
            return place, row


class Parquet(Lines):
    """The wanted columns as JSON lines in a temporary file: rows are then read by place, in any order."""

    def __init__(self, path: str, columns: list[str]):
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as e:
            raise Fault(69, f"{path}: reading Parquet requires pyarrow, which {sys.executable} does not have: {sys.executable} -m "
                            f"pip install pyarrow, or CCSTREAM_PYTHON=/path/to/python of another installation: {e}") from None
        self.temporary = tempfile.TemporaryFile("wb")  # unnamed, so that a killed process leaves no file
        try:
            file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)  # else pyarrow keeps the file in memory
            names = file.schema_arrow.names
            check_once(path, names, columns)
            for batch in file.iter_batches(4096, columns=[c for c in dict.fromkeys(columns) if c in names]):
                for row in batch.to_pylist() if batch.num_columns else [{}] * batch.num_rows:
                    self.temporary.write(json.dumps(row, default=_plain).encode() + b"\n")
            self.temporary.flush()
        except (pyarrow.ArrowException, OSError, TypeError, ValueError) as e:
            if isinstance(e, OSError) and e.errno:
                raise
            raise Fault(65, f"{path}: {' '.join(str(e).split())[:300]}") from None
        super().__init__(f"/proc/self/fd/{self.temporary.fileno()}")
        self.path = path

    def fault(self, place: int, what: str) -> Fault:
        text = str(super().fault(place, what))
        number = text.removeprefix(f"{self.path}: line ").split(",")[0]
        return Fault(65, f"{self.path}: row {int(number) - 1}: {what}")


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    return str(value)  # dates and decimals


class Cells(TextTable):
    def __init__(self, path: str, delimiter: str):
        super().__init__(path)
        self.delimiter = delimiter
        self.names: list[str] = []
        first = self.next()
        if first is None:
            raise Fault(65, f"{path}: has no header row")
        self.names = first[1]["cells"]

    def _text_lines(self) -> Iterator[str]:
        while data := self.line():
            yield data.decode()

    def next(self) -> tuple[int, dict[str, Any]] | None:
        while True:
            place = self.at
            try:
                cells = next(csv.reader(self._text_lines(), delimiter=self.delimiter, strict=True), None)
            except (csv.Error, UnicodeDecodeError) as e:
                raise self.fault(place, str(e)) from None
            if cells is None:
                return None
            if not cells:
                continue
            if not self.names:
                return place, {"cells": cells}
            if len(cells) != len(self.names):
                raise self.fault(place, f"{len(cells)} fields, the header row has {len(self.names)}")
            return place, dict(zip(self.names, cells))


class Arrays:
    """Arrays of .npy, .npz and safetensors, whose rows stand in one order."""

    is_array = True

    def __init__(self, path: str):
        self.path = path
        try:
            if path.endswith(".safetensors"):
                self.items = dict(_safetensors(path))
            else:
                loaded = numpy.load(path, mmap_mode="r", allow_pickle=False)
                if isinstance(loaded, numpy.ndarray):
                    self.items = {"": (loaded, "")}
                else:
                    large = next((i.filename for i in loaded.zip.infolist() if i.file_size > MAX_MEMBER_BYTES), None)
                    if large is not None:
                        raise ValueError(f"'{large}' has more than {MAX_MEMBER_BYTES >> 30} GiB; save it as .npy, which is mapped")
                    self.items = {k: (loaded[k], "") for k in loaded.files}
        except (ValueError, EOFError, KeyError, TypeError, AttributeError, ArithmeticError, RuntimeError, zipfile.BadZipFile,
                zlib.error) as e:
            raise Fault(65, f"{path}: {e}") from None

    def get(self, name: str) -> tuple[numpy.ndarray, str]:
        """The array and its kind."""
        found = self.items.get("" if "" in self.items else name)
        if found is None:
            raise Fault(64, f"{self.path}: has no array '{name}'; it has {', '.join(sorted(self.items))}")
        if found[0].ndim == 0:
            raise Fault(65, f"{self.path}: '{name}' is a single number, not an array")
        return found[0], found[1] or kind_of(found[0].dtype.newbyteorder("<"))


def _safetensors(path: str) -> Iterator[tuple[str, tuple[numpy.ndarray, str]]]:
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        header_bytes = int.from_bytes(f.read(8), "little")
        if header_bytes > min(size - 8, MAX_HEADER_BYTES):
            raise ValueError("not a safetensors file, or a truncated one")
        header = _json(f.read(header_bytes))
    for name, t in header.items():
        kind = t.get("dtype", "").lower()
        if name == "__metadata__" or kind not in DTYPES:
            continue
        begin, end = t["data_offsets"]
        if not all(isinstance(n, int) and n >= 0 for n in (begin, end, *t["shape"])):
            raise ValueError(f"'{name}' has an invalid shape or offset")
        dtype = numpy.dtype(DTYPES[kind])
        if end - begin != math.prod(t["shape"]) * dtype.itemsize or 8 + header_bytes + end > size:
            raise ValueError(f"'{name}' does not have the size of its shape")
        if begin < end:
            yield name, (numpy.memmap(path, dtype, "r", 8 + header_bytes + begin, tuple(t["shape"])), kind)


def check_once(path: str, names: list[str], columns: list[str]) -> None:
    for column in columns:
        if names.count(column) > 1:
            raise Fault(65, f"{path}: {names.count(column)} columns are named '{column}': rename all but one")


def open_table(path: str, columns: list[str]) -> TextTable | Arrays:
    end = os.path.splitext(path)[1].lower()
    if end in (".jsonl", ".ndjson"):
        return Lines(path)
    if end in (".csv", ".tsv"):
        cells = Cells(path, "," if end == ".csv" else "\t")
        check_once(path, cells.names, columns)
        return cells
    if end == ".parquet":
        return Parquet(path, columns)
    if end in (".npy", ".npz", ".safetensors"):
        return Arrays(path)
    raise Fault(64, f"{path}: a table is .jsonl, .csv, .tsv, .parquet, .npy, .npz or .safetensors")


# ---- the join --------------------------------------------------------------------------------------------------------


def hash_of(key: str) -> bytes:
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def dataset_keys(ds: Dataset, on: str) -> tuple[numpy.ndarray, numpy.ndarray, str]:
    """Hashes of the samples' keys, ascending, their ids, and the first key."""
    digests, positions, first = bytearray(), array("I"), ""
    for position in range(len(ds)):
        sample = ds[position]
        meta = sample.metadata if isinstance(sample.metadata, dict) else {}
        key = meta.get(on) if on != "key" else meta.get("key", sample.key)
        if isinstance(key, str):
            first = first or key
            digests += hash_of(key)
            positions.append(position)
    if not positions:
        raise Fault(66, f"{ds.path}: no sample has a '{on}'")
    hashes, ids = numpy.frombuffer(digests, "<u8"), ds.ids[numpy.frombuffer(positions, numpy.uint32)]
    order = numpy.argsort(hashes, kind="stable")
    hashes, ids = hashes[order], ids[order]
    del order, digests, positions
    twice = numpy.flatnonzero(hashes[1:] == hashes[:-1])
    if on == "key" and len(twice) > 0:
        a, b = sorted(ids[twice[0] : twice[0] + 2])
        raise Fault(65, f"{ds.path}: samples {a} and {b} have the same key: join on id, url or uid")
    return hashes, ids, first


def _joined(pieces: list[numpy.ndarray], dtype: Any) -> numpy.ndarray:
    """The pieces as one array; each is freed as soon as it is copied."""
    out, at = numpy.empty(sum(map(len, pieces)), dtype), 0
    while pieces:
        piece = pieces.pop(0)
        out[at : at + len(piece)] = piece
        at += len(piece)
    return out


class Join:
    """Which row of the table each sample has: ids ascending, and for each the row's number in `places`."""

    def __init__(self, ds: Dataset, table: TextTable | Arrays, on: str, column: str, explicit: bool):
        self.table, self.column, self.places = table, column, array("Q")
        if isinstance(table, Arrays):
            if on != "id":
                raise Fault(64, f"{table.path}: arrays are joined --on id")
            keys = self._array_ids(ds, table, column if explicit else None)
        else:
            keys = self._text_keys(table, on, column)
        self.rows, self.samples, self.repeated, self.matched = len(keys), len(ds), 0, 0
        if self.rows >= 1 << 32:
            raise Fault(65, f"{table.path}: more than 2^32 rows")
        hashes, hash_ids = ds.ids, ds.ids
        self.first_key = str(ds.ids[0]) if len(ds) else "none"
        if on != "id":
            hashes, hash_ids, self.first_key = dataset_keys(ds, on)
        unmatched: list[int] = []
        ids, numbers = [], []
        for at in range(0, self.rows, PIECE_ROWS):
            piece = keys[at : at + PIECE_ROWS]
            low = numpy.searchsorted(hashes, piece, "left")
            count = numpy.searchsorted(hashes, piece, "right") - low
            self.matched += int((count > 0).sum())
            if len(unmatched) < SHOWN:
                unmatched += (at + numpy.flatnonzero(count == 0)[: SHOWN - len(unmatched)]).tolist()
            within = numpy.arange(int(count.sum())) - numpy.repeat(numpy.cumsum(count) - count, count)
            ids.append(hash_ids[numpy.repeat(low, count) + within].astype(numpy.uint64))
            numbers.append(numpy.repeat(numpy.arange(at, at + len(piece), dtype=numpy.uint32), count))
        del keys, hashes, hash_ids
        self.ids = _joined(ids, numpy.uint64)
        self.number = _joined(numbers, numpy.uint32)
        if (self.ids[1:] < self.ids[:-1]).any():
            order = numpy.argsort(self.ids, kind="stable")  # stable: keeps the order of a sample's rows
            self.ids = self.ids[order]
            self.number = self.number[order]
        self.unmatched = [self._key(i) for i in unmatched]

    def _array_ids(self, ds: Dataset, table: Arrays, column: str | None) -> numpy.ndarray:
        if column is None:
            rows = len(table.get(next(iter(table.items), ""))[0])
            if rows == len(ds) != ds.id_space:  # probably one row per sample instead of one per id
                raise Fault(65, f"{table.path}: has a row for each of {rows} samples, but their ids go up to "
                                f"{ds.id_space - 1}: pass their ids, --on id=IDS.npy or the name of an array")
            return numpy.arange(rows)
        ids = Arrays(column).get("")[0] if column.endswith(".npy") else table.get(column)[0]
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise Fault(65, f"{table.path}: '{column}': ids must be one integer per row")
        if (ids.astype(numpy.int64) < 0).any():
            raise Fault(65, f"{table.path}: '{column}' has an id that is below 0 or above 2^63")
        return numpy.asarray(ids, numpy.int64)

    def _text_keys(self, table: TextTable, on: str, column: str) -> numpy.ndarray:
        digests, ids = bytearray(), array("q")
        for place, row in table.rows():
            key = row.get(column)
            if key is None:
                raise table.fault(place, f"'{column}' is missing")
            if on == "id":
                if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 20:
                    key = int(key)
                if not isinstance(key, int) or isinstance(key, bool) or not 0 <= key < 1 << 63:
                    raise table.fault(place, f"'{column}' is not an id: {json.dumps(key)[:80]}")
                ids.append(key)
            elif isinstance(key, str):
                digests += hash_of(key)
            else:
                raise table.fault(place, f"'{column}' is not a text: {json.dumps(key)[:80]}")
            self.places.append(place)
        return numpy.frombuffer(ids, numpy.int64) if on == "id" else numpy.frombuffer(digests, "<u8")

    def _key(self, row: int) -> str:
        if isinstance(self.table, Arrays):
            return str(row)
        return str(self.table.read(self.places[row]).get(self.column))

    def resolve(self, repeat: str) -> None:
        """Counts the rows of a sample after its first, and keeps one of them as asked."""
        again = self.ids[1:] == self.ids[:-1]
        self.repeated = int(again.sum())
        if self.repeated > 0 and repeat == "refuse":
            at = int(numpy.flatnonzero(again)[0])
            places = [self.where(int(self.number[i])) for i in (at, at + 1)]
            raise Fault(65, f"{self.table.path}: {places[0]} and {places[1]} both belong to sample {self.ids[at]} "
                            f"({self.repeated} such rows); pass --first, --last or, for captions, --all")
        keep = numpy.ones(len(self.ids), bool)
        if repeat == "first":
            keep[1:] = ~again
        elif repeat == "last":
            keep[:-1] = ~again
        self.with_row = len(self.ids) - self.repeated
        if not keep.all():
            self.ids, self.number = self.ids[keep], self.number[keep]

    def where(self, row: int) -> str:
        return f"row {row}" + ("" if isinstance(self.table, Arrays) else f" at byte {self.places[row]}")


# ---- values ----------------------------------------------------------------------------------------------------------


def captions_of(value: Any, source: int, sentences: bool) -> list[tuple[bytes, float, int]]:
    if isinstance(value, str) and not sentences:
        return [(_utf8(value), 1.0, source)] if value else []
    out = []
    for item in value if isinstance(value, list) else [value]:
        weight: Any = 1.0
        if isinstance(item, dict):
            pair: dict[str, Any] = item
            item, weight = pair.get("text"), pair.get("weight", 1.0)
        if item is None:
            continue
        if not isinstance(item, str):
            raise Bad('not a text, {"text", "weight"}, or a list of these')
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < 1e30:
            raise Bad("a weight must be a number of at least 0")
        for part in BETWEEN_SENTENCES.split(item) if sentences else [item]:
            if part := part.strip() if sentences else part:
                out.append((_utf8(part), weight, source))
    return out


def _utf8(text: str) -> bytes:
    if "\0" in text:
        raise Bad("a text contains a NUL character")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Bad("not UTF-8") from None


def numbers_of(value: Any, kind: str, count: int | None) -> numpy.ndarray | None:
    """None: it has no value. Texts are those of cells."""
    if isinstance(value, str):
        value = value.strip()
        if value == "":
            return None
        try:
            value = _json(value.encode()) if value[0] == "[" else int(value) if kind[0] in "iu" else float(value)
        except (ValueError, RecursionError):
            raise Bad(f"not {kind}: {value[:40]!r}") from None
    if value is None:
        return None
    items = value if isinstance(value, list) else [value]
    if any(isinstance(i, bool) or not isinstance(i, (int, float)) for i in items):
        raise Bad("not a number, nor a list of numbers")
    if count is not None and len(items) != count:
        raise Bad(f"{len(items)} numbers; other rows have {count}")
    dtype = numpy.dtype(DTYPES[kind])
    if dtype.kind == "f":
        try:
            return numpy.asarray(items, dtype)
        except OverflowError:
            raise Bad(f"out of range of {kind}") from None
    limits = numpy.iinfo(dtype)
    if any(i != int(i) or not limits.min <= i <= limits.max for i in items if math.isfinite(i)) or not all(
            map(math.isfinite, items)):
        raise Bad(f"out of range of {kind}")
    return numpy.asarray([int(i) for i in items], dtype)


class Wanted:
    """NAME[:KIND][=TABLECOLUMN,...]"""

    def __init__(self, text: str):
        left, _, columns = text.partition("=")
        self.name, _, self.kind = left.partition(":")
        self.columns = columns.split(",") if columns else [self.name]
        self.sentences = self.kind == "sentences"
        self.kind = "captions" if self.sentences else self.kind
        if self.kind and self.kind not in DTYPES and self.kind not in TEXT_KINDS:
            raise Fault(64, f"--as {text}: there is no kind '{self.kind}': {', '.join([*DTYPES, *TEXT_KINDS, 'sentences'])}")
        self.count: int | None = None


def look(join: Join, w: Wanted) -> None:
    """Finds kind and length from the first value."""
    table = join.table
    assert isinstance(table, TextTable)
    value: Any = None
    place = 0
    for number in join.number:
        place = join.places[number]
        value = table.read(place).get(w.columns[0])
        if value is not None and value != [] and value != "":
            break
    if value is None or value == "" or value == []:
        raise Fault(65, f"{table.path}: no row that matches a sample has a '{w.columns[0]}'")
    item = value[0] if isinstance(value, list) else value
    if not w.kind:
        w.kind = ("captions" if isinstance(item, str) or (isinstance(item, dict) and "text" in item)
                  else "f32" if isinstance(item, (int, float)) and not isinstance(item, bool) else "json")
    if w.kind == "bf16":
        raise Fault(64, f"{table.path}: numbers from a text table cannot be stored as bf16; use f32 or f16")
    if w.kind in DTYPES:
        if len(w.columns) > 1:
            raise Fault(64, f"column '{w.name}': a column of numbers must come from one column of the table")
        try:
            found = numbers_of(value, w.kind, None)
        except Bad as e:
            raise table.fault(place, f"'{w.columns[0]}': {e}") from None
        w.count = 0 if found is None else len(found)


def text_row(join: Join, w: Wanted, numbers: Any) -> bytes:
    """The bytes of a sample's row; empty: it has none."""
    parts: list[Any] = []  # captions: (text, weight, source)
    total, counted = 0, 0  # bytes of the first `counted` parts
    table = join.table
    assert isinstance(table, TextTable)
    for number in numbers:
        place = join.places[number]
        row = table.read(place)
        for source, column in enumerate(w.columns):
            value = row.get(column)
            try:
                if w.kind == "captions":
                    parts += captions_of(value, source, w.sentences)
                elif w.kind in DTYPES:
                    found = numbers_of(value, w.kind, w.count)
                    parts += [] if found is None else [found.tobytes()]
                elif w.kind == "json":
                    if isinstance(table, Cells) and value:
                        _json(value.encode())
                    parts += [] if value in (None, "") else [
                        value.encode() if isinstance(table, Cells) else json.dumps(value, ensure_ascii=False).encode()]
                elif value is not None and not isinstance(value, str):
                    raise Bad("not a text")
                elif value:
                    parts.append(_utf8(value))
                if len(parts) > (MAX_CAPTIONS if w.kind == "captions" else 1):
                    raise Bad("more than 1,024 captions" if w.kind == "captions" else "more than one value for a sample")
                total += sum(len(part[0]) + 8 if w.kind == "captions" else len(part) for part in parts[counted:])
                counted = len(parts)
                if w.kind not in DTYPES and total > MAX_TEXT_BYTES:
                    raise Bad("the texts of a sample exceed 4 MiB")
            except (Bad, ValueError, OverflowError, RecursionError) as e:
                raise table.fault(place, f"'{column}': {e}") from None
    if w.kind != "captions" or not parts:
        return b"".join(parts)
    if all(weight == 0 for _, weight, _ in parts):
        raise table.fault(place, f"'{w.columns[0]}': all weights are 0")
    return pack_captions(parts)


def write_text(join: Join, w: Wanted, out: Writer) -> int:
    """Rows are made here, and compressed by another thread."""
    pending: Future[None] | None = None
    rows_written = 0
    starts = numpy.flatnonzero(numpy.concatenate([[True], join.ids[1:] != join.ids[:-1]]))
    ends = numpy.append(starts[1:], len(join.ids))
    with ThreadPoolExecutor(1) as other:
        for at in range(0, len(starts), BLOCK_ROWS):
            ids, rows = [], []
            for a, b in zip(starts[at : at + BLOCK_ROWS], ends[at : at + BLOCK_ROWS]):
                row = text_row(join, w, join.number[a:b])
                if row:
                    ids.append(join.ids[a])
                    rows.append(row)
            if pending is not None:
                pending.result()
            data: Any = rows if w.kind in TEXT_KINDS else numpy.frombuffer(b"".join(rows), DTYPES[w.kind])
            pending = other.submit(out.add, numpy.asarray(ids, numpy.uint64), data)
            rows_written += len(ids)
        if pending is not None:
            pending.result()
    return rows_written


def write_array(join: Join, array_: numpy.ndarray, out: Writer) -> int:
    step = block_rows(array_)
    for at in range(0, len(join.ids), step):
        out.add(join.ids[at : at + step], array_[join.number[at : at + step]])
    return len(join.ids)


def attach_column(ds: Dataset, join: Join, w: Wanted, o: argparse.Namespace) -> dict[str, Any]:
    source = {"table": os.path.basename(join.table.path), "bytes": os.path.getsize(join.table.path), "on": o.on,
              "columns": w.columns, "table_rows": join.rows, "matched": join.matched, "repeated": join.repeated,
              "samples": join.samples}
    if isinstance(join.table, Arrays):
        found, kind = join.table.get(w.columns[0])
        if w.kind and w.kind != kind:
            raise Fault(64, f"{join.table.path}: is {kind}, not {w.kind}; convert the array first, for example with a.astype()")
        if len(found) < join.rows:
            raise Fault(65, f"{join.table.path}: '{w.columns[0]}' has {len(found)} rows, not {join.rows}")
        w.kind = kind
        shape: tuple[int, ...] = found.shape[1:]
    else:
        look(join, w)
        shape = (w.count or 0,) if w.kind in DTYPES else ()
    if o.repeat == "all" and w.kind != "captions":
        raise Fault(64, f"column '{w.name}': --all is for captions only")
    rows = 0
    if not o.dry_run:
        with Writer(ds.path, w.name, w.kind, shape, source, o.replace) as out:
            rows = (write_array(join, found, out) if isinstance(join.table, Arrays) else write_text(join, w, out))
            out.finish()
    return {"name": w.name, "kind": w.kind, "shape": [int(n) for n in shape], "rows": rows}


# ---- the commands ----------------------------------------------------------------------------------------------------


HELP = {"attach": """\
ccpack attach: joins the columns of a table to the samples of a dataset by id or key

usage: ccpack attach DATASET TABLE --on KEY[=TABLECOLUMN] --as NAME[:KIND][=TABLECOLUMN,...]

Options:
      --on KEY[=TABLECOLUMN]  identifier by which rows are joined to samples: id, key, url, uid,
                              sha256, or meta.NAME, a field of the samples' metadata. TABLECOLUMN:
                              its name in TABLE, if that differs [default id]
      --as NAME[:KIND][=TABLECOLUMN,...]
                              new column NAME, from these columns of TABLE (default: the one called
                              NAME). KIND: captions, sentences (captions that are split into one per
                              sentence), text, json, f32, f16, f64, i8, u8, i32, i64, ...; default:
                              the kind of TABLE's first value [may be repeated]

Several rows for one sample are an error, unless:
      --first                 the first is used
      --last                  the last is used
      --all                   all are used, as several captions

Output:
      --replace               replace existing columns
      --dry-run               only report which rows match
      --json                  report as JSON on stdout
  -q, --quiet                 errors only

Always:
  -h, --help                  this text
      --version               name and version

TABLE is JSON lines (.jsonl), .csv or .tsv with a header row, .parquet (needs pyarrow), or arrays
(.npy, .npz, .safetensors), whose row i belongs to id i. With --on id=NAME the ids are in array NAME
or in the file NAME.npy, as 'ccstream-eval embed' writes it.

Values are stored in DATASET/columns; shards and fingerprint do not change, so runs on DATASET can
be resumed. Samples without a row have no value. A column is replaced as a whole or not at all.
Remote datasets are read-only: attach to a local copy, and upload it.

Needs Python 3.11 and NumPy. docs/columns.md shows what columns are for.

Examples:
  ccpack attach cc3m recaptions.jsonl --on key --as long=caption_long
  ccpack attach cc3m captions.csv --on 'url=Image Path' --as \\
      short=shortIB_captions,shortSV_captions --as long=longSV_captions
  ccpack attach cc3m teacher.npy --as teacher
""", "detach": """\
ccpack detach: deletes a column of a dataset

usage: ccpack detach DATASET NAME

Always:
  -h, --help     this text
      --version  name and version

Examples:
  ccpack detach cc3m teacher
"""}


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Fault(64, f"{message}; '{self.prog} --help' lists every option")

    def parse(self, words: list[str]) -> argparse.Namespace:
        """As parse_args, which would ask for what is missing before it names an unknown option."""
        known = {option for action in self._actions for option in action.option_strings}
        for word in words:
            if word.startswith("-") and word.split("=")[0] not in known:
                self.error(f"no option {word.split('=')[0]!r}")
        return self.parse_args(words)


def parse_attach(arguments: list[str]) -> argparse.Namespace:
    p = Parser(prog="ccpack attach", add_help=False)
    p.add_argument("dataset")
    p.add_argument("table")
    p.add_argument("--on", default="id")
    p.add_argument("--as", dest="wanted", action="append", default=[])
    for name in ("first", "last", "all"):
        p.add_argument(f"--{name}", dest="repeat", action="store_const", const=name, default="refuse")
    for name in ("replace", "dry-run", "json"):
        p.add_argument(f"--{name}", action="store_true")
    p.add_argument("--quiet", "-q", action="store_true")
    return p.parse(arguments)


def attach(arguments: list[str]) -> None:
    o = parse_attach(arguments)
    o.on, explicit, column = o.on.partition("=")
    on = o.on.removeprefix("meta.")
    wanted = [Wanted(text) for text in o.wanted]
    if not wanted:
        raise Fault(64, "pass --as NAME")
    if len({w.name for w in wanted}) < len(wanted):
        raise Fault(64, "two --as options have the same name")
    check_local(o.dataset)
    with Dataset(o.dataset) as ds:
        there = ds.columns
        for w in wanted:
            if w.name in there and not o.replace:
                raise Fault(73, f"{ds.path}: a column '{w.name}' exists; pass --replace to replace it")
        table = open_table(o.table, [column or on] + [c for w in wanted for c in w.columns])
        join = Join(ds, table, on, column or on, bool(explicit))
        if join.rows == 0:
            raise Fault(66, f"{o.table}: has no rows")
        if join.matched == 0:
            raise Fault(66, f"{o.table}: no row matches a sample of {ds.path}: the table's keys are {', '.join(join.unmatched[:5])}, "
                            f"the dataset's {join.first_key}, ...; keys such as 000012345 are valid only within one download")
        join.resolve(o.repeat)
        made = [attach_column(ds, join, w, o) for w in wanted]
    report = {"table": o.table, "rows": join.rows, "matched": join.matched, "unmatched": join.rows - join.matched,
              "unmatched_keys": join.unmatched, "repeated": join.repeated, "samples": join.samples,
              "samples_without": join.samples - join.with_row, "columns": made}
    if o.json:
        print(json.dumps(report))
    if not o.quiet:
        for c in made:
            shape = f" {c['shape']}" if c["shape"] else ""
            print(shown(f"{o.dataset}: column '{c['name']}', {c['kind']}{shape}, {c['rows']:,} rows"), file=sys.stderr)
        keys = f" ({', '.join(join.unmatched)}{', ...' if report['unmatched'] > SHOWN else ''})" if join.unmatched else ""
        print(shown(f"{o.table}: {join.rows:,} rows, {join.matched:,} matched, {report['unmatched']:,} without a sample{keys}, "
                    f"{join.repeated:,} repeated; {report['samples_without']:,} samples without a row"), file=sys.stderr)


def check_local(dataset: str) -> None:
    if "://" in dataset:
        raise Fault(64, f"{dataset}: a remote dataset is read-only: attach to the folder that it was uploaded from and upload its "
                        f"folder 'columns' too; or attach to a copy, made by 'ccpack subset {dataset} --where \"id >= 0\" -o DIR'")


def detach(arguments: list[str]) -> None:
    p = Parser(prog="ccpack detach", add_help=False)
    p.add_argument("dataset")
    p.add_argument("name")
    o = p.parse(arguments)
    check_local(o.dataset)
    _ccstream.remove_column(o.dataset, o.name)


def exit_code(e: BaseException) -> int:
    codes: list[tuple[type, int]] = [
        (UsageError, 64), (ExistsError, 73), (NotFoundError, 66), (MismatchError, 65), (LimitError, 65), (StorageError, 74),
        (Error, 65), (FileNotFoundError, 66), (OSError, 74), (MemoryError, 71)]
    return e.code if isinstance(e, Fault) else next(code for kind, code in codes if isinstance(e, kind))


def main() -> None:
    command = sys.argv[1]
    if {"-h", "--help"} & set(sys.argv[2:]):
        print(HELP[command], end="")
        return
    if "--version" in sys.argv[2:]:
        print(f"ccpack {_ccstream.version()} (ccstream)")
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        (attach if command == "attach" else detach)(sys.argv[2:])
    except KeyboardInterrupt:
        print(f"ccpack {command}: interrupted; incomplete columns are unchanged", file=sys.stderr)
        sys.exit(130)
    except (Fault, Error, OSError, MemoryError) as e:
        text = f"{e.filename}: {e.strerror}" if isinstance(e, OSError) and e.filename else str(e)
        print(shown(f"ccpack {command}: {text}"), file=sys.stderr)
        sys.exit(exit_code(e))
