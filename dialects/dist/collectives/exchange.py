"""``dist.exchange``: each device hands its value to another place along some axes. Level 3."""

from collections.abc import Sequence
from math import prod
from typing import Unpack

from torch_mlir import ir
from torch_mlir.dialects import ext

from shardc.dialects.dist.build import At, attribute
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.sharding import Axes, ShardingCodec
from shardc.dialects.dist.verifier import Illegal, Op, Operand, Result, Site

ZEROS = -1
"""Entry of ``sources`` for a device that receives nothing: its result is zeros."""


class ExchangeOp(Op, dialect=Dist, name="exchange", traits=[ext.Pure]):
    """Gives the device with index ``i`` over ``axes`` the operand of the device with index ``sources[i]``, or
    zeros where the source is -1.

    Only devices that differ on ``axes`` alone exchange values. Each device sends to at most one other.

    ``%1 = "dist.exchange"(%0) {axes = ["space"], sources = [-1, 0, 1, 2]}
    : (!torch.vtensor<[4,1,8],f32>) -> !torch.vtensor<[4,1,8],f32>``
    """

    x: Operand
    axes: ir.ArrayAttr
    sources: ir.ArrayAttr
    out: Result

    def check(self, site: Site) -> None:
        site.expect_result(site.operand(), "an exchange keeps the local shape")
        ways = prod(a.size for a in site.axes())
        if not all(isinstance(s, ir.IntegerAttr) for s in site.attribute("sources", ir.ArrayAttr)):
            raise Illegal("sources must be integers")
        sources = read_sources(site.op)
        if problem := exchange_problem(sources, ways):
            raise Illegal(problem)


def read_sources(op: ir.Operation) -> tuple[int, ...]:
    """Return, for each index over the axes, the index of the device that sends to it."""
    return tuple(ir.IntegerAttr(source).value for source in ir.ArrayAttr(op.attributes["sources"]))


def exchange_problem(sources: Sequence[int], ways: int) -> str | None:
    """Return why ``sources`` is illegal for ``ways`` devices, or None."""
    if len(sources) != ways:
        return f"sources has {len(sources)} places, the axes have {ways}"
    sending = [s for s in sources if s != ZEROS]
    if wrong := [s for s in sending if not 0 <= s < ways]:
        return f"source {wrong[0]} is neither one of the {ways} places nor {ZEROS} for zeros"
    if len(set(sending)) < len(sending):
        twice = next(s for s in sending if sending.count(s) > 1)
        return f"place {twice} sends twice; each sends to one other at most"
    return None


def exchange(
    x: ir.Value, axes: Axes, sources: Sequence[int], codec: ShardingCodec, **at: Unpack[At]
) -> ir.Value:
    places = attribute(sources, x.context)
    assert isinstance(places, ir.ArrayAttr)
    return ExchangeOp(x, codec.axes(axes), places, x.type, **at).out
