"""Shardings as discardable attributes: ``dist.shardings`` on ops, ``dist.sharding`` on arguments and results.

MLIR verifies only attributes that ops declare, so IR that a person wrote is checked here once. An unpacked
result of a kernel whose layout is unknown has ``unit`` instead of a sharding.
"""

from collections.abc import Iterator

from torch_mlir import ir

from shardc.dialects.aten.types import read_type
from shardc.dialects.dist.regions.loop_values import TUPLES
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Site
from shardc.dialects.inner_ops import inner_ops

TEXTS = ("dist.phase", "dist.name", "dist.module", "dist.reduce", "dist.attention")
"""Attributes that must be strings on any op."""


def first_problem(module: ir.Module) -> tuple[str, ir.Location] | None:
    """Return the problem and the location of the first sharding that does not fit its value or the mesh."""
    for op in module.body.operations:
        # A declaration has no body.
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
            for problem in _no_texts(op.operation):
                return problem, op.operation.location
            for inner in inner_ops(op.operation):
                for name in TEXTS:
                    if name in inner.attributes and not isinstance(
                        said := inner.attributes[name], ir.StringAttr
                    ):
                        return f"{name} is {said}, not a string", inner.location
            for attribute, value, location in _refined(op.operation):
                if problem := _refinement_problem(attribute, value):
                    return problem, location
            for inner, values, attributes, what in _annotated(op.operation):
                try:
                    _check(Site(inner), values, attributes, what)
                except Illegal as problem:
                    return str(problem), inner.location
                except LeftToMlir:
                    return None
    return None


def _refined(function: ir.Operation) -> Iterator[tuple[ir.Attribute, ir.Value, ir.Location]]:
    """Yield each ``dist.refine`` attribute with its value and its location."""
    if "arg_attrs" in function.attributes:
        rows = map(ir.DictAttr, function.attributes["arg_attrs"])
        for row, value in zip(rows, function.regions[0].blocks[0].arguments, strict=True):
            if "dist.refine" in row:
                yield row["dist.refine"], value, function.location
    for op in inner_ops(function):
        if "dist.refine" in op.attributes and len(op.results):
            yield op.attributes["dist.refine"], op.results[0], op.location


def _refinement_problem(attribute: ir.Attribute, value: ir.Value) -> str:
    """Return the problem of a ``dist.refine``, or an empty string."""
    type_ = read_type(value.type)
    rank = 0 if type_ is None else len(type_.shape)
    for row in attribute if isinstance(attribute, ir.ArrayAttr) else [attribute]:
        parts = list(row) if isinstance(row, ir.ArrayAttr) else []
        if [type(part) for part in parts] != [ir.IntegerAttr, ir.StringAttr, ir.IntegerAttr]:
            return f"dist.refine has {row}, which is not a round, a mesh axis and a dim"
        dim = ir.IntegerAttr(parts[2]).value
        if dim >= max(rank, 1):
            return f"dist.refine names dim {dim} of a tensor of {rank} dims"
    return ""


def _no_texts(function: ir.Operation) -> Iterator[str]:
    """Yield a problem for each role or name of an argument or result that is not a string."""
    for which in ("arg_attrs", "res_attrs"):
        if which in function.attributes:
            for row in map(ir.DictAttr, function.attributes[which]):
                for key in ("dist.role", "dist.name"):
                    if key in row and not isinstance(row[key], ir.StringAttr):
                        yield f"{key} is {row[key]}, not a string"


Annotated = tuple[ir.Operation, list[ir.Value], list[ir.Attribute | None], str]
"""An op, its annotated values, their shardings, and the attribute's name for messages."""


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
