"""The rows of a Parquet file as plain buffers on a pipe, for ccpack, which starts this text with
`python3 -c TEXT FILE`. It needs pyarrow and nothing else of this package.

    python3 -m ccstream.parquet_rows FILE           prints the columns and their kinds, for people

Written to stdout, all numbers little-endian:

    "CCSROWS1", rows of the file u64, columns u32, and for each its kind, the bytes of its name u32, its name
    frames: rows u32, and for each column that was chosen
        rows bytes: 0 null, 1 there, 2 longer than a value may be
        rows + 1 offsets u32, of which only the differences count; the bytes between the first and the last
    the end: 0 as u32, u64 values that are no finite numbers and are null for that

After the columns it reads one line: the numbers of those that are wanted. Kinds: T text, B bytes, J a value
as JSON, L a list of texts, each as its bytes u32 and the bytes, X nothing that can be a cell (lists of others,
structs, maps, decimals). A struct with `bytes`, as Hugging Face stores images, is a column B; its `path` is another, NAME.path.
Columns are converted as wholes: no work a row but for lists.
"""
import sys

if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p not in ("", ".")]  # nothing is imported from the folder of the call

import os
import struct
from collections.abc import Callable
from typing import IO, Any

VALUE_BYTES = 64 << 20  # of one value; a longer one is none
FRAME_BYTES = 32 << 20  # of a frame, but for single rows
FRAME_ROWS = 65536


def columns_of(schema: Any) -> list[tuple[str, bytes, Any, str, Any]]:
    """(name, kind, function of a table's column) for each; nested ones of images become two."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    """(validity bytes, offsets, data, numbers that are none) of an array."""
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
    """Writes a batch, in halves if it is large; returns the numbers that are none."""
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
    """`line()`: the numbers of the columns that are wanted."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    f = pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)  # else the file is kept in memory
    columns = columns_of(f.schema_arrow)
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
        import pyarrow.parquet  # noqa: F401
    except ImportError as e:
        sys.stderr.write(f"{e}\n")
        return 69
    try:
        if len(argv) != 2:
            raise ValueError("one file is expected")
        if sys.stdout.isatty():
            for name, kind, type_, _, _ in columns_of(pyarrow.parquet.read_schema(argv[1])):
                print(kind.decode(), name, type_)
            return 0
        write_rows(argv[1], sys.stdout.buffer, sys.stdin.readline)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody listens any more
    except (Exception, RecursionError) as e:  # noqa: BLE001  whatever a damaged file makes pyarrow say
        text = " ".join(str(e).split()) or type(e).__name__
        sys.stderr.write(f"\n{text[:300]}\n")
        return 65
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
