"""Costly values over few dims that loops over more dims read: loops of their own compute them once.

A softplus of 64 rates, read for each event of each user, would else be computed for each number.
"""

from __future__ import annotations

from math import prod

from shardc.backends.body.graph import Argument, Computed, Graph, Value
from shardc.backends.body.linear import Index, Picked
from shardc.backends.body.nest import fast_axis
from shardc.backends.body.roots import Root, Roots, base, find_roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.stages import cost
from shardc.dialects.kern.size import hint

TIMES = 4
"""How many times fewer elements than the loops that read it such a value has at least."""
TIMES_STORED = 2
"""The same for a value that is a result of the kernel, and so in memory anyway."""
SHORT_LOOP = 64
"""Most steps of a loop before which such a value is read, not computed as a scalar: rows of 16 powers of a
softplus took 0.25 ms instead of 1.33."""
ROUNDS = 4
"""Most rounds: each may find values that what the last one found is computed from."""


def roots_of(graph: Graph) -> Roots:
    """Return the roots of a graph, among them such values."""
    found: dict[Value, None] = {}
    roots = find_roots(graph)
    for _ in range(0 if graph.flat else ROUNDS):
        more = {value: None for root in roots.items for value in _computed_again(root, roots)}
        if not more:
            break
        found |= more
        roots = find_roots(graph, found)
    return roots


def _computed_again(root: Root, roots: Roots) -> list[Value]:
    """Return the costly values that the loops of a root would compute again and again.

    What does not vary along the loops' contiguous axis is computed before that loop anyway, but as a scalar:
    where that loop is short, a value that its own loops store is read.
    """
    loops, fast = root.loops, fast_axis([root], {root: roots.reads(root)})
    count, least = hint(prod(loops.values())), Config.of(roots.graph.config).recompute_cost
    known: dict[Value, int] = {}
    results, in_place = roots.graph.results, roots.graph.in_place
    stored = {base(value) for number, value in enumerate(results) if number not in in_place}

    def is_again(value: Computed, index: Index) -> bool:
        if value in roots.of or any(isinstance(axis, Picked) for at in index for axis, _ in at.terms):
            return False
        axes = {axis for at in index for axis in at.axes}
        if loops.keys() <= axes or cost(value, roots, known) < least:
            return False
        times = count // max(1, hint(prod(value.shape)))
        if value in stored and _is_from_arguments(value, index, roots):
            return times >= TIMES_STORED and (fast in axes or times <= SHORT_LOOP)
        return times >= TIMES and fast in axes

    return [value for value, _ in roots.reads(root, is_again).stopped]


def _is_from_arguments(value: Computed, index: Index, roots: Roots) -> bool:
    """Return whether a value needs no sum, whose loops would have to end before."""
    read = roots.reads_of([(value, index)]).ends
    return all(isinstance(end, Argument) or not roots.of[end].is_reduction for end, _ in read)
