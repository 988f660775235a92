"""Packing tensors into one flat tensor for a collective, and unpacking its result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import prod

from torch_mlir import ir

from shardc.dialects.aten.types import TensorType
from shardc.passes.manager.attributes import attributes_of, copy_attributes, i64
from shardc.passes.partition.local_call import CallWriter, type_of


class Packer(CallWriter):
    """Replaces collectives of one kind by one collective on their packed operands.

    For an all-reduce, flattened operands are concatenated. For a reduce-scatter over p ranks, each operand
    becomes p rows, concatenated side by side, so that a rank's row has its block of each operand. For an
    all-gather, flattened blocks are concatenated, and the result's p rows are split.
    """

    def pack(self, ops: Sequence[ir.Operation]) -> None:
        """Build the packed collective, and erase the single ones."""
        packed = {"dist.all_reduce": self._reduce, "dist.all_gather": self._gather}
        values, outs = [op.operands[0] for op in ops], [type_of(op.results[0]) for op in ops]
        made = packed.get(ops[0].name, self._scatter)(ops[0], values, outs)
        for op, result in zip(ops, made, strict=True):
            copy_attributes(op, result.owner.operation, "dist.shardings")
            op.results[0].replace_all_uses_with(result)
            op.erase()

    def _reduce(self, like: ir.Operation, values: list[ir.Value], outs: list[TensorType]) -> list[ir.Value]:
        total = self._collective(like, self._flat(values), (sum(t.numel for t in outs),))
        return self._split(total, 0, outs)

    def _gather(self, like: ir.Operation, values: list[ir.Value], outs: list[TensorType]) -> list[ir.Value]:
        flat, ways = self._flat(values), outs[0].numel // type_of(values[0]).numel
        size = type_of(flat).numel
        return self._split(self._shaped(self._collective(like, flat, (ways * size,)), (ways, size)), 1, outs)

    def _scatter(self, like: ir.Operation, values: list[ir.Value], outs: list[TensorType]) -> list[ir.Value]:
        ways = type_of(values[0]).numel // outs[0].numel
        rows = [self._shaped(v, (ways, t.numel)) for v, t in zip(values, outs, strict=True)]
        own = self._collective(like, self.call("aten.cat", rows, 1), (1, sum(t.numel for t in outs)))
        return self._split(own, 1, outs)

    def _flat(self, values: list[ir.Value]) -> ir.Value:
        return self.call("aten.cat", [self._shaped(v, (type_of(v).numel,)) for v in values], 0)

    def _split(self, value: ir.Value, dim: int, outs: list[TensorType]) -> list[ir.Value]:
        """Split a tensor along ``dim``, its last, into parts with the shapes of ``outs``."""
        rows = prod(type_of(value).shape[:dim])
        ends = accumulate((t.numel // rows for t in outs), initial=0)
        parts = [self.call("aten.slice.Tensor", value, dim, start, end, 1) for start, end in pairwise(ends)]
        return [self._shaped(part, t.shape) for part, t in zip(parts, outs, strict=True)]

    def _shaped(self, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        return value if type_of(value).shape == shape else self.call("aten.reshape", value, shape)

    def _collective(self, like: ir.Operation, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        attributes = attributes_of(like, "axes", "reduction", "dist.phase", "dist.in_loop")
        if "dim" in like.attributes:
            attributes["dim"] = i64(0, like.context)
        types = [self.builder.type(TensorType(shape, type_of(value).dtype))]
        return ir.Operation.create(like.name, types, [value], attributes, loc=self.loc, ip=self.ip).result
