"""Parts of all choices: smaller gaps, with bounds that hold."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from choice_graphs import choices, drawn, total

from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver import branch
from shardc.passes.search.solver.branch import solve_in_parts
from shardc.passes.search.solver.overlap import ENOUGH, solve_overlapped
from shardc.passes.search.solver.solve import OPTIMAL, NoSolution, Solution


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seeds", [range(n, n + 50) for n in range(0, 400, 50)], ids=str)
def test_parts_leave_a_smaller_gap(seeds: range) -> None:
    """Under a limit of memory for half of the choices, and with edges that are paid late."""
    closed = [0, 0]
    for graph in map(drawn, seeds):
        capacity = float(np.median([graph.bytes_at(chosen).max() for chosen in choices(graph)]))
        fitting = [c for c in choices(graph) if (graph.bytes_at(c) <= capacity).all()]
        least = min((total(graph, chosen) for chosen in fitting), default=inf)
        whole, found = solve_overlapped(graph, capacity), solve_in_parts(graph, capacity)
        assert found.bound_s <= least + 1e-6
        if isinstance(whole, NoSolution):
            assert found == whole
            continue
        assert isinstance(found, Solution)
        assert (graph.bytes_at(found.chosen) <= capacity).all()
        assert found.seconds == pytest.approx(total(graph, tuple(found.chosen)))
        assert found.seconds <= whole.seconds and found.bound_s >= whole.bound_s - 1e-9
        if found.why == OPTIMAL:
            assert found.seconds <= least / (1 - ENOUGH) + 1e-6
        closed[0] += whole.gap <= ENOUGH
        closed[1] += found.gap <= ENOUGH
    assert closed[0] < closed[1] >= 30


@pytest.mark.parametrize("part", [0.9, 1.0, 1.1])
def test_parts_keep_the_cutoff(part: float) -> None:
    """A result fits and takes less than the cutoff, or the bound says that none does."""
    for graph in map(drawn, range(60)):
        capacity = float(np.median([graph.bytes_at(chosen).max() for chosen in choices(graph)]))
        fitting = [c for c in choices(graph) if (graph.bytes_at(c) <= capacity).all()]
        least = min((total(graph, chosen) for chosen in fitting), default=inf)
        found = solve_in_parts(graph, capacity, cutoff_s=part * least)
        assert found.bound_s <= least * (1 + 1e-5) + 1e-6
        if isinstance(found, Solution) and found.bound_s < part * least:
            assert (graph.bytes_at(found.chosen) <= capacity).all()


def layers() -> Graph:
    """Two groups of equal layers, of which a group that holds nothing takes longer. Half of one would fit."""
    graph = Graph(points=1)
    for seconds, held in ((1.0, 1.0), (1.3, 1.2)):
        node = graph.add_node(2)
        graph.costs[node] = np.array([10.0, 10.0 + seconds])
        graph.memory[node] = np.array([[held, 0.0]])
    return graph


def test_a_node_that_stands_for_many_layers() -> None:
    whole, found = (solve(layers(), 1.5) for solve in (solve_overlapped, solve_in_parts))
    assert isinstance(whole, Solution) and isinstance(found, Solution)
    assert found.seconds == 21.0 and found.gap <= ENOUGH < whole.gap


def test_no_part_is_divided_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branch, "LIMIT_S", 0.0)
    whole, found = (solve(layers(), 1.5) for solve in (solve_overlapped, solve_in_parts))
    assert isinstance(whole, Solution) and isinstance(found, Solution)
    assert found.bound_s == whole.bound_s and found.why == whole.why != OPTIMAL


def test_an_interrupted_search_divides_nothing() -> None:
    clock = Clock()
    clock.interrupt()
    assert isinstance(solve_in_parts(layers(), 1.5, clock=clock), NoSolution)
