"""``dist.all_to_all``: moves axes from one dim to another. Level 3."""

from math import prod
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.aten.types import TensorType, write_type
from shardc.dialects.dist.build import At, i64
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Illegal, Op, Operand, Result, Site, divided, tensor_type


class AllToAllOp(Op, dialect=Dist, name="all_to_all", traits=[ext.Pure]):
    """Moves ``axes`` from dim ``concat_dim``, which becomes whole over them, to dim ``split_dim``.

    Each device splits ``split_dim`` into blocks, one for each device that differs on ``axes`` alone. It
    concatenates the blocks that it receives along ``concat_dim``, ordered by the senders' index over
    ``axes``. In both dims ``axes`` are the innermost.

    ``%1 = "dist.all_to_all"(%0) {axes = ["tensor"], concat_dim = 0 : i64, split_dim = 1 : i64}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[8,4],f32>``
    """

    x: Operand
    split_dim: ir.IntegerAttr
    concat_dim: ir.IntegerAttr
    axes: ir.ArrayAttr
    out: Result

    def check(self, site: Site) -> None:
        type_ = site.operand()
        split, concat = (site.dim(len(type_.shape), name) for name in ("split_dim", "concat_dim"))
        if split == concat:
            raise Illegal(f"split_dim and concat_dim are both {split}; they must differ")
        ways = prod(a.size for a in site.axes())
        expected = _exchanged(type_, split, concat, ways)
        site.expect_result(expected, f"dim {split} is cut and dim {concat} made whole over {ways} devices")


def _exchanged(type_: TensorType, split: int, concat: int, ways: int) -> TensorType:
    return divided(type_, split, ways).scaled(concat, ways)


def all_to_all(
    x: ir.Value, split_dim: int, concat_dim: int, axes: Axes, codec: ShardingCodec, **at: Unpack[At]
) -> ir.Value:
    type_ = _exchanged(tensor_type(x.type, "operand 0"), split_dim, concat_dim, prod(a.size for a in axes))
    dims = i64(split_dim, x.context), i64(concat_dim, x.context)
    return AllToAllOp(x, *dims, codec.axes(axes), write_type(type_, x.context), **at).out
