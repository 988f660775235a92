"""``dist.refine``: an annotation that splits a value further in a later round of propagation.

It is an attribute of an argument, or of the op that produces a gradient. ``dist.refine = [[1 : i64, "data",
-1 : i64]]`` splits, in round 1, the first dim that divides (-1), or else the given dim, over ``data``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch_mlir import ir

from shardc.passes.manager.attributes import i64, observed
from shardc.passes.manager.program import Program


@dataclass(frozen=True)
class Refinement:
    """A split of ``value`` over mesh axis ``axis`` on ``dim`` (-1: the first that divides) in round
    ``priority``.
    """

    value: int
    priority: int
    axis: str
    dim: int = -1


def read_refinements(program: Program) -> list[Refinement]:
    """All refinements of a program, arguments first, in order."""
    found: list[Refinement] = []
    for position, value in enumerate(program.arguments):
        found += _read(value, program.attribute(position, "dist.refine"))
    for node in program.nodes:
        if "dist.refine" in node.op.attributes:
            # It refers to the result in the op's name: result 1 for ``grad:w#1``.
            named = next((number for _, number in observed(node.op)), 0)
            found += _read(node.results[named], node.op.attributes["dist.refine"])
    return found


def _read(value: int, attribute: ir.Attribute | None) -> list[Refinement]:
    rows = () if attribute is None else map(ir.ArrayAttr, ir.ArrayAttr(attribute))
    return [Refinement(value, p.value, axis.value, dim.value) for p, axis, dim in rows]


def refinement_attribute(context: ir.Context, entries: Iterable[tuple[int, str, int]]) -> ir.ArrayAttr:
    """Return the attribute for (priority, axis, dim) entries."""
    text = ir.StringAttr.get
    rows = [[i64(p, context), text(axis, context), i64(dim, context)] for p, axis, dim in entries]
    return ir.ArrayAttr.get([ir.ArrayAttr.get(row, context) for row in rows], context)
