#!/usr/bin/env python3
"""Reads a dataset of ccstream with plain WebDataset, without ccstream.

    python3 read_with_webdataset.py cc3m

pip install webdataset. Shards are zstd files of tars, or with `ccpack --container tar` plain tars.
"""
import glob
import os
import sys

import webdataset

shards = sorted(glob.glob(os.path.join(sys.argv[1], "*.tar*")))
urls = [f"pipe:zstd -dcq {path}" if path.endswith(".zst") else path for path in shards]
count = 0
for sample in webdataset.WebDataset(urls, shardshuffle=False):  # pyright: ignore[reportAttributeAccessIssue]
    if count == 0:
        print({name: value if isinstance(value, str) else f"{len(value)} bytes" for name, value in sample.items()})
    count += 1
print(f"{count} samples")
