"""Layout of dispatched rows: dims of buffers, and the axes that split them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from shardc.dialects.dist.sharding import Axes, Sharding


@dataclass(frozen=True)
class Part:
    """Rows of one routing that are multiplied at once, in ``ways`` blocks, each for a block of ``experts``.

    ``chunk``: the number of the chunk that brings them; None for those that stay, as their experts have
    copies.
    """

    chunk: int | None
    rows: int
    experts: int
    ways: int
    share: float


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
    group: int = 0
    """How many devices next to each other trade rows first, before groups trade them; 0: all do at once."""
    copies: tuple[int, ...] = ()
    """The experts that each device has a copy of: their rows stay where they are."""

    @cached_property
    def ways(self) -> int:
        return _ways(self.expert_axes)

    @cached_property
    def blocks(self) -> int:
        return _ways(self.batch_axes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """[ways, blocks, room]: the dims of a buffer."""
        return self.ways, self.blocks, self.room

    @cached_property
    def room(self) -> int:
        """For how many rows of a block each way has room."""
        rows = self.rows // self.blocks
        if self.capacity is not None:
            rows = min(rows, ceil(self.capacity * self._sent(rows) / self.ways))
        return ceil(rows / self.chunks) * self.chunks

    @cached_property
    def share(self) -> float:
        """The part of a way's slots that one expert is expected to fill."""
        return self._sent(self.rows) / (self.blocks * self.room * self.experts)

    def _sent(self, rows: int) -> float:
        """How many of ``rows`` are sent to experts, if all experts have equally many."""
        return rows * (self.experts - len(self.copies)) / self.experts

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """All rows: those of each chunk, and those that stay."""
        rows = prod(self.shape) // self.chunks
        sent = [Part(chunk, rows, self.experts, self.ways, self.share) for chunk in range(self.chunks)]
        if self.copies:
            return (*sent, Part(None, self.rows, len(self.copies), 1, 1 / self.experts))
        return tuple(sent)

    @cached_property
    def block_axes(self) -> tuple[Axes, Axes, Axes]:
        """The axes of the batch before those of the experts, those of the experts, and those after them."""
        is_expert = [any(a.overlaps(b) for b in self.expert_axes) for a in self.batch_axes]
        first = is_expert.index(True) if any(is_expert) else len(is_expert)
        end = first + sum(is_expert)
        return self.batch_axes[:first], self.batch_axes[first:end], self.batch_axes[end:]

    @cached_property
    def levels(self) -> tuple[tuple[Axes, Axes], ...]:
        """The axes of the experts that an exchange brings rows to, and those of the batch that it takes them
        from, of each exchange on the way back: between groups of devices, and then within them.
        """
        own = self.block_axes[1]
        if not self.is_grouped:
            return ((self.expert_axes, own),)
        (axis,) = own
        outer, inner = axis.split(axis.size // self.group)
        return (((outer,), (outer,)), ((inner,), (inner,)))

    @property
    def is_grouped(self) -> bool:
        """Whether rows travel within groups of devices first: one axis cuts both rows and experts."""
        one_axis = len(self.expert_axes) == 1 and self.block_axes[1] == self.expert_axes
        return one_axis and 1 < self.group < self.ways and self.ways % self.group == 0

    @property
    def spread(self) -> tuple[int, ...]:
        """A buffer's :attr:`shape`, with its ways by level, and its blocks by :attr:`block_axes`, its own by
        level: [*ways, before, *own, after, room].
        """
        before, _, after = map(_ways, self.block_axes)
        ways, own = zip(*((_ways(to), _ways(of)) for to, of in self.levels), strict=True)
        return (*ways, before, *own, after, self.room)

    @property
    def order(self) -> tuple[int, ...]:
        """The dims of :attr:`spread` in a turned buffer, [*ways, before, after, *own, room]."""
        n = len(self.levels)
        return (*range(n + 1), 2 * n + 1, *range(n + 1, 2 * n + 1), 2 * n + 2)

    def stops(self, rank: int) -> list[Sharding]:
        """The layouts of a turned buffer on its way from the rows to the experts: of the levels, the last
        moves first. Blocks of the batch stay cut over other axes.
        """
        before, _, after = self.block_axes
        return [self._stop(moved, before, after, rank) for moved in range(len(self.levels) + 1)]

    def _stop(self, moved: int, before: Axes, after: Axes, rank: int) -> Sharding:
        """After ``moved`` exchanges. Propagation may cut the dims behind the rows further."""
        still = len(self.levels) - moved
        ways = [to if level >= still else () for level, (to, _) in enumerate(self.levels)]
        own = [of if level < still else () for level, (_, of) in enumerate(self.levels)]
        dims = (*ways, before, after, *own, ())
        more = rank - len(dims)
        return Sharding((*dims, *((),) * more), (), (*(False,) * len(dims), *(True,) * more))


def _ways(axes: Axes) -> int:
    return prod(axis.size for axis in axes)
