"""``dist.offset``: the start of this device's (or iteration's) block. Level 3, no communication."""

from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At, attributes
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Illegal, LeftToMlir, Op, Operand, Result, Site


class OffsetOp(Op, dialect=Dist, name="offset", traits=[ext.Pure]):
    """Computes the integer ``start + base + scale * extent * (index over axes)``.

    ``start`` is the optional operand, default 0. ``extent`` is the size of a block in elements. A time axis
    refers to the enclosing loop over it.

    ``%1 = "dist.offset"() {axes = ["data"], base = 0 : i64, extent = 128 : i64, scale = 1 : i64} : () ->
    !torch.int``
    """

    axes: ir.ArrayAttr
    extent: ir.IntegerAttr
    scale: ir.IntegerAttr
    base: ir.IntegerAttr
    out: Result
    start: Operand | None = None

    def check(self, site: Site) -> None:
        site.axes(space=False)
        site.integer("extent", 0)
        for name in ("scale", "base"):
            site.attribute(name, ir.IntegerAttr)
        if len(site.op.results) != 1:
            raise LeftToMlir
        for value in (*site.op.operands, *site.op.results):
            if str(value.type) != "!torch.int":
                raise Illegal(f"takes and gives !torch.int, not {value.type}")


def offset(
    axes: Axes, extent: int, codec: ShardingCodec, scale: int = 1, base: int | ir.Value = 0, **at: Unpack[At]
) -> ir.Value:
    """Build the op. ``base`` is a number or a value of type ``!torch.int``."""
    context = at["loc"].context
    start, number = ([base], 0) if isinstance(base, ir.Value) else ([], base)
    said = attributes(context, axes=codec.axes(axes), extent=extent, scale=scale, base=number)
    result = [ir.Type.parse("!torch.int", context)]
    return ir.Operation.create(OffsetOp.OPERATION_NAME, result, start, said, **at).result
