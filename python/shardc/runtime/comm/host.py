"""Collectives of ranks that share a GPU, on copies in host memory."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from .direct import DirectGroup
from .groups import Started


class Staged:
    """Collective on copies in host memory. ``wait`` copies the result back to the device."""

    __slots__ = ("host", "into", "work")

    def __init__(self, work: Started | None, host: Tensor, into: Tensor | None) -> None:
        self.work, self.host, self.into = work, host, into

    def wait(self) -> None:
        if self.work is not None:
            self.work.wait()
        if self.into is not None:
            self.into.copy_(self.host)


class HostGroup(DirectGroup):
    """Group of ranks that share a GPU. NCCL refuses those, so it uses Gloo on the host."""

    def all_reduce(self, out: Tensor, op: dist.ReduceOp.RedOpType) -> Staged:
        host = out.to("cpu", copy=True)
        return Staged(super().all_reduce(host, op), host, out)

    def all_gather(self, out: Tensor, block: Tensor) -> Staged:
        host = torch.empty_like(out, device="cpu")
        return Staged(super().all_gather(host, block.cpu()), host, out)

    def reduce_scatter(self, out: Tensor, blocks: Tensor, op: dist.ReduceOp.RedOpType) -> Staged:
        host = torch.empty_like(out, device="cpu")
        return Staged(super().reduce_scatter(host, blocks.cpu(), op), host, out)

    def all_to_all(self, out: Tensor, blocks: Tensor, *sizes: list[int]) -> Staged:
        host = torch.empty_like(out, device="cpu")
        return Staged(super().all_to_all(host, blocks.cpu(), *sizes), host, out)

    def broadcast(self, out: Tensor, source: int) -> Staged:
        host = out.to("cpu", copy=True)
        return Staged(super().broadcast(host, source), host, out)

    def send(self, block: Tensor, to: int) -> Staged:
        host = block.cpu()
        return Staged(super().send(host, to), host, None)

    def receive(self, out: Tensor, source: int) -> Staged:
        host = torch.empty_like(out, device="cpu")
        return Staged(super().receive(host, source), host, out)
