"""Questions to solvers from this process, and from its forked children."""

from __future__ import annotations

import os

import numpy as np

from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver import ask
from shardc.workers.forked import Forked


def drawn() -> Graph:
    draw, graph = np.random.default_rng(0), Graph(points=1)
    for node in range(8):
        graph.costs[graph.add_node(4)] = draw.random(4)
        for other in range(node):
            graph.add_edge(other, node, draw.random((4, 4)))
    return graph


def test_a_forked_child_solves_alone() -> None:
    graph = drawn()
    here = ask.cheapest(graph, Clock())
    assert here.chosen is not None

    def solve() -> tuple[list[int] | None, list[int]]:
        processes = [process._process.pid for process in ask._processes if process._process is not None]
        return ask.cheapest(graph, Clock()).chosen, [pid for pid in processes if _is_child(pid)]

    chosen, own = Forked(solve).result(lambda: False)
    assert chosen == here.chosen
    assert not own
    assert ask.cheapest(graph, Clock()).chosen == here.chosen


def _is_child(process: int) -> bool:
    """Whether a process is a child of this one."""
    with open(f"/proc/{process}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1]) == os.getpid()
