"""MosaicML streaming's MDSWriter, one in each process with a folder of its own, whose indexes are merged; shards of 64 MiB, no hashes."""

import functools
import os

from streaming import MDSWriter
from streaming.base.util import merge_index

import pack


def write(part, files, out, size, quality):
    with MDSWriter(out=os.path.join(out, str(part)), columns={"image": "bytes", "caption": "str"}, size_limit=1 << 26,
                   progress_bar=False) as writer:
        for path in files:
            writer.write({"image": pack.jpeg(path, size, quality), "caption": pack.caption(path)})


if __name__ == "__main__":
    args = pack.arguments()
    pack.divided(args, functools.partial(write, out=args.out, size=args.size, quality=args.quality))
    merge_index(args.out, keep_local=True)
