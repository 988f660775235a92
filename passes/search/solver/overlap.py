"""Search for the cheapest choice if gradients' collectives overlap with the backward.

A choice costs ``seconds + max(0, uncovered)`` (:class:`~shardc.passes.search.graph.Graph`). For each weight
from 0 to 1, the least ``seconds + weight * uncovered`` is a lower bound. The choices that reach these bounds
are the candidates, and those between two of them. Each choice bounds the lower bounds of all weights by a
line, and the next weight is where the least of the lines is highest (Kelley 1960).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf
from operator import itemgetter
from time import perf_counter

from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver.relink import relinked
from shardc.passes.search.solver.solve import NoSolution, Solution, solve

_LEAST, _MOST = 0.01, 1.0
"""First and last weight. The first is not 0, so that hidden collectives are kept small, too."""
TRIES = 6
"""Limit of the number of weights to try."""
_GAIN = 1e-3
"""Relative gain of the bound that another weight must promise."""
ENOUGH = 1e-2
"""Relative gap to the bound below which no other weight is tried."""


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
    lines = list[_Line]()
    bound_s = free_s = -inf
    start_s, weight = perf_counter(), _LEAST if graph.late else 0.0
    for _ in range(TRIES):
        found = solve(graph.weighted(weight), capacity, cutoff_s, clock)
        is_stopped = clock.is_over or (best is not None and clock.is_enough)
        bound_s, free_s = max(bound_s, found.bound_s), max(free_s, found.free_s)
        if isinstance(found, Solution):
            line = _Line.of(graph, found.chosen)
            for chosen in (found.chosen, *_between(graph, line, lines, capacity)):
                seconds = graph.total(chosen)
                if best is None or seconds < best.seconds:
                    best = replace(found, chosen=chosen, seconds=seconds)
            lines.append(line)
        if bound_s >= (cutoff_s if best is None else min(best.seconds * (1 - ENOUGH), cutoff_s)):
            break
        if is_stopped:
            best = None if best is None else replace(best, why=clock.why)
            break
        before, (weight, most_s) = weight, _highest(lines)
        if not lines:  # what fits may be found with another weight
            weight, most_s = _MOST, inf if before == _LEAST else -inf
        if not graph.late or most_s <= bound_s * (1 + _GAIN) or perf_counter() - start_s > LIMIT_S:
            break
    if best is None:
        return NoSolution(bound_s, free_s)
    if bound_s < cutoff_s:  # else the best choice so far may not fit
        bound_s = min(bound_s, best.seconds)
    return replace(best, bound_s=bound_s, free_s=min(free_s, best.seconds))


@dataclass(frozen=True)
class _Line:
    """Cost of a choice as a function of the weight."""

    chosen: Sequence[int]
    seconds: float
    uncovered: float

    @staticmethod
    def of(graph: Graph, chosen: Sequence[int]) -> _Line:
        return _Line(chosen, graph.seconds(chosen), graph.uncovered(chosen))

    def at(self, weight: float) -> float:
        return self.seconds + weight * self.uncovered


def _highest(lines: Sequence[_Line]) -> tuple[float, float]:
    """Return the weight at which the least of the lines is highest, and its value there."""
    weights = [_LEAST, _MOST]
    for one, other in combinations(lines, 2):
        slope = one.uncovered - other.uncovered
        if slope and _LEAST < (weight := (other.seconds - one.seconds) / slope) < _MOST:
            weights.append(weight)
    return max(((w, min((line.at(w) for line in lines), default=inf)) for w in weights), key=itemgetter(1))


def _between(graph: Graph, line: _Line, others: Sequence[_Line], capacity: float) -> Iterator[list[int]]:
    """Yield the best choices between one and others, if late collectives exceed kernels in one of the two."""
    for other in others:
        start, goal = (line, other) if line.uncovered > other.uncovered else (other, line)
        if start.uncovered > 0 >= goal.uncovered:
            yield relinked(graph, start.chosen, goal.chosen, capacity)
