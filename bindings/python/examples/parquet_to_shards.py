#!/usr/bin/env python3
"""Packs rows of Parquet files, as Hugging Face datasets have them, into a dataset.

    python3 parquet_to_shards.py OUT FILE.parquet... [--image image] [--caption caption]

pip install pyarrow. An image column has bytes, or a struct with the field "bytes"; a caption column a
text or a list of texts; every other column of simple values becomes metadata. Rows that ccstream
refuses (no image, text that is not UTF-8) are counted, not packed.
"""
import argparse

import pyarrow.parquet

import ccstream

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("out")
parser.add_argument("files", nargs="+")
parser.add_argument("--image", default="image")
parser.add_argument("--caption", default="caption")
args = parser.parse_args()

packed = refused = 0
with ccstream.Writer(args.out) as writer:
    for path in args.files:
        for rows in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=256):
            for row in rows.to_pylist():
                image, captions = row.pop(args.image), row.pop(args.caption)
                image = image["bytes"] if isinstance(image, dict) else image
                captions = [captions] if isinstance(captions, str) else captions or []
                metadata = {k: v for k, v in row.items() if isinstance(v, (str, int, float, bool))}
                try:
                    writer.add(image or b"", captions, metadata)
                    packed += 1
                except (ccstream.CorruptError, ccstream.UnsupportedError, ccstream.LimitError, ccstream.UsageError) as error:
                    refused += 1
                    print(f"{path}: {error}")
print(f"{packed} packed, {refused} refused")
