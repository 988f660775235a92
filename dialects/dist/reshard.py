"""``dist.reshard``: changes a value's layout. Level 2; ``dist-partition`` lowers it to collectives."""

from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.dist.verifier import Op, Operand, Result, Site


class ReshardOp(Op, dialect=Dist, name="reshard", traits=[ext.Pure]):
    """Gives the operand the layout ``sharding``. Types are global, so they do not change.

    ``%1 = "dist.reshard"(%0) {sharding = #dist.sharding<@mesh, [[], ["tensor"]], []>}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand
    sharding: ShardingAttr
    out: Result

    def check(self, site: Site) -> None:
        type_ = site.operand()
        site.expect_result(type_, "a reshard moves a value's blocks and does not change its type")
        site.sharding("sharding", len(type_.shape))


def reshard(x: ir.Value, sharding: Sharding, codec: ShardingCodec, **at: Unpack[At]) -> ir.Value:
    return ReshardOp(x, codec.write(sharding.closed()), x.type, **at).out
