"""Updates of buffers in a program that loops over micro-batches, in any order that a pipeline chooses.

The loop does not carry running statistics. It keeps their inputs for each micro-batch; after the loop the
statistics are updated with one micro-batch after another.
"""

from __future__ import annotations

import torch
from torch_mlir import ir

from shardc.diagnostics.passes.accumulate import BufferFeedsLoss
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import DEVICE
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.sharding import ShardingCodec
from shardc.dialects.dist.slice import slice_block
from shardc.dialects.location import source_line
from shardc.passes.accumulate.copies import Copies, erase
from shardc.passes.accumulate.step_parts import StepParts
from shardc.passes.manager.attributes import edge_key
from shardc.passes.manager.copy_ops import reads
from shardc.passes.partition.local_call import CallWriter, type_of
from shardc.passes.partition.reshard_lower import EDGE, EDGE_KIND


class Buffers:
    """Moves the updates of buffers that the forward writes out of the loop over micro-batches."""

    def __init__(self, parts: StepParts, builder: CallBuilder, axis: Axis, codec: ShardingCodec) -> None:
        self._parts, self._builder, self._axis, self._codec = parts, builder, axis, codec
        self._live = parts.closure(parts.borders)
        self._check_loss()
        updates = parts.closure(parts.buffers.values())
        self._chain = [op for op in parts.early if op.results[0] in updates and op.results[0] in parts.state]
        self._rows: dict[ir.Value, ir.Value] = {}
        self._own_row: ir.Value | None = None

    def write(self) -> None:
        """Rewrite all buffers. Raises BufferFeedsLoss."""
        if not self._parts.buffers:
            return
        first = self._parts.ops[0]
        for leaf in self._leaves():
            self._rows[leaf] = self._keep(leaf, first)
        self._write_behind()
        dead = {op.results[0] for op in self._chain} - self._live
        parts = self._parts
        erased = [op for op in parts.ops if op.results[0] in dead]
        parts.ops = [op for op in parts.ops if op.results[0] not in dead]
        for op in reversed(erased):
            erase(op)

    def _check_loss(self) -> None:
        """Check that neither loss nor gradients depend on a buffer that the forward writes. Raises
        BufferFeedsLoss.
        """
        for op in self._parts.early:
            for old in reads(op) if op.results[0] in self._live else ():
                if old in self._parts.buffers:
                    _, name = edge_key(self._parts.function, "arg_attrs", ir.BlockArgument(old).arg_number)
                    raise BufferFeedsLoss(name=name, where=source_line(op.location))

    def _leaves(self) -> list[ir.Value]:
        """Return the values of a micro-batch from which running statistics are computed."""
        varying, state = self._parts.varying, self._parts.state
        read = [v for op in self._chain for v in reads(op)] + list(self._parts.buffers.values())
        return list(dict.fromkeys(v for v in read if v in varying and v not in state))

    def _keep(self, leaf: ir.Value, first: ir.Operation) -> ir.Value:
        """Return the values [m, ...] of all micro-batches: a sum over the loop, to which each adds its own
        row.
        """
        is_made = isinstance(leaf, ir.OpResult)
        place = ir.InsertionPoint.after(leaf.owner.operation) if is_made else ir.InsertionPoint(first)
        shape, count = type_of(leaf).shape, self._axis.size
        zero = self._writer(first).call("aten.full", (), 0, type_of(leaf).dtype, None, DEVICE, False)
        is_own = self._is_own_row(first)
        write = CallWriter(self._builder, first.location, place, self._writer(first).attributes)
        is_own = write.call("aten.view", is_own, (count, *(1 for _ in shape)))
        term = write.call("aten.where.self", is_own, write.call("aten.unsqueeze", leaf, 0), zero)
        given = {"axes": self._codec.axes((self._axis,)), EDGE_KIND: ir.StringAttr.get("sum", leaf.context)}
        return ir.Operation.create(EDGE, [term.type], [term], given, loc=write.loc, ip=place).result

    def _is_own_row(self, first: ir.Operation) -> ir.Value:
        """Return a bool tensor [m] that is true at the number of the micro-batch."""
        if self._own_row is None:
            write, place = self._writer(first), ir.InsertionPoint(first)
            numbers = write.call("aten.arange", self._axis.size, torch.int64, None, DEVICE, False)
            own = slice_block(numbers, 0, (self._axis,), self._codec, loc=first.location, ip=place)
            self._own_row = write.call("aten.eq.Tensor", numbers, own)
        return self._own_row

    def _write_behind(self) -> None:
        """Write the updates of buffers, one micro-batch after another, after the loop."""
        parts, end = self._parts, self._parts.terminator
        late = {"dist.phase": ir.StringAttr.get("optimizer", end.context)}
        write = CallWriter(self._builder, end.location, ir.InsertionPoint(end), late)
        states = {old: old for old in parts.buffers}
        for number in range(self._axis.size):
            copies = Copies(end, states)
            for leaf, rows in self._rows.items():
                row = write.call("aten.slice.Tensor", rows, 0, number, number + 1, 1)
                copies.values[leaf] = write.call("aten.view", row, type_of(leaf).shape)
                if isinstance(leaf, ir.OpResult) and "dist.shardings" in leaf.owner.attributes:
                    lies = leaf.owner.attributes["dist.shardings"][ir.OpResult(leaf).result_number]
                    made = copies.values[leaf].owner.attributes
                    made["dist.shardings"] = ir.ArrayAttr.get([lies], end.context)
            for op in self._chain:
                copies.copy(op).attributes["dist.phase"] = late["dist.phase"]
            states = {old: copies.operand(new) for old, new in parts.buffers.items()}
        for position, old in parts.returned.items():
            end.operands[position] = states[old]

    def _writer(self, first: ir.Operation) -> CallWriter:
        forward = {"dist.phase": ir.StringAttr.get("forward", first.context)}
        return CallWriter(self._builder, first.location, ir.InsertionPoint(first), forward)
