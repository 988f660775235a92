"""Runner-ups: the cheapest of all choices in which one node has another state, on random graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from choice_graphs import choices, drawn, total

from shardc.passes.search.answer import runner_up
from shardc.passes.search.answer.runner_up import cheapest_others, improved
from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver import ask
from shardc.passes.search.solver.overlap import solve_overlapped
from shardc.passes.search.solver.solve import NoSolution, Solution
from shardc.workers.forked import Forked, can_fork


@pytest.mark.parametrize("seeds", [range(n, n + 50) for n in range(0, 200, 50)], ids=str)
def test_no_choice_is_below_the_bound_and_most_are_the_best(seeds: range) -> None:
    best = []
    for seed in seeds:
        graph = drawn(seed)
        found = solve_overlapped(graph)
        if isinstance(found, NoSolution):
            continue
        for node in {0, len(graph.costs) - 1}:
            others = [chosen for chosen in choices(graph) if chosen[node] != found.chosen[node]]
            least = min((total(graph, chosen) for chosen in others), default=inf)
            other = cheapest_others(graph, found, [node]).get(node)
            if other is None:
                continue
            assert other.chosen[node] != found.chosen[node]
            assert other.seconds == pytest.approx(graph.total(other.chosen))
            assert other.seconds >= least - 1e-9
            assert other.bound_s <= least + 1e-6
            best.append(other.seconds <= least + 1e-6)
    assert len(best) > len(seeds)
    assert sum(best) >= 0.85 * len(best)


def test_what_does_not_fit_is_avoided() -> None:
    """One node is to take another state; a second one has room for it in its dearer state alone."""
    graph = Graph(points=1)
    for costs in ([1.0, 2.0], [1.0, 1.5]):
        graph.costs[graph.add_node(2)] = np.array(costs)
    graph.memory[0][0], graph.memory[1][0] = [1.0, 2.0], [2.0, 1.0]
    found = solve_overlapped(graph, capacity=3.0)
    assert isinstance(found, Solution)
    assert found.chosen == [0, 0]
    other = cheapest_others(graph, found, [0], capacity=3.0)[0]
    assert (other.chosen, other.seconds) == ([1, 1], 3.5)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_other_choice_is_cheaper_than_the_plan(count: int) -> None:
    """The solution is a little dearer than the best; with 5 nodes there are more steps than sweeps."""
    graph = Graph(points=1)
    for node in range(count):
        graph.costs[graph.add_node(3)] = np.array([1.0, 1.0001, 1.5 + node])
    found = solve_overlapped(graph)
    assert isinstance(found, Solution)
    start = [1] * count
    found = replace(found, chosen=start, seconds=graph.total(start))
    taken, others = improved(graph, found, range(count), inf, Clock())
    assert taken.seconds == graph.total(taken.chosen) < found.seconds
    for node, other in others.items():
        assert other.chosen[node] != taken.chosen[node]
        assert other.seconds >= taken.seconds


def test_children_find_what_one_process_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = drawn(1)
    found, nodes = solve_overlapped(graph), range(len(graph.costs))
    assert isinstance(found, Solution)
    alone = cheapest_others(graph, found, nodes)
    asked = Counter[str]()
    monkeypatch.setattr(runner_up, "Forked", lambda function: asked.update(["child"]) or Forked(function))
    monkeypatch.setattr(ask, "MOST", 2)
    assert improved(graph, found, nodes, inf, Clock()) == (found, alone)
    assert asked["child"] == (2 if can_fork() else 0)


def test_an_interrupted_search_leaves_the_others_out() -> None:
    graph, clock = drawn(1), Clock()
    found = solve_overlapped(graph)
    assert isinstance(found, Solution)
    clock.interrupt()
    taken, _ = improved(graph, found, range(len(graph.costs)), inf, clock)
    assert taken == found
