"""Search for the cheapest choice if gradients' collectives overlap with the backward.

A choice costs ``seconds + max(0, uncovered)`` (:class:`~shardc.passes.search.graph.Graph`). For each weight
from 0 to 1, the least ``seconds + weight * uncovered`` is a lower bound. The choices that reach these bounds
are the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from time import perf_counter

from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver.solve import NoSolution, Solution, solve

_WEIGHTS = (0.01, 1.0, 0.5, 0.25, 0.75)
"""Weights to try if nothing better is known. 0 is missing, so that hidden collectives are kept small, too."""
_INSIDE = 0.1
"""Least distance of a weight from those on both sides of it, as a part of theirs."""
_TRIES = 5
"""Limit of the number of weights to try."""
ENOUGH = 1e-2
"""Relative gap to the bound below which no other weight is tried."""
_NEAR = 5e-3
"""The same of the seconds that a choice must beat: it would save no more."""

LIMIT_S = 15.0
"""Seconds after which no other weight is tried."""


def solve_overlapped(
    graph: Graph, capacity: float = inf, cutoff_s: float = inf, clock: Clock | None = None
) -> Solution | NoSolution:
    """Return the cheapest states found under a limit of ``capacity`` bytes for each device.

    The search ends if no choice takes less than ``cutoff_s``; its result may then not fit. It also ends when
    ``clock`` is over. The solution's ``seconds`` count only collectives that are not hidden.
    """
    clock = clock or Clock()
    if graph.least_bytes > capacity:
        return NoSolution(inf, -inf)
    best: Solution | None = None
    bound_s = free_s = -inf
    start_s = perf_counter()
    lines, seen = dict[float, _Line | None](), list[list[int]]()
    weight = _WEIGHTS[0] if graph.late else 0.0
    while weight is not None:
        found = solve(graph.weighted(weight), capacity, cutoff_s, clock)
        is_stopped = clock.is_over or (best is not None and clock.is_enough)
        bound_s, free_s = max(bound_s, found.bound_s), max(free_s, found.free_s)
        lines[weight] = None
        if isinstance(found, Solution):
            lines[weight] = graph.seconds(found.chosen), graph.uncovered(found.chosen)
            seen += found.seen
            seconds = graph.total(found.chosen)
            if best is None or seconds < best.seconds:
                best = replace(found, seconds=seconds, weight=weight)
        if bound_s >= (
            cutoff_s if best is None else min(best.seconds * (1 - ENOUGH), cutoff_s * (1 - _NEAR))
        ):
            break
        if is_stopped:
            best = None if best is None else replace(best, why=clock.why)
            break
        if perf_counter() - start_s > LIMIT_S:
            break
        weight = _next(lines) if graph.late and len(lines) < _TRIES else None
    if best is None:
        return NoSolution(bound_s, free_s)
    if bound_s < cutoff_s:  # else the best choice so far may not fit
        bound_s = min(bound_s, best.seconds)
    return replace(best, bound_s=bound_s, free_s=min(free_s, best.seconds), seen=seen)


_Line = tuple[float, float]
"""Seconds of a choice, and its uncovered ones: its cost is a line over the weight."""


def _next(lines: Mapping[float, _Line | None]) -> float | None:
    """Return the weight to try next, given the choices found so far, by weight; None if none is better.

    The bound is concave over the weight. Where a choice leaves collectives uncovered, its maximum is at a
    higher weight, else at a lower one: about where two such lines meet.
    """
    above = [weight for weight, line in lines.items() if line is not None and line[1] > 0]
    below = [weight for weight, line in lines.items() if line is not None and line[1] <= 0]
    low, high = max(above, default=0.0), min(below, default=1.0)
    if not above and below:
        return None
    first, last = lines.get(low), lines.get(high)
    if first is None or last is None or low >= high:
        return next((weight for weight in _WEIGHTS if weight not in lines), None)
    meet = (last[0] - first[0]) / (first[1] - last[1])
    inside = _INSIDE * (high - low)
    weight = min(max(meet, low + inside), high - inside)
    return weight if high - low > _INSIDE * high else None
