"""``kern.strides``: memory layout of a function's arguments, which ``torch.compile`` writes.

The attribute has an entry for each argument: strides ``array<i64: 1, 64>``, or an empty array for a
contiguous tensor. If sizes are symbolic, the entry is ``affine_map<(d0, d1) -> (d1, d0)>``: the dims of a
dense tensor from the most major to the most minor, or no results for an unknown layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.dialects.aten.types import Order

ATTRIBUTE = "kern.strides"
DENSE = "kern.dense"
"""Attribute of a view that is contiguous: it has the dims of its source in the order of their memory."""

Strides = tuple[int, ...] | Order
"""An order without dims means an unknown layout."""


def argument_strides(function: ir.Operation) -> dict[ir.Value, Strides]:
    """Return the strides of those arguments of a function that are not contiguous."""
    if ATTRIBUTE not in function.attributes:
        return {}
    noted = map(_read, function.attributes[ATTRIBUTE])
    arguments = function.regions[0].blocks[0].arguments
    return {value: strides for value, strides in zip(arguments, noted, strict=True) if strides is not None}


def note_strides(function: ir.Operation, strides: Sequence[Strides | None]) -> None:
    """Write the strides of each argument; None stands for a contiguous one."""
    entries = [_attribute(known, function.context) for known in strides]
    function.attributes[ATTRIBUTE] = ir.ArrayAttr.get(entries, function.context)


def _read(attribute: ir.Attribute) -> Strides | None:
    if isinstance(attribute, ir.AffineMapAttr):
        return Order(tuple(ir.AffineDimExpr(e).position for e in attribute.value.results))
    return tuple(ir.DenseI64ArrayAttr(attribute)) or None


def _attribute(strides: Strides | None, context: ir.Context) -> ir.Attribute:
    if not isinstance(strides, Order):
        return ir.DenseI64ArrayAttr.get(list(strides or ()), context)
    with context:
        dims = [ir.AffineExpr.get_dim(d) for d in strides.dims]
        return ir.AffineMapAttr.get(ir.AffineMap.get(len(dims), 0, dims))
