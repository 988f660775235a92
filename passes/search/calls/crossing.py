"""Bytes that cross a cut of the forward into two stages, for every place of the cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from shardc.cost.work import computed_flops
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Program
from shardc.passes.search.alive import owners


def crossing(program: Program, weights: Sequence[float]) -> list[tuple[float, float]]:
    """Return, for each cut, the part of the forward's FLOP before it, and the bytes of all samples to send.

    Only what depends on both inputs and parameters is sent; stages can compute all else. ``weights``: for how
    many calls each call stands.
    """
    nodes, owner = program.nodes, owners(program)
    forward = forward_calls(program)
    fed, bound = reached(program, forward, "input"), reached(program, forward, "param")
    first, last = dict[int, int](), dict[int, int]()
    for place, number in enumerate(forward):
        last |= {owner[value]: place for value in nodes[number].operands}
        made = fed.intersection(bound, nodes[number].results)
        first |= dict.fromkeys(made, place)
    change = np.zeros(len(forward) + 1)
    for value in first.keys() & last.keys():
        change[first[value] + 1] += program.types[value].size_bytes
        change[last[value] + 1] -= program.types[value].size_bytes
    calls = ((nodes[number], weights[number]) for number in forward)
    works = (
        0.0 if node.op.name.startswith("dist.") else computed_flops(node.spec) * times
        for node, times in calls
    )
    done = np.array([*accumulate(works, initial=0.0)])
    parts = done / max(done[-1], 1.0)
    return list(zip(parts.tolist(), change.cumsum().tolist(), strict=True))[1:-1]


def forward_calls(program: Program) -> list[int]:
    """Return the numbers of forward's calls."""
    return [number for number, node in enumerate(program.nodes) if phase_of(node.op) == "forward"]


def reached(program: Program, calls: Sequence[int], role: str) -> set[int]:
    """Return the values that depend on an argument of a role."""
    arguments = enumerate(program.arguments)
    found = {value for place, value in arguments if program.argument_key(place)[0] == role}
    for number in calls:
        if found.intersection(program.nodes[number].operands):
            found.update(program.nodes[number].results)
    return found
