"""Choices between two others: one's states where the other differs, for some of the places where they do.

Relaxation of a memory limit finds choices that hold too little and choices that hold too much. What is best
often lies between them (path relinking, Glover 1996).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from shardc.passes.search.graph import Graph


def relinked(graph: Graph, start: Sequence[int], goal: Sequence[int], capacity: float) -> list[int]:
    """Return the cheapest choice found between two that are possible, ``start`` if there is none.

    Places are sets of joined nodes whose states differ; their costs add up. Each is taken from ``goal`` if
    that lowers the cost and a device then holds at most ``capacity`` bytes, those first that save the most
    time for each byte.
    """
    best, best_s = list(start), graph.total(start)
    places = _places(graph, start, goal)
    for place in sorted(places, key=lambda place: _order(graph, start, _moved(start, goal, place))):
        tried = _moved(best, goal, place)
        seconds = graph.total(tried)
        if seconds < best_s and (graph.bytes_at(tried) <= capacity).all():
            best, best_s = tried, seconds
    return best


def _order(graph: Graph, start: Sequence[int], moved: Sequence[int]) -> float:
    more_s = graph.total(moved) - graph.total(start)
    if more_s >= 0:
        return 0.0
    more_bytes = float((graph.bytes_at(moved) - graph.bytes_at(start)).max(initial=0.0))
    return more_s / more_bytes if more_bytes else -inf


def _moved(chosen: Sequence[int], goal: Sequence[int], place: Sequence[int]) -> list[int]:
    moved = list(chosen)
    for node in place:
        moved[node] = goal[node]
    return moved


def _places(graph: Graph, start: Sequence[int], goal: Sequence[int]) -> list[list[int]]:
    """Return the sets of joined nodes whose states differ."""
    near: dict[int, list[int]] = {n: [] for n, (a, b) in enumerate(zip(start, goal, strict=True)) if a != b}
    for first, second in (*graph.edges, *graph.late):
        if first in near and second in near:
            near[first].append(second)
            near[second].append(first)
    places = list[list[int]]()
    left = dict.fromkeys(near)
    while left:
        place, waiting = list[int](), [left.popitem()[0]]
        while waiting:
            node = waiting.pop()
            place.append(node)
            for other in near[node]:
                if other in left:
                    del left[other]
                    waiting.append(other)
        places.append(place)
    return places
