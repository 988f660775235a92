"""Expert parallelism written by hand on ``torch.distributed``: rows go to the ranks of their experts by
``all_to_all_single`` of uneven parts, and come back; no row is dropped and none is padded.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from decoder import Decoder, Mixture, gated
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


class _Exchange(torch.autograd.Function):
    """Rows by rank, ``sent`` to each of them and ``received`` from each."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        ctx.sizes = sent, received
        made = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(made, rows, received, sent)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        sent, received = ctx.sizes
        return _Exchange.apply(grad.contiguous(), received, sent), None, None


def own_experts(rows: Tensor, ids: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Each row times its expert's matrices, which the expert's rank has.

    Args:
        rows: [S, width], of this rank.
        ids: The expert of each row [S], among all.
        up: [own, width, 2 inner], of this rank's experts.
        down: [own, inner, width], of this rank's experts.

    Returns:
        [S, width].
    """
    ranks, own = dist.get_world_size(), len(up)
    order = ids.argsort()
    counts = torch.bincount(ids, minlength=ranks * own).view(ranks, own)
    arriving = torch.empty_like(counts)  # of each rank, for each of my experts
    dist.all_to_all_single(arriving, counts)
    sent, received = counts.sum(1).tolist(), arriving.sum(1).tolist()
    moved = _Exchange.apply(rows[order], sent, received)
    by_expert = torch.arange(own).repeat(ranks).repeat_interleave(arriving.flatten()).argsort(stable=True)
    parts = moved[by_expert].split(arriving.sum(0).tolist())
    made = torch.cat([gated(part @ a) @ b for part, a, b in zip(parts, up, down, strict=True)])
    back = _Exchange.apply(made[by_expert.argsort()], received, sent)
    return back[order.argsort()]


class ExpertPeer:
    """A step of a decoder whose batch and experts the ranks share out: forward, backward, AdamW."""

    def __init__(self, model: Decoder, batch: tuple[Tensor, Tensor]) -> None:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        self._batch = [x.chunk(ranks)[rank] for x in batch]
        self._experts = _keep_own(model, rank, ranks)
        self._model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def __call__(self) -> Tensor:
        """The mean loss of the rank's rows."""
        self._optimizer.zero_grad()
        loss = self._model(*self._batch, experts=own_experts)
        loss.backward()
        for parameter in self._experts:  # sums of all ranks' rows, of whose losses the mean is taken
            assert parameter.grad is not None
            parameter.grad /= dist.get_world_size()
        self._optimizer.step()
        return loss.detach()


def _keep_own(model: Decoder, rank: int, ranks: int) -> list[Tensor]:
    """Leave a rank its part of each mixture's experts, whose gradients are not summed over ranks."""
    kept, names = list[Tensor](), list[str]()
    for name, module in model.named_modules():
        if isinstance(module, Mixture):
            for which in ("up", "down"):
                whole: Tensor = getattr(module, which)
                part = torch.nn.Parameter(whole.detach().chunk(ranks)[rank].clone())
                setattr(module, which, part)
                kept.append(part)
                names.append(f"{name}.{which}")
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    return kept
