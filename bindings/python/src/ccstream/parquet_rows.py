"""Writes the rows of a Parquet file as plain buffers to a pipe, for ccpack, which runs this text with
`python3 -c TEXT FILE`. It needs pyarrow and nothing else of this package.

    python3 -m ccstream.parquet_rows FILE           prints the columns and their kinds

Output on stdout, all numbers little-endian:

    header: "CCSROWS1", u64 number of rows, u32 number of columns; per column its kind, u32 size of its name, its name
    frames: u32 number of rows, at least 1; for each selected column
        one byte per row: 0 null, 1 present, 2 longer than a value may be
        rows + 1 u32 offsets, of which only the differences count; the bytes from the first to the last offset
    end:    u32 0, u64 number of values that were not finite numbers and became null

After the header it reads one line from stdin: the indices of the selected columns. Kinds: T text; B bytes; J a value as
JSON; L a list of texts, each as u32 size and bytes; X not supported (lists of other types, structs, maps, decimals). A
struct with `bytes`, as Hugging Face stores images, is a column B, and its `path` a separate column NAME.path. Columns are
converted as a whole, without work per row except for lists.
"""
import sys

if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p not in ("", ".")]  # import nothing from the current folder

import os
import struct
from collections.abc import Callable
from typing import IO, Any

VALUE_BYTES = 64 << 20  # longest value; longer ones are marked 2
FRAME_BYTES = 32 << 20  # size of a frame, unless a single row is larger
FRAME_ROWS = 65536


def columns_of(schema: Any, pa: Any, pc: Any) -> list[tuple[str, bytes, Any, str, Any]]:
    """Each column as (name, kind, function of a table column, ...); a struct of an image becomes two."""
    t = pa.types

    def texts(k: Any) -> bool:
        return bool(t.is_string(k) or t.is_large_string(k) or t.is_string_view(k))

    def binary(k: Any) -> bool:
        return bool(t.is_binary(k) or t.is_large_binary(k) or t.is_binary_view(k) or t.is_fixed_size_binary(k))

    def kind(k: Any) -> bytes:
        if texts(k):
            return b"T"
        if binary(k):
            return b"B"
        if t.is_integer(k) or t.is_floating(k) or t.is_boolean(k):
            return b"J"
        if t.is_temporal(k) and not t.is_duration(k):
            return b"T"
        if (t.is_list(k) or t.is_large_list(k) or t.is_fixed_size_list(k)) and texts(k.value_type):
            return b"L"
        return b"X"

    out: list[tuple[str, bytes, Any, str, Any]] = []
    for f in schema:
        k = f.type.value_type if t.is_dictionary(f.type) else f.type
        names = [g.name for g in k] if t.is_struct(k) else []
        if "bytes" in names and binary(k.field("bytes").type):
            for part, name in (("bytes", f.name), ("path", f.name + ".path")):
                if part in names and kind(k.field(part).type) in (b"B", b"T"):
                    part_type = k.field(part).type
                    out.append((name, kind(part_type), part_type, f.name, lambda a, p=part: pc.struct_field(a, p)))
        else:
            out.append((f.name, kind(k), k, f.name, (lambda a: a.dictionary_decode()) if k is not f.type else None))
    return out


def finite(a: Any, pa: Any, pc: Any) -> tuple[Any, int]:
    """Numbers as JSON; (text, how many were not finite)."""
    bad = 0
    if pa.types.is_float16(a.type):
        a = a.cast(pa.float32())
    if pa.types.is_floating(a.type):
        good = pc.is_finite(a)
        bad = len(a) - a.null_count - (pc.sum(good).as_py() or 0)
        if bad:
            a = pc.if_else(good, a, pa.scalar(None, a.type))
    text = a.cast(pa.string())
    if pa.types.is_int64(a.type) or pa.types.is_uint64(a.type):
        limit = pa.scalar(1 << 53, a.type)
        large = pc.greater(a, limit)
        if pa.types.is_int64(a.type):
            large = pc.or_(large, pc.less(a, pa.scalar(-(1 << 53), a.type)))
        if pc.any(large).as_py():
            quoted = pc.binary_join_element_wise('"', text, '"', "")
            text = pc.if_else(large, quoted, text)
    return text, bad


def lists(a: Any, pa: Any) -> Any:
    out = []
    for v in a.cast(pa.large_list(pa.large_binary())).to_pylist():
        out.append(None if v is None else b"".join(struct.pack("<I", len(t)) + t for t in v if t is not None))
    return pa.array(out, pa.large_binary())


