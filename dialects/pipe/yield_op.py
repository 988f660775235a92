"""``pipe.yield``: the terminator of the body of a ``pipe.stage``."""

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.dist.build import At
from shardc.dialects.dist.tuples import element_types, pack
from shardc.dialects.dist.verifier import Illegal, Op, Operand, Site
from shardc.dialects.pipe.dialect import Pipe


class YieldOp(Op, dialect=Pipe, name="yield", traits=[ir.IsTerminatorTrait]):
    """Returns the values that a stage makes, as one tuple, or nothing.

    ``"pipe.yield"(%made) : (!torch.tuple<vtensor<[4,8],f32>>) -> ()``
    """

    values: Operand | None = None

    def check(self, site: Site) -> None:
        site.expect_parent("pipe.stage")
        for operand in site.op.operands:
            if element_types(operand.type) is None:
                raise Illegal(f"takes a tuple of values (torch.prim.TupleConstruct), not {operand.type}")


def yield_values(values: Sequence[ir.Value], **at: Unpack[At]) -> ir.Operation:
    return ir.Operation.create(YieldOp.OPERATION_NAME, [], pack(values, **at), **at)
