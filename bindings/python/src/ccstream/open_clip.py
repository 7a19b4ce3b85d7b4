"""Trains with open_clip 3.x, or with FastCLIP's fork of it, on ccstream's data and losses. Accepts the program's arguments and:

    torchrun --nproc-per-node 8 -m ccstream.open_clip --dataset-type ccstream --train-data cc3m --loss nuclr --model ViT-B-32 ...

--dataset-type ccstream   --train-data and --val-data are ccstream datasets
--augment NAME            as of DataLoader; default clip
--loss NAME               any loss of ccstream-train, instead of open_clip's; --resume restores its state too
--loss-option K=V ...     options of the loss, for example tau=0.02
--program fast_clip       FastCLIP's fork, whose src and src/training must be in PYTHONPATH. Its own losses (--fastclip) receive
                          ccstream's sample ids: set --data_size to the dataset's id_space. Every epoch has its own order
                          (the fork itself always requests the order of epoch 0).
"""

import argparse
import gzip
import importlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from . import Batch, DataLoader
from .torch import NormalizeOnDevice, make_loss

PROGRAMS = {"open_clip": ("open_clip", "open_clip_train.data", "open_clip_train.main"),
            "fast_clip": ("fast_clip", "training.data", "training.main")}


class Data:
    """The loader in the form that open_clip's loop expects: (images, tokens), or (images, tokens, ids, ids) for FastCLIP. The ids
    are kept for the loss."""

    def __init__(self, own: argparse.Namespace, path: str, args: Any, preprocess: Any, train: bool, tokenizer: Any):
        models = importlib.import_module(PROGRAMS[own.program][0])
        self.with_ids = own.program == "fast_clip" and train
        if type(tokenizer) is not models.tokenizer.SimpleTokenizer and tokenizer is not getattr(models.tokenizer, "tokenize", None):
            raise ValueError("--dataset-type ccstream requires a model with CLIP's tokenizer")
        size, norm = preprocess.transforms[0].size, preprocess.transforms[-1]
        self.batches = DataLoader(
            path, args.batch_size * args.world_size, size if isinstance(size, int) else size[0], own.augment if train else "eval-clip",
            train, args.seed, args.rank, args.world_size, train, pin_memory=torch.cuda.is_available(),
            max_tokens=getattr(tokenizer, "context_length", None) or 77, tokenizer=gzip.open(models.tokenizer.default_bpe()).read())
        self.normalize = NormalizeOnDevice((norm.mean, norm.std))
        self.num_samples, self.num_batches = self.batches.info["samples"], len(self.batches)
        self.ids: deque[torch.Tensor] = deque(maxlen=args.accum_freq)
        self.dataloader = self

    def set_epoch(self, epoch: int) -> None:
        if not self.with_ids:  # FastCLIP's loop passes 0 in every epoch; see train_one_epoch
            self.batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for batch in self.batches:
            ids = from_dlpack(batch["id"]).clone()
            self.ids.append(ids)
            pair = SimpleNamespace(to=partial(self.move, batch)), batch.to("cpu")["tokens"].long()
            yield (*pair, ids, ids) if self.with_ids else pair

    def move(self, batch: Batch, device: Any, dtype: Any = None, non_blocking: bool = True) -> torch.Tensor:  # from uint8
        images: torch.Tensor = self.normalize.to(device)(batch.to(device)["image"])
        return images.to(dtype)


class Loss(torch.nn.Module):
    """A ccstream loss in the form that open_clip's loop expects."""

    def __init__(self, own: argparse.Namespace, args: Any):
        super().__init__()
        self.own, self.args, self.calls, self.groups = own, args, 0, [{"lr": args.lr}]
        self.data: Data

    def begin(self, data: Data) -> None:
        """Called before the first epoch, since the fork creates losses before it opens data."""
        own, args, self.data = self.own, self.args, data
        self.loss = make_loss(own.loss, data.num_samples, id_space=data.batches.info["id_space"], epochs=args.epochs,
                              steps_per_epoch=data.num_batches // args.accum_freq, **dict(x.split("=") for x in own.loss_option),
                              max_batch=args.batch_size * args.world_size * args.accum_freq).to(args.device)

    def forward(self, image_features: torch.Tensor, text_features: torch.Tensor, logit_scale: Any = 0.0, logit_bias: Any = 0.0,
                output_dict: bool = True) -> dict[str, Any]:
        self.calls += 1  # with gradient accumulation only the last part updates the state
        value = self.loss(image_features, text_features, torch.cat(list(self.data.ids)), self.groups[0]["lr"],
                          self.calls % (self.data.ids.maxlen or 1) == 0)
        return {"contrastive_loss": value + 0 * (logit_scale + logit_bias)}  # DistributedDataParallel expects their gradients


def train_one_epoch(run: Any, model: Any, data: Any, loss: Any, epoch: int, optimizer: Any, *rest: Any, **more: Any) -> None:
    if isinstance(data["train"], Data):
        data["train"].batches.set_epoch(epoch)
    if not isinstance(loss, Loss):
        run(model, data, loss, epoch, optimizer, *rest, **more)
        return
    args, loss.groups = loss.args, optimizer.param_groups
    path = os.path.join(args.checkpoint_path, "loss_{}.state")
    if loss.calls == 0:
        loss.begin(data["train"])
        if epoch > 0:  # the run is resumed
            loss.loss.load_state_dict(torch.load(path.format(epoch), map_location=args.device, weights_only=True))
    run(model, data, loss, epoch, optimizer, *rest, **more)
    if args.save_logs:
        torch.save(loss.loss.state_dict(), path.format(epoch + 1))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, default in (("--dataset-type", "auto"), ("--loss", None), ("--augment", "clip")):
        parser.add_argument(name, default=default)
    parser.add_argument("--loss-option", nargs="+", default=[])
    parser.add_argument("--program", choices=PROGRAMS, default="open_clip")
    own, rest = parser.parse_known_args(argv)
    modules: list[Any] = [importlib.import_module(name) for name in PROGRAMS[own.program][1:]]
    theirs, program = modules

    def make(path: str, args: Any, preprocess: Any, is_train: bool, epoch: int = 0, tokenizer: Any = None) -> Data:
        return Data(own, path, args, preprocess, is_train, tokenizer)

    if own.dataset_type == "ccstream":
        theirs.get_dataset_fn = lambda path, kind: partial(make, path)
    if own.loss:
        program.create_loss = partial(Loss, own)
    program.train_one_epoch = partial(train_one_epoch, program.train_one_epoch)
    program.main([*rest, "--dataset-type", "auto" if own.dataset_type == "ccstream" else own.dataset_type])


if __name__ == "__main__":
    main()
