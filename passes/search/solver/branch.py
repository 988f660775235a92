"""Search with a smaller gap: parts of all choices are searched by themselves.

The bound under a memory limit, and that on collectives which kernels hide, leave a gap where one state stands
for many equal layers: the choices on both sides of a limit are then far apart. Branch and bound (Land and
Doig, 1960) closes it: the states of a node in which such choices differ are divided into two parts, and each
part has a bound of its own.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from time import perf_counter

import numpy as np

from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver.overlap import ENOUGH, solve_overlapped
from shardc.passes.search.solver.solve import OPTIMAL, NoSolution, Solution

DIVISIONS = 12
"""Limit of the number of parts that are divided."""
LIMIT_S = 5.0
"""Seconds after which no other part is divided."""

_Open = tuple[float, int, Graph, Solution]
"""A part that may have a cheaper choice: its bound, a number in order, its graph, and its best choice."""


def solve_in_parts(
    graph: Graph, capacity: float = inf, cutoff_s: float = inf, clock: Clock | None = None
) -> Solution | NoSolution:
    """Return what :func:`solve_overlapped` returns, with a smaller gap if it leaves one.

    The solution's prices of memory are those for all choices together.
    """
    clock, start_s = clock or Clock(), perf_counter()
    first = solve_overlapped(graph, capacity, cutoff_s, clock)
    if isinstance(first, NoSolution):
        return first
    if first.bound_s >= cutoff_s:
        return replace(first, seen=())
    best = first
    numbers = itertools.count()
    parts: list[_Open] = [(best.bound_s, next(numbers), graph, best)]
    closed_s = inf
    for _ in range(DIVISIONS):
        is_late = clock.is_over or clock.is_enough or perf_counter() - start_s > LIMIT_S
        if is_late or not parts or parts[0][0] >= _enough(best.seconds, cutoff_s):
            break
        bound_s, _, part, found = heapq.heappop(parts)
        halves = list(_halves(part, found))
        closed_s = closed_s if halves else min(closed_s, bound_s)
        for half in halves:
            found = solve_overlapped(half, capacity, min(cutoff_s, best.seconds), clock)
            least_s = max(found.bound_s, bound_s)
            if isinstance(found, NoSolution) or found.bound_s >= min(cutoff_s, best.seconds):
                closed_s = min(closed_s, least_s)
                continue
            best = min(best, found, key=lambda solution: solution.seconds)
            heapq.heappush(parts, (least_s, next(numbers), half, found))
    bound_s = max(first.bound_s, min([closed_s, best.seconds, *(part[0] for part in parts)]))
    why = OPTIMAL if bound_s >= _enough(best.seconds, cutoff_s) else best.why
    of_all = {"prices": first.prices, "is_tight": first.is_tight, "free_s": first.free_s, "seen": ()}
    return replace(best, bound_s=bound_s, why=why, **of_all)


def _enough(best_s: float, cutoff_s: float) -> float:
    return min(best_s * (1 - ENOUGH), cutoff_s)


def _halves(graph: Graph, found: Solution) -> Iterator[Graph]:
    """Yield the graph with each part of the states of the node that matters most; nothing if none does.

    It is the one whose states differ the most, in what the limits count, between the last two choices that
    the search has seen: one on each side of a limit.
    """
    *_, last = found.seen
    other = next((chosen for chosen in reversed(found.seen) if chosen != last), None)
    if other is None:
        return
    node = int(np.argmax(_differences(graph, found, last, other)))
    if last[node] == other[node]:
        return
    held = np.zeros(len(graph.costs[node])) if found.prices is None else found.prices @ graph.memory[node]
    ends = held[last[node]], held[other[node]]
    is_first = np.abs(held - ends[0]) < np.abs(held - ends[1])
    if ends[0] == ends[1]:
        is_first = np.arange(len(held)) == last[node]
    for is_part in (is_first, ~is_first):
        costs = list(graph.costs)
        costs[node] = np.where(is_part, costs[node], inf)
        yield replace(graph, costs=costs)


def _differences(graph: Graph, found: Solution, one: Sequence[int], other: Sequence[int]) -> np.ndarray:
    """Return, for each node, by how many seconds the limited quantities of two choices differ, at their
    prices.
    """
    pairs, weight = list(zip(one, other, strict=True)), found.weight or 0.0
    differ = [weight * abs(cover[a] - cover[b]) for cover, (a, b) in zip(graph.cover, pairs, strict=True)]
    if found.prices is not None:
        for node, (a, b) in enumerate(pairs):
            memory = graph.memory[node]
            differ[node] += found.prices @ np.abs(memory[:, a] - memory[:, b]) if a != b else 0.0
    for (first, second), seconds in graph.late.items():
        more_s = weight * abs(seconds[one[first], one[second]] - seconds[other[first], other[second]])
        for node in (first, second):
            differ[node] += more_s if one[node] != other[node] else 0.0
    return np.array(differ)
