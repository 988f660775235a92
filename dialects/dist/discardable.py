"""Shardings as discardable attributes: ``dist.shardings`` on any op, ``dist.sharding`` on a function's edge.

MLIR verifies what its ops declare and lets everything else pass, so text that a person wrote is checked here
once. An unpacked result of a kernel whose layout nobody says has ``unit`` in the place of a sharding.
"""

from collections.abc import Iterator

from torch_mlir import ir

from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.regions.loop_values import TUPLES
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Site
from shardc.dialects.inner_ops import inner_ops


def first_problem(module: ir.Module) -> tuple[str, ir.Location] | None:
    """The first sharding that does not fit its value or the mesh: the problem and its place, or None."""
    for op in module.body.operations:
        # A declaration has no body.
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
            for problem in _no_texts(op.operation):
                return problem, op.operation.location
            for inner in inner_ops(op.operation):
                if "dist.phase" in inner.attributes and not isinstance(
                    phase := inner.attributes["dist.phase"], ir.StringAttr
                ):
                    return f"dist.phase is {phase}, not a text", inner.location
            for inner, values, attributes, what in _annotated(op.operation):
                try:
                    _check(Site(inner), values, attributes, what)
                except Illegal as problem:
                    return str(problem), inner.location
                except LeftToMlir:
                    return None
    return None


def _no_texts(function: ir.Operation) -> Iterator[str]:
    """Roles and names of a function's edge that are no texts."""
    for which in ("arg_attrs", "res_attrs"):
        if which in function.attributes:
            for row in map(ir.DictAttr, function.attributes[which]):
                for key in ("dist.role", "dist.name"):
                    if key in row and not isinstance(row[key], ir.StringAttr):
                        yield f"{key} is {row[key]}, not a text"


Annotated = tuple[ir.Operation, list[ir.Value], list[ir.Attribute | None], str]
"""An op, the values that shardings stand for, these shardings, and what to call them."""


def _annotated(function: ir.Operation) -> Iterator[Annotated]:
    block = function.regions[0].blocks[0]
    returned = list(block.operations)[-1].operation.operands
    for which, values, what in ("arg_attrs", block.arguments, "argument"), ("res_attrs", returned, "result"):
        if which in function.attributes:
            rows = map(ir.DictAttr, function.attributes[which])
            shardings = [row["dist.sharding"] if "dist.sharding" in row else None for row in rows]
            yield function, list(values), shardings, what
    for op in inner_ops(function):
        if "dist.shardings" in op.attributes:
            array = op.attributes["dist.shardings"]
            shardings: list[ir.Attribute | None] = list(array) if isinstance(array, ir.ArrayAttr) else [array]
            if op.name in TUPLES:
                shardings = [None if isinstance(said, ir.UnitAttr) else said for said in shardings]
            yield op, list(op.results), shardings, "result"


def _check(site: Site, values: list[ir.Value], attributes: list[ir.Attribute | None], what: str) -> None:
    if len(values) != len(attributes):
        raise Illegal(f"dist.shardings has {len(attributes)} entries for {len(values)} results")
    for position, (value, attribute) in enumerate(zip(values, attributes, strict=True)):
        if attribute is None:
            continue
        type_ = read_type(value.type)
        rank = len(type_.shape) if type_ else 0
        site.sharding_of(attribute, f"the sharding of {what} {position}", rank, allow_open=True)
