"""``dist.yield``: the end of the body of a ``dist.loop`` or a ``dist.manual``. (``yield`` is no module name.)"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects.ext import Operand

from shardc.dialects.dist.build import unsegmented
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.verifier import Illegal, Site, verify

PARENTS = ("dist.loop", "dist.manual")


class YieldOp(Dist.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """What the op around it takes from its body: its operands.

    ``"dist.yield"(%0, %1) : (!torch.vtensor<[4,8],f32>, !torch.vtensor<[],f32>) -> ()``
    """

    values: Sequence[Operand[Any]]

    def verify_invariants(self) -> bool:
        return verify(self, _check)


YieldOp.values = unsegmented(slice(None))


def _check(site: Site) -> None:
    parent = site.op.parent
    if parent is None or parent.name not in PARENTS:
        raise Illegal(f"must end the body of a {' or a '.join(PARENTS)}")


def yield_values(values: Sequence[ir.Value], *, loc: ir.Location, ip: ir.InsertionPoint) -> ir.Operation:
    return ir.Operation.create(YieldOp.OPERATION_NAME, [], list(values), loc=loc, ip=ip)


def yielded(site: Site) -> list[ir.Type]:
    """The types that the only block of a region op ends with. Raises Illegal if it is not one block with a yield."""
    blocks = list(site.op.regions[0].blocks)
    if len(blocks) != 1:
        raise Illegal(f"has a body of {len(blocks)} blocks; it must have one")
    last = list(blocks[0].operations)[-1].operation
    if last.name != YieldOp.OPERATION_NAME:
        raise Illegal(f"must end its body with dist.yield, not {last.name}")
    return [operand.type for operand in last.operands]


def expect_types(what: str, expected: Sequence[object], found: Sequence[object]) -> None:
    """Raises Illegal, naming the first difference, unless both are the same list of types."""
    if len(expected) != len(found):
        raise Illegal(f"must have {len(expected)} {what}s, not {len(found)}")
    for i, (e, f) in enumerate(zip(expected, found, strict=True)):
        if str(e) != str(f):
            raise Illegal(f"{what} {i} must be {e}, not {f}")
