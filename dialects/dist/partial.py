"""``dist.partial``: turns a whole value into a partial sum. Level 3, no communication."""

from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Op, Operand, Result, Site


class PartialOp(Op, dialect=Dist, name="partial", traits=[ext.Pure]):
    """Returns the operand on devices with index 0 over ``axes``, and zeros on the others.

    So the sum of the results over ``axes`` is the operand. A time axis refers to the enclosing loop over it.

    ``%1 = "dist.partial"(%0) {axes = ["data"]}
    : (!torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32>``
    """

    x: Operand
    axes: ir.ArrayAttr
    out: Result

    def check(self, site: Site) -> None:
        site.expect_result(site.operand(), "a term of a sum has the sum's shape")
        site.axes(space=False)


def to_partial(x: ir.Value, axes: Axes, codec: ShardingCodec, **at: Unpack[At]) -> ir.Value:
    return PartialOp(x, codec.axes(axes), x.type, **at).out
