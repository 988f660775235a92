"""Writing the products of one routing on dispatched rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import fill
from shardc.dialects.aten.types import TensorType
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.passes.experts.chosen_matrix import producer, table_row
from shardc.passes.experts.chunks import Call
from shardc.passes.experts.exchange import Exchange
from shardc.passes.experts.expert_weights import OUTER, PRODUCT
from shardc.passes.experts.layout import Layout
from shardc.passes.experts.row_wise import args_for, row_operands
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.program import Node, Program


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
        self._program, self._layout, self._drops = program, layout, drops
        self._exchange = Exchange(layout, codec, nodes[0].operands[2])
        self._nodes, self._builder = nodes, CallBuilder(program.block)
        self._made: dict[int, list[ir.Value]] = {}
        self._behind = {n.results[0]: True for n in nodes if n.spec.target == PRODUCT}
        self._ids: list[ir.Value] | None = None
        self._rows = prod(layout.shape) // layout.chunks

    def write(self) -> None:
        """Replace the products; what nobody reads any more stays."""
        write = {PRODUCT: self._product, OUTER: self._sums}
        self._experts(self._nodes[0])  # no chunk is multiplied before they are there
        for node in self._nodes:
            write.get(node.spec.target, self._table_sums)(node)

    def _product(self, node: Node) -> None:
        """Multiply rows where their experts are; other users read them in their own order."""
        call, result = self._call(node), node.results[0]
        type_ = self._flat(self._program.types[result])
        rows = self._buffer(node.operands[0], node)
        made = self._multiplied(node, rows, self._program.values[node.operands[1]], type_)
        self._made[result] = made
        args = (self._exchange.to_rows(call, made, type_), self._routing, self._layout.experts, self._drops)
        back = call("shardc.collect", args, [self._program.types[result]])
        node.op.results[0].replace_all_uses_with(back.results[0])

    def _multiplied(
        self, node: Node, rows: Sequence[ir.Value], matrices: ir.Value, type_: TensorType
    ) -> list[ir.Value]:
        """The rows of each chunk times the matrices of their experts."""
        pairs = enumerate(zip(rows, self._experts(node), strict=True))
        ways, share = self._layout.ways, self._layout.share
        return [
            self._call(node, number)(PRODUCT, (x, matrices, ids, ways, share), [type_]).results[0]
            for number, (x, ids) in pairs
        ]

    def _sums(self, node: Node) -> None:
        """Sum outer products where the experts are."""
        x, y = (self._buffer(operand, node) for operand in node.operands[:2])
        made = self._summed(node, x, y, self._program.types[node.results[0]])
        copy_attributes(node.op, made, "dist.name")
        node.op.results[0].replace_all_uses_with(made.results[0])

    def _summed(
        self, node: Node, x: Sequence[ir.Value], y: Sequence[ir.Value], type_: TensorType
    ) -> ir.Operation:
        """For each expert the sum of the outer products of its rows, chunk by chunk."""
        layout, total = self._layout, None
        for number, operands in enumerate(zip(x, y, self._experts(node), strict=True)):
            call = self._call(node, number)
            made = call(OUTER, (*operands, layout.experts, layout.ways, layout.share), [type_])
            if total is not None:
                made = call("aten.add.Tensor", (total.results[0], made.results[0], 1), [type_])
            total = made
        assert total is not None
        return total

    def _table_sums(self, node: Node) -> None:
        """Sum rows of a table's gradient where the experts are: outer products of ones and rows."""
        experts, columns = self._program.types[node.results[0]].shape
        call, type_ = self._call(node), self._program.types[node.results[0]]
        rows = self._buffer(node.operands[2], node)
        sums = self._summed(node, self._ones(call, type_), rows, type_.with_shape((experts, 1, columns)))
        made = call("aten.view", (sums.results[0], type_.shape), [type_])
        copy_attributes(node.op, made, "dist.name")
        node.op.results[0].replace_all_uses_with(made.results[0])

    def _table_rows(self, table: int, node: Node) -> list[ir.Value]:
        """An expert's row of a table for each dispatched row: products of ones and rows."""
        type_, call = self._program.types[table], self._call(node)
        experts, columns = type_.shape
        matrices = type_.with_shape((experts, 1, columns))
        value = call("aten.view", (self._program.values[table], matrices.shape), [matrices]).results[0]
        return self._multiplied(node, self._ones(call, type_), value, self._flat(type_))

    def _ones(self, call: Call, type_: TensorType) -> list[ir.Value]:
        """A one for each dispatched row."""
        ones = type_.with_shape((self._rows, 1))
        args = (ones.shape, 1.0, type_.dtype, None, None, None)
        return [call("aten.full", args, [ones]).results[0]] * self._layout.chunks

    def _call(self, node: Node, chunk: int | None = None) -> Call:
        """Builds calls beside ``node``; those that wait for a chunk say for which."""
        marks = attributes_of(node.op, "dist.phase", "dist.module")
        place = ir.InsertionPoint(node.op)
        call = partial(self._builder.call, loc=node.op.location, ip=place, attributes=marks)
        return call if chunk is None else self._exchange.in_chunk(call, chunk)

    @property
    def _routing(self) -> ir.Value:
        """The expert of each row, in the rows' own order."""
        return self._program.values[self._nodes[0].operands[2]]

    def _experts(self, node: Node) -> list[ir.Value]:
        """The expert of each dispatched row, of each chunk; one exchange for all."""
        if self._ids is None:
            layout, call = self._layout, self._call(node)
            type_ = self._program.types[node.operands[2]].with_shape(layout.shape)
            args = (self._routing, layout.experts, *layout.shape, self._drops)
            made = call("shardc.dispatch_ids", args, [type_]).results[0]
            self._ids = self._exchange.to_experts(call, made, type_, (self._rows,), at_once=True)
        return self._ids

    def _buffer(self, value: int, node: Node) -> list[ir.Value]:
        """The dispatched form of a value, of each chunk, before ``node`` at the latest."""
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
        types = [self._flat(self._program.types[result]) for result in made.results]
        args = args_for(made, types[0].shape)
        chunks = [
            self._buffer(operand, node)
            if place in rows
            else [self._program.values[operand]] * self._layout.chunks
            for place, operand in enumerate(made.operands)
        ]
        again = [
            self._call(node, number)(made.spec.target, fill(args, list(operands)), types).results
            for number, operands in enumerate(zip(*chunks, strict=True))
        ]
        self._made.update(zip(made.results, map(list, zip(*again, strict=True)), strict=True))

    def _dispatch(self, value: int, call: Call) -> list[ir.Value]:
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
        return self._exchange.to_experts(call, made, buffer, self._flat(type_).shape)

    def _flat(self, type_: TensorType) -> TensorType:
        """A value's type on the dispatched rows of a chunk."""
        return type_.with_shape((self._rows, *type_.shape[1:]))
