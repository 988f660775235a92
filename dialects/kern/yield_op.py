"""``kern.yield``: the terminator of a kernel's body. (``yield`` cannot be a module's name.)"""

from collections.abc import Sequence
from typing import Unpack

from torch_mlir import ir

from shardc.dialects.dist.build import At
from shardc.dialects.dist.verifier import Illegal, Op, Operand, Site
from shardc.dialects.kern.dialect import Kern

PACK = "builtin.unrealized_conversion_cast"
"""The op that packs builtin tensors into a builtin tuple, as MLIR has no op for that."""


class YieldOp(Op, dialect=Kern, name="yield", traits=[ir.IsTerminatorTrait]):
    """Returns the results of a ``kern.kernel`` as one tuple, because IRDL binds one type for all operands of
    a group.

    ``%t = builtin.unrealized_conversion_cast %0, %1 : tensor<4x8xf32>, tensor<4xf32>
    to tuple<tensor<4x8xf32>, tensor<4xf32>>``
    ``"kern.yield"(%t) : (tuple<tensor<4x8xf32>, tensor<4xf32>>) -> ()``
    """

    values: Operand

    def check(self, site: Site) -> None:
        site.expect_parent("kern.kernel")
        yielded_values(site.op)


def yielded_values(op: ir.Operation) -> list[ir.Value]:
    """Return the tensors that a ``kern.yield`` returns. Raises Illegal if its tuple is not packed in the
    body.
    """
    value = op.operands[0]
    pack = None if isinstance(value, ir.BlockArgument) else value.owner
    if pack is None or pack.name != PACK or not str(value.type).startswith("tuple<"):
        raise Illegal(f"takes a tuple that {PACK} packs, not {value.type}")
    return list(pack.operands)


def yield_values(values: Sequence[ir.Value], **at: Unpack[At]) -> ir.Operation:
    """End a kernel's body with ``values``, at least one."""
    types = ir.TupleType.get_tuple([v.type for v in values], at["loc"].context)
    pack = ir.Operation.create(PACK, [types], list(values), **at)
    return ir.Operation.create(YieldOp.OPERATION_NAME, [], [pack.result], **at)
