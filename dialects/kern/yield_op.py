"""``kern.yield``: the end of a kernel's body. (``yield`` is no module name.)"""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects.ext import Operand

from shardc.dialects.dist.verifier import Illegal, Site, verify
from shardc.dialects.kern.dialect import Kern

PACK = "builtin.unrealized_conversion_cast"
"""What packs builtin tensors into a builtin tuple: no op of MLIR's is made for it."""


class YieldOp(Kern.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """The results of a ``kern.kernel``, as one tuple: IRDL binds one type for all operands of a group.

    ``%t = builtin.unrealized_conversion_cast %0, %1 : tensor<4x8xf32>, tensor<4xf32>
    to tuple<tensor<4x8xf32>, tensor<4xf32>>``
    ``"kern.yield"(%t) : (tuple<tensor<4x8xf32>, tensor<4xf32>>) -> ()``
    """

    values: Operand[Any]

    def verify_invariants(self) -> bool:
        return verify(self, _check)


def _check(site: Site) -> None:
    parent = site.op.parent
    if parent is None or parent.name != "kern.kernel":
        raise Illegal("must end the body of a kern.kernel")
    yielded_values(site.op)


def yielded_values(op: ir.Operation) -> list[ir.Value]:
    """The tensors that a ``kern.yield`` gives. Raises Illegal if its operand is not a tuple packed right
    here.
    """
    value = op.operands[0]
    pack = None if isinstance(value, ir.BlockArgument) else value.owner
    if pack is None or pack.name != PACK or not str(value.type).startswith("tuple<"):
        raise Illegal(f"takes a tuple that {PACK} packs, not {value.type}")
    return list(pack.operands)


def yield_values(values: Sequence[ir.Value], *, loc: ir.Location, ip: ir.InsertionPoint) -> ir.Operation:
    """Ends a kernel's body with ``values``, at least one."""
    types = ir.TupleType.get_tuple([v.type for v in values], loc.context)
    pack = ir.Operation.create(PACK, [types], list(values), loc=loc, ip=ip)
    return ir.Operation.create(YieldOp.OPERATION_NAME, [], [pack.result], loc=loc, ip=ip)
