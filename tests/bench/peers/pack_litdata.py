"""LitData's optimize: chunks of 64 MB of the image's bytes and its caption, on worker processes."""

import functools

import litdata

import pack


def sample(path, size, quality):
    return {"image": pack.jpeg(path, size, quality), "caption": pack.caption(path)}


if __name__ == "__main__":
    args = pack.arguments()
    litdata.optimize(functools.partial(sample, size=args.size, quality=args.quality), args.files, args.out, chunk_bytes="64MB",
                     num_workers=args.workers)
