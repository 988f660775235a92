"""``dist.all_gather``: makes a dim whole over axes. Level 3."""

from math import prod
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import write_type
from shardc.dialects.dist.build import At, i64
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Op, Operand, Result, Site, tensor_type


class AllGatherOp(Op, dialect=Dist, name="all_gather", traits=[ext.Pure]):
    """Concatenates, along ``dim``, the blocks of all devices that differ on ``axes`` alone.

    Blocks are ordered by the devices' index over ``axes``, the first axis the most major. So ``axes`` must be
    the innermost axes that split the dim.

    ``%1 = "dist.all_gather"(%0) {axes = ["tensor"], dim = 1 : i64}
    : (!torch.vtensor<[4,4],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand
    dim: ir.IntegerAttr
    axes: ir.ArrayAttr
    out: Result

    def check(self, site: Site) -> None:
        type_ = site.operand()
        dim = site.dim(len(type_.shape))
        ways = prod(a.size for a in site.axes())
        site.expect_result(type_.scaled(dim, ways), f"dim {dim} is gathered from {ways} devices")


def all_gather(x: ir.Value, dim: int, axes: Axes, codec: ShardingCodec, **at: Unpack[At]) -> ir.Value:
    out = write_type(tensor_type(x.type, "operand 0").scaled(dim, prod(a.size for a in axes)), x.context)
    return AllGatherOp(x, i64(dim, x.context), codec.axes(axes), out, **at).out
