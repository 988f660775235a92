"""``dist.all_reduce``: combines the terms of a partial value. Level 3."""

from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.ext import Operand, Result

from shardc.dialects.dist.build import string
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Site, verify


class AllReduceOp(Dist.Operation, name="all_reduce", traits=[ext.Pure]):
    """On each device, the reduction of the operands of all devices that differ from it on ``axes`` alone.

    ``%1 = "dist.all_reduce"(%0) {axes = ["tensor"], reduction = "sum"}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand[Any]
    axes: ir.ArrayAttr
    reduction: ir.StringAttr
    out: Result[Any]

    def verify_invariants(self) -> bool:
        return verify(self, _check)


def _check(site: Site) -> None:
    site.expect_result(site.operand(), "an all-reduce keeps the shape")
    site.axes()
    site.reduction()


def all_reduce(
    x: ir.Value, axes: Axes, reduction: str, codec: ShardingCodec, *, loc: ir.Location, ip: ir.InsertionPoint
) -> ir.Value:
    return AllReduceOp(x, codec.axes(axes), string(reduction, x.context), x.type, loc=loc, ip=ip).out
