"""Context parallelism written by hand on ``torch.distributed``: what a careful engineer would write for one
model, on CPUs. Three attentions over a sequence that ranks share out.

Under ``gather`` and ``ring`` a rank has blocks r and 2 n - 1 - r of the sequence, so that all compute as much
under a causal mask (zigzag; Zhu, ring-flash-attention, 2024); under ``ulysses`` it has block r of n (Jacobs
et al., DeepSpeed-Ulysses, 2023).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from decoder import Attend, Decoder, attend_causally
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
ROWS = 2
"""The dim of a sequence in [batch, heads, rows, depth]."""


def merge(out: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> None:
    """Add the columns of a part to ``out`` and ``lse``, in place."""
    out.lerp_(part, torch.sigmoid(part_lse - lse).unsqueeze(-1))
    torch.logaddexp(lse, part_lse, out=lse)


def tiles(rank: int, ranks: int, block: int) -> Iterator[tuple[slice, slice, bool]]:
    """Rows of a rank's two blocks and columns of the whole sequence that they see; whether causally."""
    for half, place in enumerate((rank, 2 * ranks - 1 - rank)):
        rows, start = slice(half * block, (half + 1) * block), place * block
        yield rows, slice(start, start + block), True
        if place:
            yield rows, slice(0, start), False


def in_order(parts: Tensor) -> Tensor:
    """Ranks' parts [n, 2, B, H, 2 b, D] as one sequence [2, B, H, 2 n b, D]."""
    first, last = parts.unflatten(4, (2, -1)).unbind(4)
    return torch.cat((first, last.flip(0))).movedim(0, 3).flatten(3, 4)


def by_ranks(whole: Tensor, ranks: int) -> Tensor:
    """The other way round."""
    first, last = whole.unflatten(3, (2, ranks, -1)).movedim((3, 4), (0, 1)).unbind(0)
    return torch.stack((first, last.flip(0)), 4).flatten(4, 5)


class GatherAttention(torch.autograd.Function):
    """Keys and values of all ranks are gathered; their gradients are summed and scattered."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        own = torch.stack((k, v))
        parts = own.new_empty(ranks * len(own), *own.shape[1:])
        dist.all_gather_single(parts, own)
        whole = in_order(parts.unflatten(0, (ranks, -1)))
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:3])
        for rows, columns, causal in tiles(rank, ranks, q.shape[ROWS] // 2):
            part = flash(q[:, :, rows], *whole[..., columns, :], 0.0, causal)
            if causal:
                out[:, :, rows], lse[:, :, rows] = part
            else:
                merge(out[:, :, rows], lse[:, :, rows], *part)
        ctx.save_for_backward(q, whole, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, whole, out, lse = ctx.saved_tensors
        rank, ranks = dist.get_rank(), dist.get_world_size()
        dq, dkv = torch.zeros_like(q), torch.zeros_like(whole)
        for rows, columns, causal in tiles(rank, ranks, q.shape[ROWS] // 2):
            given = (x[:, :, rows] for x in (out, lse))
            made = flash_backward(
                grad[:, :, rows], q[:, :, rows], *whole[..., columns, :], *given, 0.0, causal
            )
            dq[:, :, rows] += made[0]
            for total, part in zip(dkv[..., columns, :], made[1:], strict=True):
                total += part
        own = q.new_empty(2, *dkv.shape[1:3], *q.shape[ROWS:])
        dist.reduce_scatter_single(own, by_ranks(dkv, ranks).flatten(0, 1))
        return dq, *own.unbind()


class Travelling:
    """A tensor on its way to the next rank, and the previous rank's on its way here."""

    def __init__(self, sent: Tensor) -> None:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        self._sent, self._received = sent, torch.empty_like(sent)
        self._works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
                dist.P2POp(dist.irecv, self._received, (rank - 1) % ranks),
            ]
        )

    def wait(self) -> Tensor:
        for work in self._works:
            work.wait()
        return self._received


