"""``dist.constraint``: the layout that the user or a plan asks of a value. Level 2."""

from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.dist.verifier import Illegal, Op, Operand, Result, Site


class ConstraintOp(Op, dialect=Dist, name="constraint", traits=[ext.Pure]):
    """Requires the layout ``sharding`` of the operand. Propagation may add axes only to its open dims.

    ``%1 = "dist.constraint"(%0) {sharding = #dist.sharding<@mesh, [["data"], ["?"]], []>}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand
    sharding: ShardingAttr
    out: Result

    def check(self, site: Site) -> None:
        type_ = site.operand()
        site.expect_result(type_, "a constraint does not change its operand")
        if site.sharding("sharding", len(type_.shape), allow_open=True).partial:
            raise Illegal("can't have partial terms: a constraint is the layout of a whole value")


def constraint(x: ir.Value, sharding: Sharding, codec: ShardingCodec, **at: Unpack[At]) -> ir.Value:
    return ConstraintOp(x, codec.write(sharding), x.type, **at).out
