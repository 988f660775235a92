"""``dist.yield``: the terminator of the body of a ``dist.loop`` or ``dist.manual``."""

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.dist.build import At, segments
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.tuples import element_types, pack
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Op, Operand, Site, tuple_elements


class YieldOp(Op, dialect=Dist, name="yield", traits=[ir.IsTerminatorTrait]):
    """Passes values of a body to the enclosing op: a tuple of values, and in a loop a tuple of values to
    stack.

    ``"dist.yield"(%next) {operandSegmentSizes = array<i32: 1, 0>} : (!torch.tuple<vtensor<[4,8],f32>>) ->
    ()``
    """

    values: Operand | None = None
    stacked: Operand | None = None

    def check(self, site: Site) -> None:
        site.expect_parent("dist.loop", "dist.manual")
        for operand in site.op.operands:
            if element_types(operand.type) is None:
                raise Illegal(f"takes tuples of values (torch.prim.TupleConstruct), not {operand.type}")


def yield_values(
    values: Sequence[ir.Value], stacked: Sequence[ir.Value] = (), **at: Unpack[At]
) -> ir.Operation:
    groups = [pack(group, **at) for group in (values, stacked)]
    attributes = {"operandSegmentSizes": segments(at["loc"].context, *groups)}
    return ir.Operation.create(YieldOp.OPERATION_NAME, [], [*groups[0], *groups[1]], attributes, **at)


def yielded(site: Site) -> tuple[list[ir.Type], list[ir.Type]]:
    """Return the types of the values, and of the stacked values, that a region op's body yields.

    Raises Illegal if the body is not one block with a yield at its end.
    """
    last = list(site.body().operations)[-1].operation
    if last.name != YieldOp.OPERATION_NAME:
        raise Illegal(f"must end its body with dist.yield, not {last.name}")
    values, stacked = group_types(last.operands, last.attributes, "operandSegmentSizes")
    return values, stacked


def elements_of(values: Sequence[ir.Value]) -> list[ir.Type]:
    """Return the element types of an optional tuple. Raises Illegal."""
    return tuple_elements(values[0].type) if len(values) else []


def group_types(values: Sequence[ir.Value], attributes: ir.OpAttributeMap, sizes: str) -> list[list[ir.Type]]:
    """Return the element types of each group of an op whose groups are optional tuples. Raises Illegal."""
    if sizes not in attributes:
        raise LeftToMlir
    remaining = iter(values)
    return [tuple_elements(next(remaining).type) if size else [] for size in attributes[sizes]]


def expect_types(what: str, expected: Sequence[object], found: Sequence[object]) -> None:
    """Check that two lists of types are equal. Raises Illegal with the first difference."""
    if len(expected) != len(found):
        raise Illegal(f"must have {len(expected)} {what}s, not {len(found)}")
    for i, (e, f) in enumerate(zip(expected, found, strict=True)):
        if e != f and str(e) != str(f):  # equal types are usually one object
            raise Illegal(f"{what} {i} must be {e}, not {f}")