def seen(step: int, block: int) -> tuple[slice, slice]:
    """Own rows and columns of the rank ``step`` places before: it comes earlier, or later in the sequence."""
    whole = slice(0, 2 * block)
    return (whole, slice(0, block)) if step <= dist.get_rank() else (slice(block, 2 * block), whole)


class RingAttention(torch.autograd.Function):
    """Keys and values travel, while those that came before are computed with (Liu et al., 2023)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ranks, block = dist.get_world_size(), q.shape[ROWS] // 2
        own = torch.stack((k, v))
        way = Travelling(own)
        out, lse = (x.contiguous() for x in flash(q, *own, 0.0, True))
        for step in range(1, ranks):
            others = way.wait()
            if step + 1 < ranks:
                way = Travelling(others)
            rows, columns = seen(step, block)
            part = flash(q[:, :, rows], *others[..., columns, :], 0.0, False)
            merge(out[:, :, rows], lse[:, :, rows], *part)
        ctx.save_for_backward(q, own, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, own, out, lse = ctx.saved_tensors
        ranks, block = dist.get_world_size(), q.shape[ROWS] // 2
        way, back = Travelling(own), None
        dq, *made = flash_backward(grad, q, *own, out, lse, 0.0, True)
        dq, sums = dq.contiguous(), torch.stack(made)
        for step in range(1, ranks):
            others, back = way.wait(), Travelling(sums)
            if step + 1 < ranks:
                way = Travelling(others)
            rows, columns = seen(step, block)
            given = (x[:, :, rows] for x in (out, lse))
            keys = others[..., columns, :]
            part, *made = flash_backward(grad[:, :, rows], q[:, :, rows], *keys, *given, 0.0, False)
            dq[:, :, rows] += part
            sums = back.wait()
            for total, more in zip(sums[..., columns, :], made, strict=True):
                total += more
        dk, dv = Travelling(sums).wait().unbind()
        return dq, dk, dv


class _Exchange(torch.autograd.Function):
    """All-to-all of [n, ...] over the first dim."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        made = torch.empty_like(x)
        dist.all_to_all_single(made, x)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Exchange.apply(grad.contiguous())


def ulysses(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Rank r computes block r of the heads, for the whole sequence."""
    ranks = dist.get_world_size()
    by_heads = [x.unflatten(1, (ranks, -1)) for x in (q, k, v)]
    sizes = [x.shape[2] for x in by_heads]
    sent = torch.cat(by_heads, 2).movedim(1, 0).contiguous()  # [n, B, heads, rows, D]
    whole = _Exchange.apply(sent).movedim(0, 2).flatten(2, 3).contiguous().split(sizes, 1)
    attended = attend_causally(*whole)
    back = _Exchange.apply(attended.unflatten(2, (ranks, -1)).movedim(2, 0).contiguous())
    return back.movedim(0, 1).flatten(1, 2)


ATTENTIONS: dict[str, Attend] = {
    "allgather": GatherAttention.apply,
    "ring": RingAttention.apply,
    "ulysses": ulysses,
}
"""By the names that ``shardc`` has for them."""


class ContextPeer:
    """A step of a decoder whose sequence the ranks share out: forward, backward, AdamW."""

    def __init__(self, model: Decoder, batch: tuple[Tensor, Tensor], kind: str) -> None:
        rank, ranks, length = dist.get_rank(), dist.get_world_size(), batch[0].shape[1]
        if kind == "ulysses":
            self._places = torch.arange(length).chunk(ranks)[rank]
        else:
            blocks = torch.arange(length).chunk(2 * ranks)
            self._places = torch.cat((blocks[rank], blocks[-1 - rank]))
        self._batch = [x[:, self._places].contiguous() for x in batch]
        self._attend = ATTENTIONS[kind]
        self._model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def __call__(self) -> Tensor:
        """The mean loss of the rank's rows."""
        self._optimizer.zero_grad()
        loss = self._model(*self._batch, self._places, attend=self._attend)
        loss.backward()
        self._optimizer.step()
        return loss.detach()
