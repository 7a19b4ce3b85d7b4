"""WebDataset's ShardWriter, one in each process; tars of 1,000 samples."""

import functools
import os

import webdataset

import pack


def write(part, files, out, size, quality):
    with webdataset.ShardWriter(os.path.join(out, "%d-%%06d.tar" % part), maxcount=1000, verbose=0) as writer:
        for path in files:
            writer.write({"__key__": os.path.basename(path)[:-4], "jpg": pack.jpeg(path, size, quality),
                          "txt": pack.caption(path)})


if __name__ == "__main__":
    args = pack.arguments()
    os.makedirs(args.out)
    pack.divided(args, functools.partial(write, out=args.out, size=args.size, quality=args.quality))
