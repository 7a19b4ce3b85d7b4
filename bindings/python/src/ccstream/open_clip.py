"""open_clip 3.x trains with ccstream's data and losses: its own program and arguments, and these.

    torchrun --nproc-per-node 8 -m ccstream.open_clip --dataset-type ccstream --train-data cc3m --loss nuclr --model ViT-B-32 ...

--dataset-type ccstream: --train-data and --val-data are datasets; --augment: as of DataLoader. --loss: any of ccstream-train, instead
of open_clip's; --loss-option tau=0.02 ...: its options. --resume continues the loss's state too.
"""

import argparse
import gzip
import os
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import open_clip
import open_clip_train.data
import open_clip_train.main as program
import torch
from torch.utils.dlpack import from_dlpack

from . import Batch, DataLoader
from .torch import NormalizeOnDevice, make_loss


class Data(open_clip_train.data.DataInfo):  # type: ignore[misc]
    """The loader as open_clip's loop takes it: (images, tokens). The ids wait for the loss."""

    def __init__(self, own: argparse.Namespace, path: str, args: Any, preprocess: Any, train: bool, tokenizer: Any):
        if type(tokenizer) is not open_clip.SimpleTokenizer:
            raise ValueError("--dataset-type ccstream is for models with CLIP's tokenizer")
        size, norm = preprocess.transforms[0].size, preprocess.transforms[-1]
        self.batches = DataLoader(
            path, args.batch_size * args.world_size, size if isinstance(size, int) else size[0], own.augment if train else "eval-clip",
            train, args.seed, args.rank, args.world_size, train, pin_memory=torch.cuda.is_available(),
            max_tokens=tokenizer.context_length or 77, tokenizer=gzip.open(open_clip.tokenizer.default_bpe()).read())
        self.normalize = NormalizeOnDevice((norm.mean, norm.std))
        self.num_samples, self.num_batches = self.batches.info["samples"], len(self.batches)
        self.ids: deque[torch.Tensor] = deque(maxlen=args.accum_freq)
        self.dataloader, self.set_epoch = self, self.batches.set_epoch  # pyright: ignore[reportAttributeAccessIssue]

    def __iter__(self) -> Iterator[tuple[Any, torch.Tensor]]:
        for batch in self.batches:
            self.ids.append(from_dlpack(batch["id"]).clone())
            yield SimpleNamespace(to=partial(self.move, batch)), batch.to("cpu")["tokens"].long()

    def move(self, batch: Batch, device: Any, dtype: Any = None, non_blocking: bool = True) -> torch.Tensor:  # uint8 until here
        images: torch.Tensor = self.normalize.to(device)(batch.to(device)["image"])
        return images.to(dtype)


class Loss(torch.nn.Module):
    def __init__(self, own: argparse.Namespace, data: Data, args: Any):
        super().__init__()
        self.data, self.calls, self.groups = data, 0, [{"lr": args.lr}]
        self.loss = make_loss(own.loss, data.num_samples, id_space=data.batches.info["id_space"], epochs=args.epochs,
                              steps_per_epoch=data.num_batches // args.accum_freq, **dict(x.split("=") for x in own.loss_option),
                              max_batch=args.batch_size * args.world_size * args.accum_freq).to(args.device)

    def forward(self, image_features: torch.Tensor, text_features: torch.Tensor, logit_scale: Any = 0.0, logit_bias: Any = 0.0,
                output_dict: bool = True) -> dict[str, Any]:
        self.calls += 1  # of the parts of an accumulated batch the last one changes the state
        value = self.loss(image_features, text_features, torch.cat(list(self.data.ids)), self.groups[0]["lr"],
                          self.calls % (self.data.ids.maxlen or 1) == 0)
        return {"contrastive_loss": value + 0 * (logit_scale + logit_bias)}  # whose gradients DistributedDataParallel expects

    def train_one_epoch(self, run: Any, model: Any, data: Any, loss: Any, epoch: int, optimizer: Any, *rest: Any, **more: Any) -> None:
        args, self.groups = rest[-1], optimizer.param_groups
        path = os.path.join(args.checkpoint_path, "loss_{}.state")
        if epoch > 0 and self.calls == 0:  # the run is resumed
            self.loss.load_state_dict(torch.load(path.format(epoch), map_location=args.device, weights_only=True))
        run(model, data, loss, epoch, optimizer, *rest, **more)
        if args.save_logs:
            torch.save(self.loss.state_dict(), path.format(epoch + 1))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, default in (("--dataset-type", "auto"), ("--loss", None), ("--augment", "clip")):
        parser.add_argument(name, default=default)
    parser.add_argument("--loss-option", nargs="+", default=[])
    own, rest = parser.parse_known_args(argv)
    made: list[Data] = []

    def make(path: str, args: Any, preprocess: Any, is_train: bool, epoch: int = 0, tokenizer: Any = None) -> Data:
        made.append(Data(own, path, args, preprocess, is_train, tokenizer))
        return made[-1]

    if own.dataset_type == "ccstream":
        open_clip_train.data.get_dataset_fn = lambda path, kind: partial(make, path)
    if own.loss:
        program.create_loss = lambda args: Loss(own, made[0], args)
        program.train_one_epoch = lambda model, data, loss, *rest, run=program.train_one_epoch, **more: loss.train_one_epoch(
            run, model, data, loss, *rest, **more)
    program.main([*rest, "--dataset-type", "auto" if own.dataset_type == "ccstream" else own.dataset_type])


if __name__ == "__main__":
    main()
