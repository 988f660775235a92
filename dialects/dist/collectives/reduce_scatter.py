"""``dist.reduce_scatter``: combines terms and leaves a block on each device. Level 3."""

from math import prod
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import write_type
from shardc.dialects.dist.build import At, i64, string
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Op, Operand, Result, Site, divided, tensor_type


class ReduceScatterOp(Op, dialect=Dist, name="reduce_scatter", traits=[ext.Pure]):
    """Reduces as an all-reduce would; each device keeps its block along ``dim``, by its index over ``axes``.

    ``%1 = "dist.reduce_scatter"(%0) {axes = ["data"], dim = 0 : i64, reduction = "sum"}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>``
    """

    x: Operand
    dim: ir.IntegerAttr
    axes: ir.ArrayAttr
    reduction: ir.StringAttr
    out: Result

    def check(self, site: Site) -> None:
        type_ = site.operand()
        dim = site.dim(len(type_.shape))
        ways = prod(a.size for a in site.axes())
        site.reduction()
        site.expect_result(divided(type_, dim, ways), f"dim {dim} is scattered to {ways} devices")


def reduce_scatter(
    x: ir.Value, dim: int, axes: Axes, reduction: str, codec: ShardingCodec, **at: Unpack[At]
) -> ir.Value:
    type_ = divided(tensor_type(x.type, "operand 0"), dim, prod(a.size for a in axes))
    context = x.context
    how = i64(dim, context), codec.axes(axes), string(reduction, context)
    return ReduceScatterOp(x, *how, write_type(type_, context), **at).out
