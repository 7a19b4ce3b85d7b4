"""Every loss of ccstream-train as a PyTorch module, computed on the host by libccstream."""

from __future__ import annotations

import math
import os
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, library

from ._torch_rows import RankedModule, check_rows
from .loss import Loss, State, loss_options

_OF_TRAINER = ("zeta_lr", "zeta_lr_image_ratio", "zeta_freeze_epochs")
_OPEN: weakref.WeakValueDictionary[int, Contrastive] = weakref.WeakValueDictionary()  # by key, for operators


class Contrastive(RankedModule):
    """Any loss of ccstream-train (clip, siglip, cyclip, dcl, hcl, rince, sogclr, nuclr, emc2, ...) as a PyTorch module, with
    all its options, for image-text pairs or two views, with one or several positives.

    The C library computes it on one CPU thread per rank, with the same results as ccstream-train. Embeddings on a GPU are
    copied to the host and their gradients back; the (B, B) similarity matrix is not. The losses in ccstream.torch.LOSSES
    can be computed on the device: see GlobalContrastiveLoss.

    name, dataset_size, id_space, steps_per_epoch, epochs, group, equal_rows, options: as of GlobalContrastiveLoss.
    max_batch: largest number of rows per step, over all ranks; at most 32768.
    views: True: two views of images instead of image-text pairs.
    positives (an option): the rows of a sample are consecutive, as DataLoader(positives=...) delivers them.

    loss(image, text, ids, lr=None, update=True, carried=None) returns a scalar, as GlobalContrastiveLoss does. With views,
    image and text are the embeddings of the first and of the second views. carried is (ids (2, B), embeddings (2, B, D)),
    for losses with off-batch samples (emc2, negcache), on one rank only: for emc2 encode the samples that
    samples_beyond(ids) returns, in row 0 their texts (the anchors are images) and in row 1 their images.
    Raises CorruptError if an embedding is not finite.

    `objective` and `tau` are 0-d float64 tensors of the last step. The state is in state_dict() (as extra state), in the
    file of `save`, and by column in `columns`, a ccstream.Loss. torch.compile and torch.export treat the loss as one
    operator.
    """

    step: Tensor
    objective: Tensor
    tau: Tensor

    def __init__(self, name: str, dataset_size: int, *, id_space: int | None = None, max_batch: int = 4096,
                 views: bool = False, steps_per_epoch: int | None = None, epochs: int | None = None,
                 group: dist.ProcessGroup | None = None, equal_rows: bool = False, **options: Any):
        super().__init__()
        self.name, self.views, self.group, self.equal_rows = name, views, group, equal_rows
        self.options = loss_options(name, views=views, **options)
        self.id_space, self.steps_per_epoch, self.epochs = id_space or dataset_size, steps_per_epoch or 0, epochs or 0
        given = {key: value for key, value in options.items() if key not in _OF_TRAINER}
        for key, of_run in (("gamma_epochs", self.epochs // 2), ("beta_epochs", self.epochs)):
            if key in self.options and not options.get(key):
                given[key] = max(of_run, 1)
        self.auto = self.options.get("zeta_lr") == "auto"
        if self.auto:
            given.update(zeta_lr="auto", zeta_freeze_epochs=self.options["zeta_freeze_epochs"])
        if not (steps_per_epoch and epochs) and ("zeta_lr" in self.options or {"gamma_epochs", "beta_epochs"} & given.keys()):
            raise ValueError(f"loss {name}: its schedules require steps_per_epoch and epochs")
        self.columns = Loss(name, dataset_size, id_space=self.id_space, max_batch=max_batch, views=views, **given)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.register_buffer("objective", torch.tensor(math.nan, dtype=torch.float64), persistent=False)
        self.register_buffer("tau", torch.tensor(math.nan, dtype=torch.float64), persistent=False)
        self.key = id(self)
        _OPEN[self.key] = self

    def extra_repr(self) -> str:
        return ", ".join([repr(self.name)] + [f"{k}={v}" for k, v in self.options.items()])

    def forward(self, image: Tensor, text: Tensor, ids: Tensor, lr: float | Tensor | None = None, update: bool = True,
                carried: tuple[Tensor, Tensor] | None = None) -> Tensor:
        ids = check_rows(image, text, ids, self.id_space)
        rank, size = self._world()
        if carried is not None and size > 1:
            raise ValueError(f"loss {self.name}: off-batch samples are supported on one rank only")
        rate = torch.as_tensor(0.0 if lr is None else lr, dtype=torch.float64)
        with torch.autocast(image.device.type, enabled=False):
            image, text = image.float(), text.float()
            counts = self._counts(len(image))
            images, texts, ids = (self._gather(x, counts) for x in (image.detach(), text.detach(), ids))
            at, embeddings = carried if carried is not None else (None, None)
            *gradients, numbers = torch.ops.ccstream.loss_step(
                images, texts, ids, self.step, rate, self.key, self.training and update, at,
                None if embeddings is None else embeddings.detach().float())
            own = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
            inputs = [image, text] if embeddings is None else [image, text, embeddings.float()]
            gradients = [size * gradients[0][own], size * gradients[1][own], *gradients[2:]][: len(inputs)]
            self.objective.copy_(numbers[1])
            self.tau.copy_(numbers[2])
            value: Tensor = torch.ops.ccstream.with_gradients(numbers[0].float(), inputs, gradients)
            return value

    def samples_beyond(self, ids: Tensor) -> Tensor:
        """int64 (2, B): ids of the off-batch samples that the next step with these ids needs, row 0 for images or first
        views as anchors, row 1 for texts or second views; -1: none. UnsupportedError: the loss never needs one."""
        return torch.from_numpy(self.columns.carried(ids.cpu().numpy()).astype("int64"))

    def save(self, path: str | os.PathLike[str], fingerprint: str) -> None:
        """As GlobalContrastiveLoss.save."""
        self.columns.save(path, fingerprint, int(self.step))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Loads a file of save, or a checkpoint of ccstream-train. MismatchError: another loss, or a larger id space."""
        self.columns.load(path)
        self.step.fill_(State(path).step)

    def get_extra_state(self) -> dict[str, Any]:
        columns = {name: torch.from_numpy(self.columns[name].view(f"int{8 * self.columns[name].itemsize}"))
                   for name in self.columns}
        return {"loss": self.name, "columns": columns, "scalars": self.columns.scalars}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state["loss"] != self.name:
            raise ValueError(f"this state belongs to loss {state['loss']}, not to {self.name}")
        for name, values in state["columns"].items():
            values = values.cpu().numpy()
            self.columns.write(name, values.view("float32" if values.itemsize == 4 else "uint64"))
        for name, value in state["scalars"].items():
            self.columns.set_scalar(name, value)

    def _rates(self, step: int) -> dict[str, float]:
        """Learning rates of zeta: see train/loss/nuclr.c and GlobalContrastiveLoss._zeta_rate."""
        o = self.options
        if "zeta_lr" not in o:
            return {}
        given = o["zeta_lr_image_ratio"]
        ratio = (1.0 if self.auto else 0.1) if given == "auto" else float(given)
        done = step - int(o["zeta_freeze_epochs"]) * self.steps_per_epoch
        moving = self.epochs * self.steps_per_epoch - (step - done)
        rate = 0.0 if done < 0 or moving <= 0 else 1.0 if self.auto else (
            float(o["zeta_lr"]) * 0.5 * (1 + math.cos(math.pi * min(done / moving, 1))))
        return {"zeta_lr_image": rate * ratio, "zeta_lr_text": rate}

    def _host_step(self, images: Tensor, texts: Tensor, ids: Tensor, step: int, lr: float, update: bool,
                   at: Tensor | None, far: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        a, b = images, texts
        whole = torch.cat([a, b]) if self.views else None
        similarity = a @ b.T if whole is None else whole @ whole.T
        more: dict[str, Any] = self._rates(step)
        if "cyclic_self" in self.options:
            more.update(image_similarity=(a @ a.T).numpy(), text_similarity=(b @ b.T).numpy())
        if far is not None and at is not None:
            more.update(carried_ids=at.numpy(), carried_similarity=(torch.stack([a, b]) * far).sum(2).numpy())
        out = self.columns.step(similarity.numpy(), ids.numpy(), step=step, epoch=step // max(self.steps_per_epoch, 1),
                                lr=lr, update=update, **more)
        g = torch.from_numpy(out.gradient)
        if whole is None:
            of_a, of_b = g @ b, g.T @ a
        else:
            both = (g + g.T) @ whole
            of_a, of_b = both[: len(a)], both[len(a) :]
        if out.image_gradient is not None and out.text_gradient is not None:
            of_a = of_a + 2 * torch.from_numpy(out.image_gradient) @ a
            of_b = of_b + 2 * torch.from_numpy(out.text_gradient) @ b
        of_far = torch.empty(0)
        if far is not None:
            pull = torch.from_numpy(out.carried_gradient)[:, :, None]
            of_a, of_b = of_a + pull[0] * far[0], of_b + pull[1] * far[1]
            of_far = pull * torch.stack([a, b])
        return of_a.clone(), of_b.clone(), of_far, torch.tensor([out.value, out.objective, out.tau], dtype=torch.float64)


@library.custom_op("ccstream::loss_step", mutates_args=("step",))
def _loss_step(images: Tensor, texts: Tensor, ids: Tensor, step: Tensor, lr: Tensor, key: int, update: bool,
               at: Tensor | None, far: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of images, of texts and of off-batch embeddings, and float64 (3): value, objective, tau."""
    out = _OPEN[key]._host_step(images.cpu(), texts.cpu(), ids.cpu(), int(step), float(lr), update,
                                None if at is None else at.cpu(), None if far is None else far.cpu())
    if update:
        step.add_(1)
    return tuple(x.to(images.device) for x in out)  # type: ignore[return-value]


@_loss_step.register_fake
def _(images: Tensor, texts: Tensor, ids: Tensor, step: Tensor, lr: Tensor, key: int, update: bool, at: Tensor | None,
      far: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (torch.empty_like(images), torch.empty_like(texts), images.new_empty(0) if far is None else torch.empty_like(far),
            images.new_empty(3, dtype=torch.float64))


@library.custom_op("ccstream::with_gradients", mutates_args=())
def _with_gradients(value: Tensor, inputs: list[Tensor], gradients: list[Tensor]) -> Tensor:
    """Returns the value; its gradients with respect to the inputs are the given ones."""
    return value.clone()


@_with_gradients.register_fake
def _(value: Tensor, inputs: list[Tensor], gradients: list[Tensor]) -> Tensor:
    return torch.empty_like(value)


def _keep_gradients(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[2])


def _give_gradients(ctx: Any, slope: Tensor) -> tuple[None, list[Tensor], list[None]]:
    return None, [slope * g for g in ctx.saved_tensors], [None for _ in ctx.saved_tensors]


_with_gradients.register_autograd(_give_gradients, setup_context=_keep_gradients)
