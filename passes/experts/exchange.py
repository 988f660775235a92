"""Exchange of buffers between the devices of rows and the devices of experts."""

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
    """Moves the buffers of one routing.

    A buffer [ways, blocks, room, ...] is turned to [*ways, before, after, *own, room, ...]: blocks over axes
    behind those of the experts (iterations) come first, so that what moves is cut last. Row i of a block is
    in chunk i % chunks, so that chunks have as many rows each, however many slots are empty. Where devices
    are in groups, an exchange within them comes before one between them, and back the other way round: two
    groups trade one message, and not one for each device of the other.
    """

    layout: Layout
    codec: ShardingCodec
    routing: int
    """Its number among those of the program."""

    def to_experts(
        self,
        call: Call,
        buffer: ir.Value,
        type_: TensorType,
        shape: tuple[int, ...],
        at_once: bool = False,
    ) -> list[ir.Value]:
        """The chunks of a buffer where the experts are, each [rows of a chunk, ...] of ``shape``.

        ``at_once``: one exchange for all chunks.
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
        """The other way round: of chunks [rows of a chunk, N] a buffer [ways, blocks, room, N]."""
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
        """``call`` for what waits for a chunk. Beside a single one there is work if rows stay."""
        is_ordered = self.layout.chunks > 1 or self.layout.copies
        return in_chunk(call, self.routing, number) if is_ordered else call

    def _order(self, type_: TensorType) -> tuple[int, ...]:
        """The dims of a buffer that is spread in one that is turned."""
        order = self.layout.order
        return (*order, *range(len(order), len(type_.shape)))

    def _turned(self, spread: TensorType) -> TensorType:
        return spread.with_shape(tuple(spread.shape[d] for d in self._order(spread)))

    def _part(self, turned: TensorType) -> TensorType:
        """A chunk of a turned buffer."""
        rows, chunks = len(self.layout.order) - 1, self.layout.chunks
        return turned.with_shape(
            (*turned.shape[:rows], turned.shape[rows] // chunks, *turned.shape[rows + 1 :])
        )

    def _dealt(self, part: TensorType) -> tuple[int, TensorType]:
        """The dim of chunks in a turned buffer whose rows are dealt out to them, and its type."""
        dim = len(self.layout.order)
        return dim, part.with_shape((*part.shape[:dim], self.layout.chunks, *part.shape[dim:]))

    def _split(self, call: Call, made: ir.Value, part: TensorType) -> list[ir.Value]:
        """The chunks of a turned buffer."""
        if self.layout.chunks == 1:
            return [made]
        dim, dealt = self._dealt(part)
        made = call("aten.view", (made, dealt.shape), [dealt]).results[0]
        select = lambda n: call("aten.select.int", (made, dim, n), [part]).results[0]  # noqa: E731
        return [select(number) for number in range(self.layout.chunks)]

    def _joined(self, call: Call, parts: Sequence[ir.Value], turned: TensorType) -> ir.Value:
        """A turned buffer of its chunks: it waits for the last, behind all that others wait for."""
        if len(parts) == 1:
            return parts[0]
        call = self.in_chunk(call, len(parts))
        dim, dealt = self._dealt(self._part(turned))
        made = call("aten.stack", (tuple(parts), dim), [dealt]).results[0]
        return call("aten.view", (made, turned.shape), [turned]).results[0]

    def _moved(self, call: Call, made: ir.Value, type_: TensorType, *, to_experts: bool) -> ir.Value:
        """A turned buffer, or a chunk of one, after its exchanges."""
        stops = self.layout.stops(len(type_.shape))
        for layout in stops if to_experts else reversed(stops):
            made = self._laid(call, made, layout)
        return made

    def _laid(self, call: Call, made: ir.Value, layout: Sharding) -> ir.Value:
        return constraint(made, layout, self.codec, loc=call.keywords["loc"], ip=call.keywords["ip"])
