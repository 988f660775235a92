"""``dist.partial``: makes a partial sum of a whole value. Level 3, no communication."""

from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Result

from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Site, verify


class PartialOp(Dist.Operation, name="partial", traits=[ext.Pure]):
    """The operand where this device's index over ``axes`` is 0, zeros elsewhere.

    The sum over ``axes`` of the results is the operand. Time axes stand for the loops around it.

    ``%1 = "dist.partial"(%0) {axes = ["data"]}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand[Any]
    axes: ir.ArrayAttr
    out: Result[Any]

    def verify_invariants(self) -> bool:
        return verify(self, _check)


def _check(site: Site) -> None:
    site.expect_result(site.operand(), "a term of a sum has the sum's shape")
    site.axes(space=False)


def to_partial(
    x: ir.Value, axes: Axes, codec: ShardingCodec, *, loc: ir.Location, ip: ir.InsertionPoint
) -> ir.Value:
    return PartialOp(x, codec.axes(axes), x.type, loc=loc, ip=ip).out
