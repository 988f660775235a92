"""How a function's arguments lie in memory, where that is not contiguous: ``kern.strides``, which
``torch.compile`` writes.

The attribute has an entry for each argument: ``array<i64: 1, 64>`` for strides, empty for a contiguous
tensor; where sizes are symbolic ``affine_map<(d0, d1) -> (d1, d0)>``, its dims from the most major on if it
lies densely, or a map without results.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from shardc.dialects.aten.types import Order

ATTRIBUTE = "kern.strides"

Strides = tuple[int, ...] | Order
"""An order without dims: nothing is known."""


def argument_strides(function: ir.Operation) -> dict[ir.Value, Strides]:
    """The strides of a function's arguments that are not contiguous."""
    if ATTRIBUTE not in function.attributes:
        return {}
    noted = map(_read, function.attributes[ATTRIBUTE])
    arguments = function.regions[0].blocks[0].arguments
    return {value: strides for value, strides in zip(arguments, noted, strict=True) if strides is not None}


def note_strides(function: ir.Operation, strides: Sequence[Strides | None]) -> None:
    """Writes what is known of each argument, None for a contiguous one."""
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
