"""Shared by the loss modules: rows and ids of all ranks, and buffers that keep their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class KeepsTypes(nn.Module):
    """Buffers keep their types under .half(), .bfloat16() and Lightning's precision "bf16-true"."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        def move(x: Tensor) -> Tensor:
            moved = fn(x)
            return moved if moved.dtype == x.dtype else x.to(moved.device)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """Gathers the rows of all ranks, counts[rank] from each. Backward sums every rank's gradient of the whole, and each rank
    keeps its own part."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: dist.ProcessGroup | None, counts: list[int]) -> Tensor:
        ctx.group, ctx.counts = group, counts
        most = max(counts)
        own = rows.contiguous()
        if len(rows) < most:
            own = torch.cat([own, own.new_zeros((most - len(rows), *rows.shape[1:]))])
        out = [torch.empty_like(own) for _ in counts]
        dist.all_gather(out, own, group=group)
        return torch.cat([part[:count] for part, count in zip(out, counts)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient, group=ctx.group)
        rank = dist.get_rank(ctx.group)
        return gradient.narrow(0, sum(ctx.counts[:rank]), ctx.counts[rank]), None, None


def check_rows(image: Tensor, text: Tensor, ids: Tensor, id_space: int) -> Tensor:
    """The ids as int64 on the embeddings' device. A negative id becomes id_space, so that indexing fails. ValueError."""
    if image.shape != text.shape or image.dim() != 2 or ids.shape != image.shape[:1]:
        raise ValueError(f"expected embeddings (b, D) of images and texts and ids (b), not "
                         f"{tuple(image.shape)}, {tuple(text.shape)} and {tuple(ids.shape)}")
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise ValueError(f"ids are {ids.dtype}, expected integers")
    ids = ids.to(torch.int64)
    if not torch.compiler.is_compiling() and ids.device.type == "cpu" and len(ids) > 0:
        for wrong in (ids.min(), ids.max()):
            if not 0 <= wrong < id_space:
                raise ValueError(f"id {wrong} is not from 0 to {id_space - 1}: pass id_space=dataset.id_space")
    ids = ids.to(image.device)
    return torch.where(ids < 0, id_space, ids)


def refuse_positives(name: str, rows: int, distinct: int) -> None:
    if rows >= 4 and 2 * distinct <= rows:
        raise ValueError(f"loss {name}: {rows} rows of {distinct} samples: of a repeated id only the first row counts. "
                         f"Batches of positives={rows // distinct} are for ccstream.torch.Contrastive")


class RankedModule(KeepsTypes):
    """A module whose batches are divided among ranks."""

    group: dist.ProcessGroup | None
    equal_rows: bool
    step: Tensor

    def _world(self) -> tuple[int, int]:
        if not (dist.is_available() and dist.is_initialized()):
            return 0, 1
        return dist.get_rank(self.group), dist.get_world_size(self.group)

    def _counts(self, rows: int) -> list[int]:
        """Number of rows of each rank."""
        size = self._world()[1]
        if size == 1 or self.equal_rows or torch.compiler.is_compiling():
            return [rows] * size
        own = torch.tensor([rows], device=self.step.device)
        out = [torch.empty_like(own) for _ in range(size)]
        dist.all_gather(out, own, group=self.group)
        counts: list[int] = torch.cat(out).tolist()
        return counts

    def _gather(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The rows of all ranks; their gradients return to the rank that holds them."""
        if len(counts) == 1:
            return rows
        gathered: Tensor = _Gather.apply(rows, self.group, counts)
        return gathered

    def _sum(self, x: Tensor) -> Tensor:
        if self._world()[1] > 1:
            dist.all_reduce(x, group=self.group)
        return x
