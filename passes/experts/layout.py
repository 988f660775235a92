"""Layout of dispatched rows: dims of buffers, and the axes that split them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from shardc.dialects.dist.sharding import Axes, Sharding


@dataclass(frozen=True)
class Part:
    """Rows of one routing that one product multiplies.

    ``chunk``: number of the chunk that brings the rows; None for rows that stay, because their experts are
    copied. ``ways``: number of blocks of rows, one for each block of ``experts``. ``share``: part of a
    block's rows that one expert is expected to have.
    """

    chunk: int | None
    rows: int
    experts: int
    ways: int
    share: float


@dataclass(frozen=True)
class Layout:
    """Layout of ``rows`` that are dispatched to ``experts``, by the axes that split experts and batch."""

    rows: int
    experts: int
    expert_axes: Axes
    batch_axes: Axes
    capacity: float | None = None
    """Room for rows of a block at each block of experts, as a multiple of an equal share; None: all rows."""
    chunks: int = 1
    """Number of exchanges that move a buffer; the room is rounded up to a multiple."""
    group: int = 0
    """Number of adjacent devices that exchange rows first, before groups exchange them; 0: all at once."""
    copies: tuple[int, ...] = ()
    """Experts of which each device has a copy. Their rows stay on their devices."""

    @cached_property
    def ways(self) -> int:
        return _ways(self.expert_axes)

    @cached_property
    def blocks(self) -> int:
        return _ways(self.batch_axes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Dims of a buffer: [ways, blocks, room].

        These are blocks of experts, blocks of the batch, and slots for rows.
        """
        return self.ways, self.blocks, self.room

    @cached_property
    def room(self) -> int:
        """Number of rows of a batch block for which each block of experts has room."""
        rows = self.rows // self.blocks
        if self.capacity is not None:
            rows = min(rows, ceil(self.capacity * self._sent(rows) / self.ways))
        return ceil(rows / self.chunks) * self.chunks

    @cached_property
    def share(self) -> float:
        """Part of an expert block's slots that one expert is expected to fill."""
        return self._sent(self.rows) / (self.blocks * self.room * self.experts)

    def _sent(self, rows: int) -> float:
        """Return how many of ``rows`` are sent if all experts have equally many rows."""
        return rows * (self.experts - len(self.copies)) / self.experts

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Parts of all rows: one for each chunk, and one for rows that stay."""
        rows = prod(self.shape) // self.chunks
        sent = [Part(chunk, rows, self.experts, self.ways, self.share) for chunk in range(self.chunks)]
        if self.copies:
            return (*sent, Part(None, self.rows, len(self.copies), 1, 1 / self.experts))
        return tuple(sent)

    @cached_property
    def block_axes(self) -> tuple[Axes, Axes, Axes]:
        """Axes of the batch in three lists: before those of the experts, those of the experts, and after."""
        is_expert = [any(a.overlaps(b) for b in self.expert_axes) for a in self.batch_axes]
        first = is_expert.index(True) if any(is_expert) else len(is_expert)
        end = first + sum(is_expert)
        return self.batch_axes[:first], self.batch_axes[first:end], self.batch_axes[end:]

    @cached_property
    def levels(self) -> tuple[tuple[Axes, Axes], ...]:
        """Axes of each exchange: those of the experts, and those of the batch.

        An exchange moves the split between them. The order is that of results on their way back: between
        groups of devices first, then within groups.
        """
        own = self.block_axes[1]
        if not self.is_grouped:
            return ((self.expert_axes, own),)
        (axis,) = own
        outer, inner = axis.split(axis.size // self.group)
        return (((outer,), (outer,)), ((inner,), (inner,)))

    @property
    def is_grouped(self) -> bool:
        """True if rows are exchanged within groups of devices first.

        That needs one axis that splits both rows and experts.
        """
        one_axis = len(self.expert_axes) == 1 and self.block_axes[1] == self.expert_axes
        return one_axis and 1 < self.group < self.ways and self.ways % self.group == 0

    @property
    def spread(self) -> tuple[int, ...]:
        """Shape of a spread buffer: :attr:`shape` with split dims, [*ways, before, *own, after, room].

        ``ways`` are split by level. Blocks are split by :attr:`block_axes`, and the middle ones by level.
        """
        before, _, after = map(_ways, self.block_axes)
        ways, own = zip(*((_ways(to), _ways(of)) for to, of in self.levels), strict=True)
        return (*ways, before, *own, after, self.room)

    @property
    def order(self) -> tuple[int, ...]:
        """Dims of :attr:`spread` in the order of a turned buffer, [*ways, before, after, *own, room]."""
        n = len(self.levels)
        return (*range(n + 1), 2 * n + 1, *range(n + 1, 2 * n + 1), 2 * n + 2)

    def stops(self, rank: int) -> list[Sharding]:
        """Return the shardings of a turned buffer on its way from the rows to the experts.

        Levels are exchanged from last to first. Batch blocks over other axes stay split.
        """
        before, _, after = self.block_axes
        return [self._stop(moved, before, after, rank) for moved in range(len(self.levels) + 1)]

    def _stop(self, moved: int, before: Axes, after: Axes, rank: int) -> Sharding:
        """Return the sharding after ``moved`` exchanges. Propagation may still shard the dims after rows."""
        still = len(self.levels) - moved
        ways = [to if level >= still else () for level, (to, _) in enumerate(self.levels)]
        own = [of if level < still else () for level, (_, of) in enumerate(self.levels)]
        dims = (*ways, before, after, *own, ())
        more = rank - len(dims)
        return Sharding((*dims, *((),) * more), (), (*(False,) * len(dims), *(True,) * more))


def _ways(axes: Axes) -> int:
    return prod(axis.size for axis in axes)
