"""``Buffers``: writer of the products of one routing on dispatched rows."""

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
from shardc.passes.experts.copies import Copies
from shardc.passes.experts.exchange import Exchange
from shardc.passes.experts.expert_weights import OUTER, PRODUCT
from shardc.passes.experts.layout import Layout, Part
from shardc.passes.experts.row_wise import args_for, row_operands
from shardc.passes.manager.attributes import attributes_of, copy_attributes
from shardc.passes.manager.program import Node, Program


class Buffers:
    """Dispatched forms of the values of one routing. Each form is made once.

    A value [rows, ...] becomes [ways * blocks * rows of a block, ...], so that row-wise calls can be repeated
    unchanged. It has one form for each part of the layout: one for each chunk of the rows that are sent, and
    one for the rows that stay, which keep their order.
    """

    def __init__(
        self,
        program: Program,
        codec: ShardingCodec,
        layout: Layout,
        nodes: Sequence[Node],
        first: Node,
        drops: bool = False,
    ) -> None:
        """Prepare the forms. ``first``: first call that reads the routing.

        ``drops``: True if the step ignores rows without room instead of stopping.
        """
        self._program, self._layout, self._drops = program, layout, drops
        self._number = nodes[0].operands[2]
        self._exchange = Exchange(layout, codec, self._number)
        self._nodes, self._builder = nodes, CallBuilder(program.block)
        call = self._call(first)
        self._copies = Copies(program, codec, layout, self._number, call) if layout.copies else None
        self._made: dict[int, list[ir.Value]] = {}
        self._behind = {n.results[0]: True for n in nodes if n.spec.target == PRODUCT}
        self._ids: list[ir.Value] | None = None

    def write(self) -> None:
        """Replace the products. Calls without readers are left for the caller to remove."""
        write = {PRODUCT: self._product, OUTER: self._sums}
        self._experts(self._nodes[0])  # products of all chunks read the experts' numbers
        for node in self._nodes:
            write.get(node.spec.target, self._table_sums)(node)

    def _product(self, node: Node) -> None:
        """Multiply rows on the devices of their experts; collect the results in the original row order.

        Only readers that are not row-wise calls of this routing need the collected rows.
        """
        call, result = self._call(node), node.results[0]
        type_, matrices = self._program.types[result], self._program.values[node.operands[1]]
        rows = self._buffer(node.operands[0], node)
        copies = None if self._copies is None else self._copies.matrices(call, node.operands[1])
        made = self._multiplied(node, rows, matrices, copies, type_)
        self._made[result] = made
        chunks = made[: self._layout.chunks]
        buffer = self._exchange.to_rows(call, chunks, self._flat(type_, self._layout.parts[0]))
        args = (buffer, self.routing, self._layout.experts, self._drops)
        back = call("shardc.collect", args, [type_]).results[0]
        if self._copies is not None:
            back = self._copies.joined(call, made[-1], back, type_)
        node.op.results[0].replace_all_uses_with(back)

    def _multiplied(
        self,
        node: Node,
        rows: Sequence[ir.Value],
        matrices: ir.Value,
        copies: ir.Value | None,
        type_: TensorType,
    ) -> list[ir.Value]:
        """Return the rows of each part times the matrices of their experts; rows that stay use ``copies``."""
        made = []
        for part, x, ids in zip(self._layout.parts, rows, self._experts(node), strict=True):
            args = (x, matrices if part.chunk is not None else copies, ids, part.ways, part.share)
            made.append(self._call(node, part.chunk)(PRODUCT, args, [self._flat(type_, part)]).results[0])
        return made

    def _sums(self, node: Node) -> None:
        """Sum outer products on the devices of the experts."""
        x, y = (self._buffer(operand, node) for operand in node.operands[:2])
        made = self._summed(node, x, y, self._program.types[node.results[0]])
        copy_attributes(node.op, made, "dist.name")
        node.op.results[0].replace_all_uses_with(made.results[0])

    def _summed(
        self, node: Node, x: Sequence[ir.Value], y: Sequence[ir.Value], type_: TensorType
    ) -> ir.Operation:
        """Return, for each expert, the sum of the outer products of its rows, accumulated over the parts."""
        total = None
        for part, *operands in zip(self._layout.parts, x, y, self._experts(node), strict=True):
            call = self._call(node, part.chunk)
            sums = type_.with_shape((part.experts, *type_.shape[1:]))
            made = call(OUTER, (*operands, part.experts, part.ways, part.share), [sums])
            if part.chunk is None and self._copies is not None:
                made = self._copies.placed(call, made.results[0], type_)
            if total is not None:
                made = call("aten.add.Tensor", (total.results[0], made.results[0], 1), [type_])
            total = made
        assert total is not None
        return total

    def _table_sums(self, node: Node) -> None:
        """Sum rows of a table's gradient at the experts, as outer products of ones and rows."""
        experts, columns = self._program.types[node.results[0]].shape
        call, type_ = self._call(node), self._program.types[node.results[0]]
        rows = self._buffer(node.operands[2], node)
        sums = self._summed(node, self._ones(call, type_), rows, type_.with_shape((experts, 1, columns)))
        made = call("aten.view", (sums.results[0], type_.shape), [type_])
        copy_attributes(node.op, made, "dist.name")
        node.op.results[0].replace_all_uses_with(made.results[0])

    def _table_rows(self, table: int, node: Node) -> list[ir.Value]:
        """Return the expert's row of a table for each dispatched row, as products of ones and matrices."""
        type_, call = self._program.types[table], self._call(node)
        experts, columns = type_.shape
        matrices = type_.with_shape((experts, 1, columns))
        value = call("aten.view", (self._program.values[table], matrices.shape), [matrices]).results[0]
        copies = None if self._copies is None else self._copies.picked(call, value, matrices)
        return self._multiplied(node, self._ones(call, type_), value, copies, type_)

    def _ones(self, call: Call, type_: TensorType) -> list[ir.Value]:
        """Return a column of ones, one for each row, for each part."""
        made: dict[int, ir.Value] = {}
        for rows in dict.fromkeys(part.rows for part in self._layout.parts):
            ones = type_.with_shape((rows, 1))
            args = (ones.shape, 1.0, type_.dtype, None, None, None)
            made[rows] = call("aten.full", args, [ones]).results[0]
        return [made[part.rows] for part in self._layout.parts]

    def _call(self, node: Node, chunk: int | None = None) -> Call:
        """Return a builder of calls before ``node``. ``chunk``: chunk that the calls wait for, if any."""
        marks = attributes_of(node.op, "dist.phase", "dist.module")
        place = ir.InsertionPoint(node.op)
        call = partial(self._builder.call, loc=node.op.location, ip=place, attributes=marks)
        return call if chunk is None else self._exchange.in_chunk(call, chunk)

    @property
    def routing(self) -> ir.Value:
        """Expert of each row, in the original row order; -1 for rows that stay."""
        return self._program.values[self._number] if self._copies is None else self._copies.sent

    def _experts(self, node: Node) -> list[ir.Value]:
        """Return the experts of the rows of each part. One exchange sends them for all chunks."""
        if self._ids is None:
            layout, call = self._layout, self._call(node)
            type_ = self._program.types[self._number].with_shape(layout.shape)
            args = (self.routing, layout.experts, *layout.shape, self._drops)
            made = call("shardc.dispatch_ids", args, [type_]).results[0]
            rows = (layout.parts[0].rows,)
            self._ids = self._exchange.to_experts(call, made, type_, rows, at_once=True)
            if self._copies is not None:
                self._ids = [*self._ids, self._copies.ids]
        return self._ids

    def _buffer(self, value: int, node: Node) -> list[ir.Value]:
        """Return the dispatched form of a value for each part; a missing form is written before ``node``."""
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
        """Return whether row-wise calls compute a value from a product of this routing."""
        if value not in self._behind:
            made = producer(self._program, value)
            self._behind[value] = any(map(self._is_behind, self._sources(made)))
        return self._behind[value]

    def _table(self, value: int) -> int | None:
        """Return the table if ``value`` is ``table[ids]`` with the experts of this routing, else None."""
        made = producer(self._program, value)
        found = None if made is None else table_row(self._program, made)
        return found[0] if found is not None and found[1] == self._number else None

    def _sources(self, node: Node | None) -> list[int]:
        """Return the operands of a row-wise call that have this routing's rows."""
        if node is None or self._program.types[node.results[0]].shape[:1] != (self._layout.rows,):
            return []
        return [node.operands[place] for place in row_operands(node) or ()]

    def _repeat(self, value: int, node: Node) -> None:
        """Repeat the call that makes ``value`` on dispatched rows."""
        made = producer(self._program, value)
        assert made is not None
        rows, parts = set(row_operands(made) or ()), self._layout.parts
        forms = [
            self._buffer(operand, node) if place in rows else [self._program.values[operand]] * len(parts)
            for place, operand in enumerate(made.operands)
        ]
        again = [
            self._again(made, list(operands), part, node)
            for part, operands in zip(parts, zip(*forms, strict=True), strict=True)
        ]
        self._made.update(zip(made.results, map(list, zip(*again, strict=True)), strict=True))

    def _again(self, made: Node, operands: list[ir.Value], part: Part, node: Node) -> Sequence[ir.Value]:
        """Repeat a row-wise call on the rows of a part."""
        types = [self._flat(self._program.types[result], part) for result in made.results]
        args = fill(args_for(made, types[0].shape), operands)
        return self._call(node, part.chunk)(made.spec.target, args, types).results

    def _dispatch(self, value: int, call: Call) -> list[ir.Value]:
        """Send rows to the devices of their experts."""
        layout, type_ = self._layout, self._program.types[value]
        width = prod(type_.shape[1:])
        rows = self._program.values[value]
        if len(type_.shape) != 2:
            flat = type_.with_shape((layout.rows, width))
            rows = call("aten.view", (rows, flat.shape), [flat]).results[0]
        buffer = type_.with_shape((*layout.shape, width))
        args = (rows, self.routing, layout.experts, *layout.shape, self._drops)
        made = call("shardc.dispatch", args, [buffer]).results[0]
        chunks = self._exchange.to_experts(call, made, buffer, self._flat(type_, layout.parts[0]).shape)
        return chunks if self._copies is None else [*chunks, self._program.values[value]]

    def _flat(self, type_: TensorType, part: Part) -> TensorType:
        """Return a value's type on the rows of a part."""
        return type_.with_shape((part.rows, *type_.shape[1:]))