def convert(a: Any, kind: bytes, pa: Any, pc: Any) -> tuple[Any, Any, Any, int]:
    """(validity bytes, offsets, data, count of non-finite numbers) of an array."""
    bad = 0
    if kind == b"J":
        a, bad = finite(a, pa, pc)
    elif kind == b"L":
        a = lists(a, pa)
    elif kind == b"T" and pa.types.is_temporal(a.type):
        a = a.cast(pa.string())
    n = len(a)
    if pa.types.is_fixed_size_binary(a.type) or not (pa.types.is_binary(a.type) or pa.types.is_string(a.type)):
        a = a.cast(pa.binary())  # 2 GiB at most: the batch is small
    valid = a.is_valid().cast(pa.uint8())
    lengths = pc.binary_length(a)
    if n and (pc.max(lengths).as_py() or 0) > VALUE_BYTES:
        long = pc.fill_null(pc.greater(lengths, VALUE_BYTES), False)
        valid = pc.if_else(long, pa.scalar(2, pa.uint8()), valid)
        a = pc.if_else(long, pa.scalar(None, a.type), a)
    flags = memoryview(valid.buffers()[1])[valid.offset : valid.offset + n]
    buffers = a.buffers()
    offsets = memoryview(buffers[1])[4 * a.offset : 4 * (a.offset + n + 1)]
    first, last = struct.unpack_from("<i", offsets, 0)[0], struct.unpack_from("<i", offsets, 4 * n)[0]
    return flags, offsets, memoryview(buffers[2])[first:last] if buffers[2] else b"", bad


def write_frame(batch: Any, chosen: list[Any], out: IO[bytes], pa: Any, pc: Any) -> int:
    """Writes a batch, in halves if it is large; returns the count of non-finite numbers."""
    if not batch.num_rows:
        return 0
    if batch.num_rows > 1 and batch.nbytes > FRAME_BYTES:
        half = batch.num_rows // 2
        return write_frame(batch.slice(0, half), chosen, out, pa, pc) + write_frame(
            batch.slice(half), chosen, out, pa, pc)
    bad = 0
    out.write(struct.pack("<I", batch.num_rows))
    for _, kind, _, parent, function in chosen:
        a = batch.column(batch.schema.get_field_index(parent))
        if isinstance(a, pa.ExtensionArray):
            a = a.storage
        flags, offsets, data, none = convert(function(a) if function else a, kind, pa, pc)
        out.write(flags)
        out.write(offsets)
        out.write(data)
        bad += none
    return bad


def write_rows(path: str, out: IO[bytes], line: Callable[[], str]) -> None:
    """`line()` returns the indices of the selected columns."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    f = pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)  # else pyarrow keeps the file in memory
    columns = columns_of(f.schema_arrow, pa, pc)
    out.write(b"CCSROWS1" + struct.pack("<QI", f.metadata.num_rows, len(columns)))
    for name, kind, _, _, _ in columns:
        text = name.encode()
        out.write(kind + struct.pack("<I", len(text)) + text)
    out.flush()
    chosen = [columns[int(i)] for i in line().split()]
    names = sorted({c[3] for c in chosen})
    groups = [f.metadata.row_group(i) for i in range(f.metadata.num_row_groups)]
    wide = max((g.total_byte_size // g.num_rows for g in groups if g.num_rows), default=0)
    rows = max(1, min(FRAME_ROWS, FRAME_BYTES // (wide + 1)))
    bad = 0
    if names:
        for batch in f.iter_batches(batch_size=rows, columns=names):
            bad += write_frame(batch, chosen, out, pa, pc)
    out.write(struct.pack("<IQ", 0, bad))
    out.flush()


def main(argv: list[str]) -> int:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet  # noqa: F401
    except ImportError as e:
        sys.stderr.write(f"{e}\n")
        return 69
    try:
        if len(argv) != 2:
            raise ValueError("expected one file")
        if sys.stdout.isatty():
            for name, kind, type_, _, _ in columns_of(pyarrow.parquet.read_schema(argv[1]), pyarrow, pyarrow.compute):
                print(kind.decode(), name, type_)
            return 0
        write_rows(argv[1], sys.stdout.buffer, sys.stdin.readline)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has closed the pipe
    except (Exception, RecursionError) as e:  # noqa: BLE001  whatever a damaged file makes pyarrow say
        text = " ".join(str(e).split()) or type(e).__name__
        sys.stderr.write(f"\n{text[:300]}\n")
        return 65
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
