"""Collectives over Gloo in which each rank sends to each other rank at once.

Gloo's own collectives pass messages around a ring, so each of their steps waits for the slowest process; its
reduce-scatter is an all-reduce of which most is thrown away. Direct messages send as many bytes as a ring, in
one step. Long all-reduces stay with Gloo: it overlaps their two phases with computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from ..kernels import pool
from .groups import Group, Started

PART_BYTES = 1 << 16
"""Bytes of a message around a ring, up to which the number of messages decides, not their bytes.

Up to here an all-reduce sends whole tensors, and an all-gather copies its block for each receiver.
"""
TAG = 1
"""Tag of messages between ranks in a gather. Pipelines' messages have none, which is 0."""
COMBINE: dict[dist.ReduceOp.RedOpType, Callable[..., Tensor]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.MAX: torch.maximum,
    dist.ReduceOp.MIN: torch.minimum,
}


class DirectGroup(Group):
    """:class:`Group` over Gloo, whose collectives have one step, except for long all-reduces."""

    def all_reduce(self, out: Tensor, op: dist.ReduceOp.RedOpType) -> Started | None:
        if out.nbytes > self.size * PART_BYTES:
            return super().all_reduce(out, op)
        return Reduced(self, out.expand(self.size, *out.shape).contiguous(), out, op)

    def reduce_scatter(self, out: Tensor, blocks: Tensor, op: dist.ReduceOp.RedOpType) -> Started | None:
        return Reduced(self, blocks.view(self.size, *out.shape), out, op)

    def all_gather(self, out: Tensor, block: Tensor) -> Started | None:
        if block.nbytes <= PART_BYTES:
            copies = block.expand(self.size, *block.shape).contiguous()
            return super().all_to_all(out.view(-1), copies.view(-1))
        assert self.handle is not None, "a group of one rank sends nothing"
        own, parts = self.handle.rank(), out.view(self.size, *block.shape)
        others = [(own + distance) % self.size for distance in range(1, self.size)]
        parts[own].copy_(block)
        received = [self.handle.recv([parts[other]], other, TAG) for other in others]
        return Several([*received, *(self.handle.send([block], other, TAG) for other in others)])


class Several:
    """Started messages. ``wait`` waits for all of them."""

    __slots__ = ("works",)

    def __init__(self, works: Sequence[Started]) -> None:
        self.works = works

    def wait(self) -> None:
        for work in self.works:
            work.wait()


class Reduced:
    """Exchange of blocks (dim 0 of ``blocks``), one for each rank. ``wait`` reduces the received ones.

    Every rank reduces in the order of ranks, element by element, so equal operands have equal results
    everywhere. Sums of 16-bit numbers are rounded once.
    """

    __slots__ = ("op", "out", "received", "work")

    def __init__(self, group: Group, blocks: Tensor, out: Tensor, op: dist.ReduceOp.RedOpType) -> None:
        self.out, self.op = out, op
        self.received = pool.contiguous(tuple(blocks.shape), blocks.dtype)
        self.work = Group.all_to_all(group, self.received.view(-1), blocks.view(-1))

    def wait(self) -> None:
        if self.work is not None:
            self.work.wait()
        combine, (first, *others) = COMBINE[self.op], self.received.unbind()
        total = first.float() if self.out.dtype in (torch.bfloat16, torch.float16) else first
        for other in others:
            combine(total, other, out=total)
        self.out.copy_(total)
