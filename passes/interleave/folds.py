"""Which sequences are folded, so that every device has as much of a causal mask as any other."""

from __future__ import annotations

from shardc.dialects.aten.schema import may_draw
from shardc.dialects.dist.interleaving import Parts
from shardc.passes.interleave.spread import Layout, LayoutSpread, is_causal
from shardc.passes.manager.program import Program


def folded_rows(program: Program, spread: LayoutSpread) -> dict[int, Layout]:
    """The rows of causal attention that devices share out, folded; none where that would move more.

    Random numbers are drawn in the order of a sequence: where a device draws as many as it has activations,
    they would have to change hands, and nothing is folded.
    """
    if _draws(program, spread):
        return {}
    found: dict[int, Layout] = {}
    for node in program.nodes:
        parts = spread.layout(node.results[0]).get(2) if is_causal(node) else None
        if parts is not None and parts.in_order and parts.size % (2 * parts.ways) == 0:
            found[node.results[0]] = {2: Parts(parts.ways, parts.sizes, folded=True)}
    return found


def _draws(program: Program, spread: LayoutSpread) -> bool:
    drawn = (n.results[0] for n in program.nodes if may_draw(n.spec.target) and n.results)
    return any(spread.layout(value) for value in drawn)
