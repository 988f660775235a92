"""How rows are dispatched to experts: the dims of buffers, and what cuts them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from shardc.dialects.dist.sharding import Axes, Sharding


@dataclass(frozen=True)
class Layout:
    """How ``rows`` for ``experts`` are dispatched: over which axes experts and the batch are cut."""

    rows: int
    experts: int
    expert_axes: Axes
    batch_axes: Axes
    capacity: float | None = None
    """Room for rows of a block at each way, as a multiple of an equal share; None: for all of them."""
    chunks: int = 1
    """In how many exchanges a buffer is moved; the room is rounded up to a multiple."""

    @cached_property
    def ways(self) -> int:
        return prod(a.size for a in self.expert_axes)

    @cached_property
    def blocks(self) -> int:
        return prod(a.size for a in self.batch_axes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """[ways, blocks, room]: the dims of a buffer."""
        return self.ways, self.blocks, self.room

    @cached_property
    def room(self) -> int:
        """For how many rows of a block each way has room."""
        rows = self.rows // self.blocks
        if self.capacity is not None:
            rows = min(rows, ceil(self.capacity * rows / self.ways))
        return ceil(rows / self.chunks) * self.chunks

    @cached_property
    def share(self) -> float:
        """The part of a way's slots that one expert is expected to fill."""
        return self.rows / (self.blocks * self.room * self.experts)

    @cached_property
    def block_axes(self) -> tuple[Axes, Axes, Axes]:
        """The axes of the batch before those of the experts, those of the experts, and those after them."""
        is_expert = [any(a.overlaps(b) for b in self.expert_axes) for a in self.batch_axes]
        first = is_expert.index(True) if any(is_expert) else len(is_expert)
        end = first + sum(is_expert)
        return self.batch_axes[:first], self.batch_axes[first:end], self.batch_axes[end:]

    @property
    def parts(self) -> tuple[int, int, int, int, int]:
        """A buffer's :attr:`shape`, with its blocks by :attr:`block_axes`."""
        ways, _, room = self.shape
        before, own, after = (prod(a.size for a in axes) for axes in self.block_axes)
        return ways, before, own, after, room

    def at_experts(self, rank: int) -> Sharding:
        """The layout of turned parts where the experts are: blocks of the batch stay cut over other axes."""
        before, _, after = self.block_axes
        return _with_width((self.expert_axes, before, after, (), ()), rank)

    def at_rows(self, rank: int) -> Sharding:
        """The layout of turned parts where the rows are."""
        before, own, after = self.block_axes
        return _with_width(((), before, after, own, ()), rank)


def _with_width(dims: tuple[Axes, ...], rank: int) -> Sharding:
    """A layout of which propagation may cut the dims behind ``dims`` further."""
    more = rank - len(dims)
    return Sharding((*dims, *((),) * more), (), (*(False,) * len(dims), *(True,) * more))
