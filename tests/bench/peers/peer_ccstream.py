"""ccstream's own loader through its Python package, into torch tensors without a copy."""

import ccstream
import torch

import peer

args = peer.arguments("dataset made by ccpack")
loader = ccstream.DataLoader(args.data[0], batch_size=args.batch, image_size=args.size, augment="crop",
                             num_threads=args.workers)


def batches():
    while True:
        for batch in loader:
            yield torch.from_dlpack(batch["image"])


peer.measure("ccstream-python", "torch %s" % torch.__version__, args, batches())
