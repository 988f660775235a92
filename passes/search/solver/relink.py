"""Choices between two others: one's states where the other differs, for some of the places where they do.

Relaxation of a memory limit finds choices that hold too little and choices that hold too much. What is best
often lies between them (path relinking, Glover 1996).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from shardc.passes.search.graph import Graph


@dataclass
class _Place:
    """Joined nodes whose states differ, and by how much more they cost and hold with those of the goal."""

    nodes: Sequence[int]
    seconds: float
    uncovered_s: float
    held: np.ndarray

    def after(self, seconds: float, uncovered_s: float) -> float:
        """Return the cost of a choice with these parts, once this place has the goal's states."""
        return seconds + self.seconds + max(0.0, uncovered_s + self.uncovered_s)


def relinked(graph: Graph, start: Sequence[int], goal: Sequence[int], capacity: float) -> list[int]:
    """Return the cheapest choice found between two that are possible, ``start`` if there is none.

    Places are sets of joined nodes whose states differ; their costs add up. Each is taken from ``goal`` if
    that lowers the cost and a device then holds at most ``capacity`` bytes, those first that save the most
    time for each byte.
    """
    best, held = list(start), graph.bytes_at(start)
    seconds, uncovered_s = graph.seconds(start), graph.uncovered(start)
    best_s = seconds + max(0.0, uncovered_s)
    places = [(place.after(seconds, uncovered_s) - best_s, place) for place in _changes(graph, start, goal)]
    for _, place in sorted(places, key=lambda pair: _order(*pair)):
        tried_s = place.after(seconds, uncovered_s)
        if tried_s < best_s and (held + place.held <= capacity).all():
            seconds, uncovered_s = seconds + place.seconds, uncovered_s + place.uncovered_s
            best_s, held = tried_s, held + place.held
            for node in place.nodes:
                best[node] = goal[node]
    return best


def _order(more_s: float, place: _Place) -> float:
    if more_s >= 0:
        return 0.0
    more_bytes = float(place.held.max(initial=0.0))
    return more_s / more_bytes if more_bytes else -inf


def _changes(graph: Graph, start: Sequence[int], goal: Sequence[int]) -> list[_Place]:
    """Return the places at which two choices differ. No edge joins two of them."""
    places = [_Place(nodes, 0.0, 0.0, np.zeros(graph.points)) for nodes in _places(graph, start, goal)]
    of = {node: place for place in places for node in place.nodes}
    for node, place in of.items():
        old, new = start[node], goal[node]
        place.seconds += float(graph.costs[node][new] - graph.costs[node][old])
        place.uncovered_s -= float(graph.cover[node][new] - graph.cover[node][old])
        place.held = place.held + graph.memory[node][:, new] - graph.memory[node][:, old]
    for (first, second), seconds in graph.edges.items():
        if (place := of.get(first) or of.get(second)) is not None:
            place.seconds += float(seconds[goal[first], goal[second]] - seconds[start[first], start[second]])
    for (first, second), seconds in graph.late.items():
        if (place := of.get(first) or of.get(second)) is not None:
            place.uncovered_s += float(
                seconds[goal[first], goal[second]] - seconds[start[first], start[second]]
            )
    return places


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
