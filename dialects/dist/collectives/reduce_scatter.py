"""``dist.reduce_scatter``: combines the terms of a partial value and leaves a block on each
device. Level 3.
"""

from math import prod
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Result

from shardc.dialects.aten.types import write_type
from shardc.dialects.dist.build import i64, string
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Site, divided, tensor_type, verify


class ReduceScatterOp(Dist.Operation, name="reduce_scatter", traits=[ext.Pure]):
    """The block of this device, by its index over ``axes``, along ``dim`` of what an all-reduce would give.

    ``%1 = "dist.reduce_scatter"(%0) {axes = ["data"], dim = 0 : i64, reduction = "sum"}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[2,8],f32>``
    """

    x: Operand[Any]
    dim: ir.IntegerAttr
    axes: ir.ArrayAttr
    reduction: ir.StringAttr
    out: Result[Any]

    def verify_invariants(self) -> bool:
        return verify(self, _check)


def _check(site: Site) -> None:
    type_ = site.operand()
    dim = site.dim(len(type_.shape))
    ways = prod(a.size for a in site.axes())
    site.reduction()
    site.expect_result(divided(type_, dim, ways), f"dim {dim} is scattered to {ways} devices")


def reduce_scatter(
    x: ir.Value,
    dim: int,
    axes: Axes,
    reduction: str,
    codec: ShardingCodec,
    *,
    loc: ir.Location,
    ip: ir.InsertionPoint,
) -> ir.Value:
    type_ = divided(tensor_type(x.type, "operand 0"), dim, prod(a.size for a in axes))
    context = x.context
    out = write_type(type_, context)
    op = ReduceScatterOp(
        x, i64(dim, context), codec.axes(axes), string(reduction, context), out, loc=loc, ip=ip
    )
    return op.out
