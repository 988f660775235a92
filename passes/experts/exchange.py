"""How buffers of rows travel between the devices that have the rows and those of their experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.experts.chunks import Call, in_chunk
from shardc.passes.experts.layout import Layout

_ROWS = 4
"""The dim of a turned buffer, [ways, before, after, own, rows, ...], that has the rows of a block."""


@dataclass(frozen=True)
class Exchange:
    """Moves the buffers of one routing.

    A buffer [ways, blocks, room, ...] is turned to [ways, before, after, own, room, ...]: blocks over axes
    behind those of the experts (iterations) come first, so that what moves is cut last. Row i of a block is
    in chunk i % chunks, so that chunks have as many rows each, however many slots are empty.
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
        made, type_ = self._turned(call, buffer, type_)
        if at_once:
            made = self._moved(call, made, type_, to_experts=True)
        parts, part = self._split(call, made, type_)
        if not at_once:
            parts = [self._moved(call, made, part, to_experts=True) for made in parts]
        flat = part.with_shape(shape)
        return [
            self.in_chunk(call, number)("aten.reshape", (made, shape), [flat]).results[0]
            for number, made in enumerate(parts)
        ]

    def to_rows(self, call: Call, chunks: Sequence[ir.Value], type_: TensorType) -> ir.Value:
        """The other way round: of chunks [rows of a chunk, N] a buffer [ways, blocks, room, N]."""
        ways, before, own, after, room = self.layout.parts
        columns = type_.shape[1]
        part = type_.with_shape((ways, before, after, own, room // len(chunks), columns))
        moved = []
        for number, made in enumerate(chunks):
            view = self.in_chunk(call, number)("aten.view", (made, part.shape), [part]).results[0]
            moved.append(self._moved(call, view, part, to_experts=False))
        turned = part.with_shape((ways, before, after, own, room, columns))
        spread = part.with_shape((ways, before, own, after, room, columns))
        made = self._joined(call, moved, turned)
        made = call("aten.permute", (made, _exchanged(turned)), [spread]).results[0]
        buffer = type_.with_shape((*self.layout.shape, columns))
        return call("aten.reshape", (made, buffer.shape), [buffer]).results[0]

    def in_chunk(self, call: Call, number: int) -> Call:
        """``call`` for what waits for a chunk."""
        return call if self.layout.chunks == 1 else in_chunk(call, self.routing, number)

    def _turned(self, call: Call, buffer: ir.Value, type_: TensorType) -> tuple[ir.Value, TensorType]:
        ways, before, own, after, room = self.layout.parts
        rest = type_.shape[3:]
        spread = type_.with_shape((ways, before, own, after, room, *rest))
        turned = type_.with_shape((ways, before, after, own, room, *rest))
        made = call("aten.view", (buffer, spread.shape), [spread]).results[0]
        return call("aten.permute", (made, _exchanged(spread)), [turned]).results[0], turned

    def _split(self, call: Call, made: ir.Value, type_: TensorType) -> tuple[list[ir.Value], TensorType]:
        """The chunks of a turned buffer, and their type."""
        chunks = self.layout.chunks
        if chunks == 1:
            return [made], type_
        outer, room, rest = type_.shape[:_ROWS], type_.shape[_ROWS], type_.shape[_ROWS + 1 :]
        dealt = type_.with_shape((*outer, room // chunks, chunks, *rest))
        part = type_.with_shape((*outer, room // chunks, *rest))
        made = call("aten.view", (made, dealt.shape), [dealt]).results[0]
        select = lambda n: call("aten.select.int", (made, _ROWS + 1, n), [part]).results[0]  # noqa: E731
        return [select(number) for number in range(chunks)], part

    def _joined(self, call: Call, parts: Sequence[ir.Value], turned: TensorType) -> ir.Value:
        """A turned buffer of its chunks: it waits for the last, behind all that others wait for."""
        if len(parts) == 1:
            return parts[0]
        call = self.in_chunk(call, len(parts))
        outer, room, rest = turned.shape[:_ROWS], turned.shape[_ROWS], turned.shape[_ROWS + 1 :]
        dealt = turned.with_shape((*outer, room // len(parts), len(parts), *rest))
        made = call("aten.stack", (tuple(parts), _ROWS + 1), [dealt]).results[0]
        return call("aten.view", (made, turned.shape), [turned]).results[0]

    def _moved(self, call: Call, made: ir.Value, type_: TensorType, *, to_experts: bool) -> ir.Value:
        """A turned buffer after its exchange."""
        rank = len(type_.shape)
        layouts = self.layout.at_rows(rank), self.layout.at_experts(rank)
        for layout in layouts if to_experts else reversed(layouts):
            made = self._laid(call, made, layout)
        return made

    def _laid(self, call: Call, made: ir.Value, layout: Sharding) -> ir.Value:
        return constraint(made, layout, self.codec, loc=call.keywords["loc"], ip=call.keywords["ip"])


def _exchanged(type_: TensorType) -> tuple[int, ...]:
    """Dims 2 and 3 exchanged."""
    return (0, 1, 3, 2, *range(4, len(type_.shape)))
