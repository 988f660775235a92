"""``dist.broadcast``: one device's value on all. Level 3."""

from math import prod
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At, i64
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Op, Operand, Result, Site


class BroadcastOp(Op, dialect=Dist, name="broadcast", traits=[ext.Pure]):
    """Copies the operand of the device with index ``root`` over ``axes`` to all devices that differ from it
    on ``axes`` alone.

    ``%1 = "dist.broadcast"(%0) {axes = ["data"], root = 0 : i64}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand
    axes: ir.ArrayAttr
    root: ir.IntegerAttr
    out: Result

    def check(self, site: Site) -> None:
        site.expect_result(site.operand(), "a broadcast keeps the shape")
        site.integer("root", 0, prod(a.size for a in site.axes()) - 1)


def broadcast(x: ir.Value, axes: Axes, root: int, codec: ShardingCodec, **at: Unpack[At]) -> ir.Value:
    return BroadcastOp(x, codec.axes(axes), i64(root, x.context), x.type, **at).out
