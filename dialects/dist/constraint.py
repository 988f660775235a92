"""``dist.constraint``: what the user or a plan says about a value's layout. Level 2."""

from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Result

from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.dist.verifier import Illegal, Site, verify


class ConstraintOp(Dist.Operation, name="constraint", traits=[ext.Pure]):
    """The operand, whose layout is to be ``sharding``; propagation may add axes to its open dims alone.

    ``%1 = "dist.constraint"(%0) {sharding = #dist.sharding<@mesh, [["data"], ["?"]], []>}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand[Any]
    sharding: ShardingAttr
    out: Result[Any]

    def verify_invariants(self) -> bool:
        return verify(self, _check)


def _check(site: Site) -> None:
    type_ = site.operand()
    site.expect_result(type_, "a constraint does not change its operand")
    if site.sharding("sharding", len(type_.shape), allow_open=True).partial:
        raise Illegal("can't ask for partial terms: a constraint says how a whole value lies")


def constraint(
    x: ir.Value, sharding: Sharding, codec: ShardingCodec, *, loc: ir.Location, ip: ir.InsertionPoint
) -> ir.Value:
    return ConstraintOp(x, codec.write(sharding), x.type, loc=loc, ip=ip).out
