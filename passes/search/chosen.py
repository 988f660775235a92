"""What a search chose for the calls and arguments of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.passes.manager.attributes import phase_of
from shardc.passes.search.layout import WHOLE, Layout, parts
from shardc.passes.search.step.step_graph import StepGraph
from shardc.passes.search.ways import Way

Kept = tuple[tuple[int, Layout], ...]
"""Results of a call that are kept in shards from forward to backward, by number, with the layout."""


@dataclass(frozen=True)
class Chosen:
    """A way for each call, what is kept of its results in shards, and a layout for each argument."""

    ways: list[Way]
    arguments: list[Layout]
    kept: list[Kept]


def chosen_of(step: StepGraph, states: Sequence[int]) -> Chosen:
    """Return the meaning of a choice of one state for each node of a step's graph."""
    ways = [ways[states[node]] for node, ways in zip(step.call_node, step.ways, strict=True)]
    arguments = [ls[states[node]] for node, ls in zip(step.argument_node, step.layouts, strict=True)]
    program, kept = step.program, list[Kept]([()] * len(ways))
    for value, copy in step.copies.items():
        layout, producer = copy.layouts[states[copy.node]], program.producer[value]
        if producer >= 0 and _is_gathered_again(step, value, layout, ways):
            kept[producer] += ((program.nodes[producer].results.index(value), layout),)
    return Chosen(ways, arguments, kept)


def _is_gathered_again(step: StepGraph, value: int, layout: Layout, ways: Sequence[Way]) -> bool:
    """Return whether forward and backward gather a value from the layout that all its readers share.

    What backward recomputes is a part of it.
    """
    sizes = step.axes.sizes
    if value in step.stored or any(layout[axis] < WHOLE for axis in step.axes.space):
        return False
    gathered = [
        n for n, at in step.readers[value] if parts(ways[n].operands[at], sizes) < parts(layout, sizes)
    ]
    phases = {phase_of(step.program.nodes[number].op) for number in gathered}
    return "forward" in phases and not phases.isdisjoint(("recompute", "backward"))
