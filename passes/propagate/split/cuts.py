"""Which calls are written in their other form: those that devices will cut along the dim they work on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

from shardc.dialects.dist.sharding import Axes
from shardc.passes.manager.program import Node
from shardc.passes.propagate.split.foresight import Foresight
from shardc.passes.propagate.split.forms import FORMS, Form


@dataclass(frozen=True)
class Cut:
    """A call to write in its form, cut ``ways`` ways.

    Of a scan from the end ``flips`` are the two calls around it.
    """

    node: Node
    form: Form
    ways: int
    flips: tuple[Node, Node] | None = None


def find_cuts(seen: Foresight, movable: Collection[int]) -> Iterator[Cut]:
    """The calls with a form that gains, in program order; ``movable``: those that another dim could serve."""
    for number, node in enumerate(seen.program.nodes):
        form = FORMS.get(node.spec.target)
        if form is None or not node.known or node.spec.tensors[0].dtype.is_complex:
            continue
        axes = _axes(seen, node)
        if form.takes_blocks and any(seen.mesh.is_time(a) for a in axes):
            continue
        ways = prod(a.size for a in axes if not seen.mesh.is_time(a))
        wanted = form.beats_move if number in movable else form.fits
        if ways > 1 and wanted(node.spec, ways):
            yield Cut(node, form, ways, seen.flips.get(number))


def _axes(seen: Foresight, node: Node) -> Axes:
    """The most axes that cut what must be whole in the first operand, or in one that lies as it does."""
    alike = [p for p, dims in enumerate(node.rule.operands) if dims == node.rule.operands[0]]
    return max((seen.axes(node, p) for p in alike), key=lambda axes: prod(a.size for a in axes))
