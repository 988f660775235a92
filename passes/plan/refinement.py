"""``dist.refine``: an annotation that cuts a value further in a later round of propagation.

On an argument, or on the op that makes a gradient: ``dist.refine = [[1 : i64, "data", -1 : i64]]`` means in
round 1 cut over ``data`` the first dim that divides (-1), or the given dim.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from shardc.passes.manager.program import Program


@dataclass(frozen=True)
class Refinement:
    """In round ``priority`` cut ``value`` over mesh axis ``axis``, on ``dim`` (-1: the first that
    divides).
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
            found += _read(node.results[_gradient_result(node.op)], node.op.attributes["dist.refine"])
    return found


def _read(value: int, attribute: ir.Attribute | None) -> list[Refinement]:
    if attribute is None:
        return []
    return [
        Refinement(value, p.value, axis.value, dim.value)
        for p, axis, dim in map(ir.ArrayAttr, ir.ArrayAttr(attribute))
    ]


def _gradient_result(op: ir.Operation) -> int:
    """Which result of an op its ``dist.name`` (``grad:w#1``) speaks of."""
    name = op.attributes["dist.name"].value if "dist.name" in op.attributes else ""
    return int(name.split(",")[0].rpartition("#")[2]) if "#" in name else 0


def refinement_attribute(context: ir.Context, entries: list[tuple[int, str, int]]) -> ir.ArrayAttr:
    """The attribute for (priority, axis, dim) entries."""
    i64 = ir.IntegerType.get_signless(64, context)
    rows = [
        ir.ArrayAttr.get(
            [ir.IntegerAttr.get(i64, p), ir.StringAttr.get(a, context), ir.IntegerAttr.get(i64, d)], context
        )
        for p, a, d in entries
    ]
    return ir.ArrayAttr.get(rows, context)
