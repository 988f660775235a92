"""Calls that treat each row by itself: what may be computed on dispatched rows instead."""

from __future__ import annotations

from functools import cache

from shardc.dialects.aten.schema import parameters
from shardc.passes.manager.program import Node

_PARTS = frozenset(("aten.slice.Tensor", "aten.slice_backward", "aten.cat", "aten.select.int"))
"""Calls whose part on a rank depends on places, but of other dims than the rows."""
_SIZES = frozenset(("size", "shape", "sizes", "repeats"))


def row_operands(node: Node) -> list[int] | None:
    """The operands, by their places, that have the rows of a call's results as dim 0; the others have none.

    None if the call does not treat rows alike: it sums over them, asks for their places, or is told how many
    there are.
    """
    rule = node.rule
    factors = {dims[0] if dims else () for dims in rule.results}
    target = node.spec.target
    asks_places = rule.lower is not None and target not in _PARTS
    if not node.known or asks_places or len(factors) != 1 or _has_sizes(target):
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


@cache
def _has_sizes(target: str) -> bool:
    return any(name in _SIZES for name, _, _ in parameters(target))
