"""Packing tensors into one flat tensor for a collective, and taking its result apart again."""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.types import TensorType, read_type


class Packer:
    """Replaces collectives of one kind by one on their packed operands.

    Reduced: operands flat, one after the other. Scattered over p ranks: each operand as p rows, side by side,
    so that a rank's row holds its block of each. Gathered: flat blocks one after the other; the result's p
    rows are taken apart.
    """

    def __init__(self, builder: CallBuilder) -> None:
        self._builder = builder

    def pack(self, ops: Sequence[ir.Operation], before: ir.Operation) -> None:
        """Build the packed collective before an op, and erase the single ones."""
        self._ip = ir.InsertionPoint(before)
        self._loc = ops[0].location
        self._attributes = {
            name: ops[0].attributes[name]
            for name in ("axes", "reduction", "dist.phase", "dist.in_loop")
            if name in ops[0].attributes
        }
        if "dim" in ops[0].attributes:
            self._attributes["dim"] = ir.IntegerAttr.get(ops[0].attributes["dim"].type, 0)
        kind = ops[0].name
        values = [op.operands[0] for op in ops]
        outs = [type_of(op.results[0]) for op in ops]
        if kind == "dist.all_reduce":
            made = self._reduce(values)
        elif kind == "dist.all_gather":
            made = self._gather(values, outs)
        else:
            made = self._scatter(values, outs)
        for op, result in zip(ops, made, strict=True):
            op.results[0].replace_all_uses_with(result)
            op.erase()

    def _reduce(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        types = [type_of(v) for v in values]
        flat = self._cat([self._shape(v, (type_of(v).numel,)) for v in values], 0)
        total = self._collective("dist.all_reduce", flat, type_of(flat))
        parts = self._split(total, 0, [t.numel for t in types])
        return [self._shape(part, t.shape) for part, t in zip(parts, types, strict=True)]

    def _gather(self, values: Sequence[ir.Value], outs: Sequence[TensorType]) -> list[ir.Value]:
        sizes = [type_of(v).numel for v in values]
        ways = outs[0].numel // sizes[0]
        flat = self._cat([self._shape(v, (n,)) for v, n in zip(values, sizes, strict=True)], 0)
        whole = self._collective("dist.all_gather", flat, TensorType((ways * sum(sizes),), outs[0].dtype))
        rows = self._shape(whole, (ways, sum(sizes)))
        return [self._shape(part, t.shape) for part, t in zip(self._split(rows, 1, sizes), outs, strict=True)]

    def _scatter(self, values: Sequence[ir.Value], outs: Sequence[TensorType]) -> list[ir.Value]:
        sizes = [t.numel for t in outs]
        ways = type_of(values[0]).numel // sizes[0]
        rows = self._cat([self._shape(v, (ways, n)) for v, n in zip(values, sizes, strict=True)], 1)
        own = self._collective("dist.reduce_scatter", rows, TensorType((1, sum(sizes)), outs[0].dtype))
        return [self._shape(part, t.shape) for part, t in zip(self._split(own, 1, sizes), outs, strict=True)]

    def _split(self, value: ir.Value, dim: int, sizes: Sequence[int]) -> list[ir.Value]:
        type_ = type_of(value)
        parts, start = [], 0
        for size in sizes:
            part = type_.with_shape(tuple(size if d == dim else n for d, n in enumerate(type_.shape)))
            parts.append(self._call("aten.slice.Tensor", (value, dim, start, start + size, 1), part))
            start += size
        return parts

    def _cat(self, values: list[ir.Value], dim: int) -> ir.Value:
        types = [type_of(v) for v in values]
        size = sum(t.shape[dim] for t in types)
        shape = tuple(size if d == dim else n for d, n in enumerate(types[0].shape))
        return self._call("aten.cat", (values, dim), types[0].with_shape(shape))

    def _shape(self, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
        type_ = type_of(value)
        if type_.shape == shape:
            return value
        return self._call("aten.reshape", (value, shape), type_.with_shape(shape))

    def _call(self, target: str, args: tuple[object, ...], result: TensorType) -> ir.Value:
        phase = {n: self._attributes[n] for n in ("dist.phase",) if n in self._attributes}
        return self._builder.call(target, args, [result], self._loc, self._ip, phase).results[0]

    def _collective(self, name: str, value: ir.Value, result: TensorType) -> ir.Value:
        types, attributes = [self._builder.type(result)], self._attributes
        return ir.Operation.create(name, types, [value], attributes, loc=self._loc, ip=self._ip).result


def type_of(value: ir.Value) -> TensorType:
    """The type of a tensor."""
    found = read_type(value.type)
    assert found is not None
    return found
