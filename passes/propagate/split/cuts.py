"""Choice of the calls to rewrite: those whose working dim will be split over devices."""

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
    """A call to rewrite in its split form, for a dim that is split ``ways`` ways.

    ``flips`` are the two flips around a scan from the end.
    """

    node: Node
    form: Form
    ways: int
    flips: tuple[Node, Node] | None = None


def find_cuts(seen: Foresight, movable: Collection[int]) -> Iterator[Cut]:
    """Yield the calls whose split form pays, in program order.

    ``movable`` are those during which another dim could be split.
    """
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
    """Return the axes that split whole factors of the first operand, or of another with the same dims: the
    most ways.
    """
    alike = [p for p, dims in enumerate(node.rule.operands) if dims == node.rule.operands[0]]
    return max((seen.axes(node, p) for p in alike), key=lambda axes: prod(a.size for a in axes))
