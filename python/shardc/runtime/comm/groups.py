"""Process groups over mesh axes, created once and in the same order on every rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from .mesh import Axes, Mesh

Timeout = timedelta | None
# torch 2.13 renamed these two, and warns at every call by the old names.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Started(Protocol):
    """Started communication. ``wait`` makes the process, or its current stream, wait for its end."""

    def wait(self) -> object: ...


@dataclass(frozen=True)
class Group:
    """Ranks that differ from this one only on some axes, in the order of their index over these axes.

    ``handle``: c10d's group, which numbers its members in the order of their ranks. ``place[i]``: position in
    that group of the member with index ``i``; None if the two orders agree.
    """

    ranks: tuple[int, ...]
    handle: dist.ProcessGroup | None
    place: tuple[int, ...] | None

    @property
    def size(self) -> int:
        return len(self.ranks)

    def ordered(self, blocks: Tensor) -> Tensor:
        """Reorder blocks (dim 0) from c10d's order to the order of the index."""
        return blocks if self.place is None else torch.stack([blocks[i] for i in self.place])

    def sorted(self, blocks: Tensor) -> Tensor:
        """Reorder blocks (dim 0) from the order of the index to c10d's order."""
        if self.place is None:
            return blocks
        return torch.stack([blocks[i] for i in sorted(range(self.size), key=self.place.__getitem__)])

    # Calls of c10d. Each returns work to wait for.

    def all_reduce(self, out: Tensor, op: dist.ReduceOp.RedOpType) -> Started | None:
        return dist.all_reduce(out, op, self.handle, async_op=True)

    def all_gather(self, out: Tensor, block: Tensor) -> Started | None:
        return _gather(out, block, self.handle, async_op=True)

    def reduce_scatter(self, out: Tensor, blocks: Tensor, op: dist.ReduceOp.RedOpType) -> Started | None:
        return _reduce_scatter(out, blocks, op, self.handle, async_op=True)

    def all_to_all(self, out: Tensor, blocks: Tensor, *sizes: list[int]) -> Started | None:
        return dist.all_to_all_single(out, blocks, *sizes, group=self.handle, async_op=True)

    def send(self, block: Tensor, to: int) -> Started | None:
        return dist.isend(block, self.ranks[to], self.handle)

    def receive(self, out: Tensor, source: int) -> Started | None:
        return dist.irecv(out, self.ranks[source], self.handle)

    def broadcast(self, out: Tensor, source: int) -> Started | None:
        return dist.broadcast(out, source, self.handle, async_op=True)


def place_of(ranks: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the ``place`` of a :class:`Group`."""
    order = sorted(ranks)
    return None if order == list(ranks) else tuple(order.index(r) for r in ranks)


class Groups(dict[Axes, Group]):
    """Groups of one rank by the axes that they span, created in the same order on every rank."""

    def __init__(
        self,
        mesh: Mesh,
        rank: int,
        wanted: Iterable[Axes],
        timeout: Timeout = None,
        make: type[Group] = Group,
    ) -> None:
        super().__init__()
        self._handles: dict[frozenset[frozenset[int]], dist.ProcessGroup | None] = {}
        for axes in wanted:
            parts = mesh.partition(axes)
            own = next(p for p in parts if rank in p)
            self[axes] = make(own, None if len(own) == 1 else self._handle(parts, timeout), place_of(own))

    def _handle(self, parts: list[tuple[int, ...]], timeout: Timeout) -> dist.ProcessGroup | None:
        """Make one c10d group for each part. Axes with the same sets of ranks share groups."""
        key = frozenset(frozenset(p) for p in parts)
        if key not in self._handles:
            made = dist.group.WORLD
            if len(parts) > 1:
                made, _ = dist.new_subgroups_by_enumeration([sorted(p) for p in parts], timeout=timeout)
                assert not isinstance(made, int), "every rank is in one of them"
            self._handles[key] = made
        return self._handles[key]
