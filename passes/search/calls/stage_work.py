"""Work of the stages into which a forward can be cut, if all its equal layers are there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, groupby

from shardc.cost.work import flops
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program
from shardc.passes.search.fold import Folded

_ROUNDS = 40
"""Bisections of the slowest stage's work."""


def forward_work(program: Program, folded: Folded) -> list[float]:
    """Return the FLOP of each call of forward, in order, also of equal layers that the program lacks."""
    nodes, weights = program.nodes, folded.weights
    forward = [number for number, node in enumerate(nodes) if phase_of(node.op) == "forward"]
    found = list[float]()
    for weight, calls in groupby(forward, key=weights.__getitem__):
        # A colour for each call of a layer, and the weight of all layers, or no other calls like these.
        numbers = list(calls)
        layer = len({folded.colours[number] for number in numbers})
        each = [_flops(nodes[number]) for number in numbers[:layer]]
        found += each * round(weight * len(numbers) / layer)
    return found


def _flops(node: Node) -> float:
    return 0.0 if node.op.name.startswith("dist.") else flops(node.spec)


def unevenness(work: Sequence[float], stages: int) -> float:
    """Return the work of the slowest of so many stages over the mean, if cuts make it as little as possible.

    A call runs in one stage.
    """
    total = sum(work)
    if not total:
        return 1.0
    done = [0.0, *accumulate(work)]
    least, most = max(max(work), total / stages), total
    for _ in range(_ROUNDS):
        middle = (least + most) / 2
        least, most = (least, middle) if _fits(done, stages, middle) else (middle, most)
    return most * stages / total


def _fits(done: Sequence[float], stages: int, most: float) -> bool:
    """Return whether stages of ``most`` work each suffice, each with as many calls as it can take."""
    at = 0
    for _ in range(stages):
        at = bisect_right(done, done[at] + most * (1 + 1e-12)) - 1
    return at == len(done) - 1
