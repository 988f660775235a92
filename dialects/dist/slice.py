"""``dist.slice``: keeps this device's (or iteration's) block of a dim. Level 3, no communication."""

from math import prod
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import write_type
from shardc.dialects.dist.build import At, i64
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Op, Operand, Result, Site, divided, tensor_type


class SliceOp(Op, dialect=Dist, name="slice", traits=[ext.Pure]):
    """Returns this device's block of dim ``dim``: its number is the device's index over ``axes``.

    A time axis refers to the enclosing loop over it.

    ``%1 = "dist.slice"(%0) {axes = ["tensor"], dim = 1 : i64}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,4],f32>``
    """

    x: Operand
    dim: ir.IntegerAttr
    axes: ir.ArrayAttr
    out: Result

    def check(self, site: Site) -> None:
        type_ = site.operand()
        dim = site.dim(len(type_.shape))
        ways = prod(a.size for a in site.axes(space=False))
        site.expect_result(divided(type_, dim, ways), f"one of {ways} blocks of dim {dim} is kept")


def slice_block(x: ir.Value, dim: int, axes: Axes, codec: ShardingCodec, **at: Unpack[At]) -> ir.Value:
    out = write_type(divided(tensor_type(x.type, "operand 0"), dim, prod(a.size for a in axes)), x.context)
    return SliceOp(x, i64(dim, x.context), codec.axes(axes), out, **at).out
