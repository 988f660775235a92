"""Selection of the sequences to fold, so that all devices have equal parts of a causal mask."""

from __future__ import annotations

from math import prod

from shardc.diagnostics.base import remark
from shardc.dialects.aten.schema import may_draw
from shardc.dialects.dist.interleaving import Parts
from shardc.dialects.dist.mesh import Mesh
from shardc.passes.interleave.spread import Layout, LayoutSpread, is_causal
from shardc.passes.manager.attention import attention_axes
from shardc.passes.manager.program import Program


def folded_rows(program: Program, spread: LayoutSpread, mesh: Mesh) -> dict[int, Layout]:
    """Return the folded layouts of split rows of causal attention; none if folding would move more data.

    Random numbers are drawn in the order of the sequence. If a device draws one for each activation, folding
    would have to exchange them, so nothing is folded. A sequence is also not folded if other layers pass a
    state along it, or if it is whole inside attention.
    """
    rows = {
        node.results[0]: parts
        for node in program.nodes
        if is_causal(node) and (parts := spread.layout(node.results[0]).get(2)) is not None and parts.in_order
        if parts.ways > prod(map(mesh.size, attention_axes(node.op, "ulysses")))
    }
    if rows and _draws(program, spread):
        remark(
            "NotFolded",
            "the last device has the most work, because random numbers are drawn along the sequence",
        )
        return {}
    if rows and _passes_state(program, spread):
        remark(
            "NotFolded",
            "the last device has the most work, because short convolutions need the sequence in order",
        )
        return {}
    even = {value: parts for value, parts in rows.items() if parts.size % (2 * parts.ways) == 0}
    for size, ways in sorted({(p.size, p.ways) for v, p in rows.items() if v not in even}):
        problem = f"a sequence of {size} does not divide into {2 * ways} equal blocks"
        remark("NotFolded", f"the last device has the most work, because {problem}")
    return {value: {2: Parts(parts.ways, parts.sizes, folded=True)} for value, parts in even.items()}


def _draws(program: Program, spread: LayoutSpread) -> bool:
    drawn = (n.results[0] for n in program.nodes if may_draw(n.spec.target) and n.results)
    return any(spread.layout(value) for value in drawn)


def _passes_state(program: Program, spread: LayoutSpread) -> bool:
    """Return whether any layer passes a state along the sequence; such layers begin with a convolution."""
    convolved = (n.results[0] for n in program.nodes if n.spec.target == "shardc.causal_convolution")
    return any(spread.layout(value) for value in convolved)
