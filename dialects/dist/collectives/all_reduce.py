"""``dist.all_reduce``: combines the terms of a partial value. Level 3."""

from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At, string
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Op, Operand, Result, Site


class AllReduceOp(Op, dialect=Dist, name="all_reduce", traits=[ext.Pure]):
    """Reduces the operands of all devices that differ on ``axes`` alone; each device gets the result.

    ``%1 = "dist.all_reduce"(%0) {axes = ["tensor"], reduction = "sum"}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand
    axes: ir.ArrayAttr
    reduction: ir.StringAttr
    out: Result

    def check(self, site: Site) -> None:
        site.expect_result(site.operand(), "an all-reduce keeps the shape")
        site.axes()
        site.reduction()


def all_reduce(x: ir.Value, axes: Axes, reduction: str, codec: ShardingCodec, **at: Unpack[At]) -> ir.Value:
    return AllReduceOp(x, codec.axes(axes), string(reduction, x.context), x.type, **at).out
