"""``pipe.yield``: the end of the body of a ``pipe.stage``. (``yield`` is no module name.)"""

from collections.abc import Sequence
from typing import Any, Optional

from torch_mlir import ir
from torch_mlir.dialects.ext import Operand

from shardc.dialects.dist.build import only_operand
from shardc.dialects.dist.tuples import element_types, pack
from shardc.dialects.dist.verifier import Illegal, Site, verify
from shardc.dialects.pipe.dialect import Pipe

PARENT = "pipe.stage"


class YieldOp(Pipe.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """What a stage makes: a tuple, or nothing.

    ``"pipe.yield"(%made) : (!torch.tuple<vtensor<[4,8],f32>>) -> ()``
    """

    values: Optional[Operand[Any]] = None  # noqa: UP045 (the bindings read annotations when the class is made)

    def verify_invariants(self) -> bool:
        return verify(self, _check)


YieldOp.values = only_operand()


def _check(site: Site) -> None:
    parent = site.op.parent
    if parent is None or parent.name != PARENT:
        raise Illegal(f"must end the body of a {PARENT}")
    for operand in site.op.operands:
        if element_types(operand.type) is None:
            raise Illegal(f"takes a tuple of values (torch.prim.TupleConstruct), not {operand.type}")


def yield_values(values: Sequence[ir.Value], *, loc: ir.Location, ip: ir.InsertionPoint) -> ir.Operation:
    return ir.Operation.create(YieldOp.OPERATION_NAME, [], pack(values, loc=loc, ip=ip), loc=loc, ip=ip)
