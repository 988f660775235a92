"""``Exchange``: moves buffers between the devices of rows and the devices of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.experts.chunks import Call, in_chunk
from shardc.passes.experts.layout import Layout


@dataclass(frozen=True)
class Exchange:
    """Writer of the exchanges of one routing's buffers.

    A buffer [ways, blocks, room, ...] is spread, by views, to [*ways, before, *own, after, room, ...] (see
    :attr:`Layout.spread`). It is then turned, by a permute, to [*ways, before, after, *own, room, ...], so
    that the dims whose split moves are next to the rows. Row i of a block is in chunk i % chunks, so that
    chunks have equally many rows, however many slots are empty.

    If devices are in groups, rows are exchanged within groups first, and then between groups; results go
    the opposite way. So two groups exchange one message, instead of one for each device of the other.
    """

    layout: Layout
    codec: ShardingCodec
    routing: int
    """Number of the value that holds the routing."""

    def to_experts(
        self,
        call: Call,
        buffer: ir.Value,
        type_: TensorType,
        shape: tuple[int, ...],
        at_once: bool = False,
    ) -> list[ir.Value]:
        """Send a buffer to the devices of the experts and return its chunks.

        ``shape``: shape of each chunk, [rows of a chunk, ...]. ``at_once``: True for one exchange for all
        chunks, False for one per chunk.
        """
        spread = type_.with_shape((*self.layout.spread, *type_.shape[3:]))
        turned = self._turned(spread)
        part = self._part(turned)
        made = call("aten.view", (buffer, spread.shape), [spread]).results[0]
        made = call("aten.permute", (made, self._order(turned)), [turned]).results[0]
        if at_once:
            made = self._moved(call, made, turned, to_experts=True)
        parts = self._split(call, made, part)
        if not at_once:
            parts = [self._moved(call, made, part, to_experts=True) for made in parts]
        flat = part.with_shape(shape)
        return [
            self.in_chunk(call, number)("aten.reshape", (made, shape), [flat]).results[0]
            for number, made in enumerate(parts)
        ]

    def to_rows(self, call: Call, chunks: Sequence[ir.Value], type_: TensorType) -> ir.Value:
        """Send chunks [rows of a chunk, N] back to the devices of the rows.

        Return them as one buffer [ways, blocks, room, N].
        """
        spread = type_.with_shape((*self.layout.spread, type_.shape[1]))
        turned = self._turned(spread)
        part = self._part(turned)
        moved = []
        for number, made in enumerate(chunks):
            view = self.in_chunk(call, number)("aten.view", (made, part.shape), [part]).results[0]
            moved.append(self._moved(call, view, part, to_experts=False))
        made = self._joined(call, moved, turned)
        order = self._order(turned)
        back = tuple(map(order.index, range(len(order))))
        made = call("aten.permute", (made, back), [spread]).results[0]
        buffer = type_.with_shape((*self.layout.shape, type_.shape[1]))
        return call("aten.reshape", (made, buffer.shape), [buffer]).results[0]

    def in_chunk(self, call: Call, number: int) -> Call:
        """Return ``call`` for calls that wait for a chunk.

        A single chunk needs no mark, unless rows stay: products of those overlap with its exchange.
        """
        is_ordered = self.layout.chunks > 1 or self.layout.copies
        return in_chunk(call, self.routing, number) if is_ordered else call

    def _order(self, type_: TensorType) -> tuple[int, ...]:
        """Return the permutation from a spread buffer to a turned one."""
        order = self.layout.order
        return (*order, *range(len(order), len(type_.shape)))

    def _turned(self, spread: TensorType) -> TensorType:
        return spread.with_shape(tuple(spread.shape[d] for d in self._order(spread)))

    def _part(self, turned: TensorType) -> TensorType:
        """Return the type of a chunk of a turned buffer."""
        rows, chunks = len(self.layout.order) - 1, self.layout.chunks
        return turned.with_shape(
            (*turned.shape[:rows], turned.shape[rows] // chunks, *turned.shape[rows + 1 :])
        )

    def _dealt(self, part: TensorType) -> tuple[int, TensorType]:
        """Return a turned buffer's type with its rows as [rows of a chunk, chunks], and the chunks' dim."""
        dim = len(self.layout.order)
        return dim, part.with_shape((*part.shape[:dim], self.layout.chunks, *part.shape[dim:]))

    def _split(self, call: Call, made: ir.Value, part: TensorType) -> list[ir.Value]:
        """Return the chunks of a turned buffer."""
        if self.layout.chunks == 1:
            return [made]
        dim, dealt = self._dealt(part)
        made = call("aten.view", (made, dealt.shape), [dealt]).results[0]
        select = lambda n: call("aten.select.int", (made, dim, n), [part]).results[0]  # noqa: E731
        return [select(number) for number in range(self.layout.chunks)]

    def _joined(self, call: Call, parts: Sequence[ir.Value], turned: TensorType) -> ir.Value:
        """Return a turned buffer made of its chunks, by calls that wait for all chunks."""
        if len(parts) == 1:
            return parts[0]
        call = self.in_chunk(call, len(parts))
        dim, dealt = self._dealt(self._part(turned))
        made = call("aten.stack", (tuple(parts), dim), [dealt]).results[0]
        return call("aten.view", (made, turned.shape), [turned]).results[0]

    def _moved(self, call: Call, made: ir.Value, type_: TensorType, *, to_experts: bool) -> ir.Value:
        """Return a turned buffer, or a chunk of one, after its exchanges."""
        stops = self.layout.stops(len(type_.shape))
        for layout in stops if to_experts else reversed(stops):
            made = self._laid(call, made, layout)
        return made

    def _laid(self, call: Call, made: ir.Value, layout: Sharding) -> ir.Value:
        return constraint(made, layout, self.codec, loc=call.keywords["loc"], ip=call.keywords["ip"])
