"""Recognition of row-wise calls, which can run on dispatched rows instead."""

from __future__ import annotations

from shardc.dialects.aten.schema import parameters
from shardc.passes.manager.program import Node

_VIEWS = ("aten.view", "aten.reshape", "aten._unsafe_view", "aten.expand")
_PARTS = frozenset(("aten.slice.Tensor", "aten.slice_backward", "aten.cat", "aten.select.int", *_VIEWS))
"""Calls whose local form depends on positions in dims other than the rows, or on the number of rows."""
_SIZES = frozenset(("size", "shape", "sizes", "repeats", "input_sizes"))
"""Names of parameters that hold the number of rows."""


def row_operands(node: Node) -> list[int] | None:
    """Return the positions of the operands whose dim 0 is the rows of a call's results.

    Other operands do not have the rows. None if the call is not row-wise: it sums over rows, depends on their
    positions, or takes their number in a form other than its result's shape.
    """
    rule = node.rule
    factors = {dims[0] if dims else () for dims in rule.results}
    asks_places = rule.lower is not None and node.spec.target not in _PARTS
    if not node.known or asks_places or len(factors) != 1 or not _is_told_by_shape(node):
        return None
    (dim,) = factors
    if len(dim) != 1 or dim[0] in rule.replicate or dim[0] in rule.reduce:
        return None
    found = []
    for place, dims in enumerate(rule.operands):
        if dims and dims[0] == dim:
            found.append(place)
        elif any(dim[0] in other for other in dims):
            return None
    return found or None


def _is_told_by_shape(node: Node) -> bool:
    shape = node.spec.result.shape
    return all(arg == shape for name, arg in _named(node) if name in _SIZES)


def args_for(node: Node, shape: tuple[int, ...]) -> tuple[object, ...]:
    """Return the arguments of a call for another number of rows. ``shape``: the new shape of its result."""
    return tuple(shape if name in _SIZES else arg for name, arg in _named(node))


def _named(node: Node) -> list[tuple[str, object]]:
    names = [name for name, _, _ in parameters(node.spec.target)]
    return list(zip(names, node.spec.args, strict=True))
