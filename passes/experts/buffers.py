"""Writing the products of one routing on dispatched rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.constraint import constraint
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.experts.chosen_matrix import producer, table_row
from shardc.passes.experts.expert_weights import OUTER, PRODUCT
from shardc.passes.experts.layout import Layout
from shardc.passes.experts.row_wise import args_for, row_operands
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.program import Node, Program

Call = Callable[..., ir.Operation]


class Buffers:
    """The dispatched form of values of one routing, each made once.

    A value [rows, ...] becomes [ways * blocks * rows of a block, ...], so that calls that treat rows one by
    one are repeated as they are.
    """

    def __init__(
        self,
        program: Program,
        codec: ShardingCodec,
        layout: Layout,
        nodes: Sequence[Node],
        drops: bool = False,
    ) -> None:
        """``drops``: rows for which there is no room do not stop the step."""
        self._program, self._codec, self._layout, self._drops = program, codec, layout, drops
        self._nodes, self._builder = nodes, CallBuilder(program.block)
        self._made: dict[int, ir.Value] = {}
        self._behind = {n.results[0]: True for n in nodes if n.spec.target == PRODUCT}
        self._ids: ir.Value | None = None

    def write(self) -> None:
        """Replace the products; what nobody reads any more stays."""
        write = {PRODUCT: self._product, OUTER: self._sums}
        for node in self._nodes:
            write.get(node.spec.target, self._table_sums)(node)

    def _product(self, node: Node) -> None:
        """Multiply rows where their experts are; other users read them in their own order."""
        call, result = self._call(node), node.results[0]
        args = (
            self._buffer(node.operands[0], node),
            self._program.values[node.operands[1]],
            self._experts(node),
            self._layout.ways,
        )
        type_ = self._flat(self._program.types[result])
        made = call(PRODUCT, (*args, self._layout.share), [type_]).results[0]
        self._made[result] = made
        args = (self._back(call, made, type_), self._routing, self._layout.experts, self._drops)
        back = call("shardc.collect", args, [self._program.types[result]])
        node.op.results[0].replace_all_uses_with(back.results[0])

    def _sums(self, node: Node) -> None:
        """Sum outer products where the experts are."""
        x, y = (self._buffer(operand, node) for operand in node.operands[:2])
        args = (x, y, self._experts(node), self._layout.experts, self._layout.ways, self._layout.share)
        made = self._call(node)(OUTER, args, [self._program.types[node.results[0]]])
        copy_attributes(node.op, made, "dist.name")
        node.op.results[0].replace_all_uses_with(made.results[0])

    def _table_sums(self, node: Node) -> None:
        """Sum rows of a table's gradient where the experts are: outer products of ones and rows."""
        experts, columns = self._program.types[node.results[0]].shape
        call, type_ = self._call(node), self._program.types[node.results[0]]
        rows = self._buffer(node.operands[2], node)
        args = (
            self._ones(call, type_),
            rows,
            self._experts(node),
            experts,
            self._layout.ways,
            self._layout.share,
        )
        sums = call(OUTER, args, [type_.with_shape((experts, 1, columns))]).results[0]
        made = call("aten.view", (sums, type_.shape), [type_])
        copy_attributes(node.op, made, "dist.name")
        node.op.results[0].replace_all_uses_with(made.results[0])

    def _table_rows(self, table: int, node: Node) -> ir.Value:
        """An expert's row of a table for each dispatched row: products of ones and rows."""
        type_, call = self._program.types[table], self._call(node)
        experts, columns = type_.shape
        matrices = type_.with_shape((experts, 1, columns))
        value = call("aten.view", (self._program.values[table], matrices.shape), [matrices]).results[0]
        args = (self._ones(call, type_), value, self._experts(node), self._layout.ways, self._layout.share)
        made = type_.with_shape((prod(self._layout.shape), columns))
        return call(PRODUCT, args, [made]).results[0]

    def _ones(self, call: Call, type_: TensorType) -> ir.Value:
        ones = type_.with_shape((prod(self._layout.shape), 1))
        args = (ones.shape, 1.0, type_.dtype, None, None, None)
        return call("aten.full", args, [ones]).results[0]

    def _call(self, node: Node) -> Call:
        marks = attributes_of(node.op, "dist.phase", "dist.module")
        place = ir.InsertionPoint(node.op)
        return partial(self._builder.call, loc=node.op.location, ip=place, attributes=marks)

    @property
    def _routing(self) -> ir.Value:
        """The expert of each row, in the rows' own order."""
        return self._program.values[self._nodes[0].operands[2]]

    def _experts(self, node: Node) -> ir.Value:
        """The expert of each dispatched row."""
        if self._ids is None:
            layout, call = self._layout, self._call(node)
            type_ = self._program.types[node.operands[2]].with_shape(layout.shape)
            args = (self._routing, layout.experts, *layout.shape, self._drops)
            made = call("shardc.dispatch_ids", args, [type_]).results[0]
            self._ids = self._moved(call, made, type_, (prod(type_.shape),))
        return self._ids

    def _buffer(self, value: int, node: Node) -> ir.Value:
        """The dispatched form of a value, before ``node`` at the latest."""
        if value not in self._made:
            table = self._table(value)
            if table is not None:
                self._made[value] = self._table_rows(table, node)
            elif self._is_behind(value):
                self._repeat(value, node)
            else:
                self._made[value] = self._dispatch(value, self._call(node))
        return self._made[value]

    def _is_behind(self, value: int) -> bool:
        """Whether a value follows, row by row, from a product of this routing."""
        if value not in self._behind:
            made = producer(self._program, value)
            self._behind[value] = any(map(self._is_behind, self._sources(made)))
        return self._behind[value]

    def _table(self, value: int) -> int | None:
        """The table of which a value has a row for each row of this routing."""
        made = producer(self._program, value)
        found = None if made is None else table_row(self._program, made)
        return found[0] if found is not None and found[1] == self._nodes[0].operands[2] else None

    def _sources(self, node: Node | None) -> list[int]:
        """The operands of a call on rows that have its rows."""
        if node is None or self._program.types[node.results[0]].shape[:1] != (self._layout.rows,):
            return []
        return [node.operands[place] for place in row_operands(node) or ()]

    def _repeat(self, value: int, node: Node) -> None:
        """Compute on dispatched rows what makes ``value``."""
        made = producer(self._program, value)
        assert made is not None
        rows = set(row_operands(made) or ())
        operands = [
            self._buffer(operand, node) if place in rows else self._program.values[operand]
            for place, operand in enumerate(made.operands)
        ]
        types = [self._flat(self._program.types[result]) for result in made.results]
        again = self._call(node)(made.spec.target, fill(args_for(made, types[0].shape), operands), types)
        self._made.update(zip(made.results, again.results, strict=True))

    def _dispatch(self, value: int, call: Call) -> ir.Value:
        """Bring rows to the devices of their experts."""
        layout, type_ = self._layout, self._program.types[value]
        width = prod(type_.shape[1:])
        rows = self._program.values[value]
        if len(type_.shape) != 2:
            flat = type_.with_shape((layout.rows, width))
            rows = call("aten.view", (rows, flat.shape), [flat]).results[0]
        buffer = type_.with_shape((*layout.shape, width))
        args = (rows, self._routing, layout.experts, *layout.shape, self._drops)
        made = call("shardc.dispatch", args, [buffer]).results[0]
        return self._moved(call, made, buffer, self._flat(type_).shape)

    def _moved(self, call: Call, made: ir.Value, type_: TensorType, shape: tuple[int, ...]) -> ir.Value:
        """A buffer where the experts are, its first three dims merged as in ``shape``.

        Blocks over axes behind those of the experts (iterations) come first, so that what moves is cut last.
        """
        ways, before, own, after, rows = self._layout.parts
        rest = type_.shape[3:]
        spread = type_.with_shape((ways, before, own, after, rows, *rest))
        turned = type_.with_shape((ways, before, after, own, rows, *rest))
        made = call("aten.view", (made, spread.shape), [spread]).results[0]
        made = call("aten.permute", (made, _exchanged(spread)), [turned]).results[0]
        for layout in (self._layout.at_rows, self._layout.at_experts):
            made = self._laid(call, made, layout(len(turned.shape)))
        return call("aten.reshape", (made, shape), [type_.with_shape(shape)]).results[0]

    def _back(self, call: Call, made: ir.Value, type_: TensorType) -> ir.Value:
        """The other way round: dispatched rows [rows, N] as a buffer."""
        ways, before, own, after, rows = self._layout.parts
        turned = type_.with_shape((ways, before, after, own, rows, type_.shape[1]))
        spread = type_.with_shape((ways, before, own, after, rows, type_.shape[1]))
        buffer = type_.with_shape((*self._layout.shape, type_.shape[1]))
        made = call("aten.view", (made, turned.shape), [turned]).results[0]
        for layout in (self._layout.at_experts, self._layout.at_rows):
            made = self._laid(call, made, layout(len(turned.shape)))
        made = call("aten.permute", (made, _exchanged(turned)), [spread]).results[0]
        return call("aten.reshape", (made, buffer.shape), [buffer]).results[0]

    def _laid(self, call: Call, made: ir.Value, layout: Sharding) -> ir.Value:
        return constraint(made, layout, self._codec, loc=call.keywords["loc"], ip=call.keywords["ip"])

    def _flat(self, type_: TensorType) -> TensorType:
        return type_.with_shape((prod(self._layout.shape), *type_.shape[1:]))


def _exchanged(type_: TensorType) -> tuple[int, ...]:
    """Dims 2 and 3 exchanged."""
    return (0, 1, 3, 2, *range(4, len(type_.shape)))
