"""Choices of states: equal to the best of all on random graphs, with and without a bound on memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf

import numpy as np
import pytest
from choice_graphs import choices, drawn, total
from pytoulbar2 import tb2

from shardc.passes.search.clock import Clock
from shardc.passes.search.graph import Graph
from shardc.passes.search.solver import ask, network, overlap
from shardc.passes.search.solver.overlap import solve_overlapped
from shardc.passes.search.solver.question import Network, Question
from shardc.passes.search.solver.reduced import Reduced
from shardc.passes.search.solver.solve import GAP, NoSolution, Solution, solve

GRAPHS = 400


@pytest.mark.parametrize("seeds", [range(n, n + 50) for n in range(0, GRAPHS, 50)], ids=str)
def test_the_best_of_all_choices_is_found(seeds: range) -> None:
    for graph in (drawn(seed).weighted(1.0) for seed in seeds):
        least = min(graph.seconds(chosen) for chosen in choices(graph))
        found = solve(graph)
        if isinstance(found, NoSolution):
            assert found.bound_s == least == inf
            continue
        assert found.seconds == pytest.approx(graph.seconds(found.chosen))
        assert found.seconds <= least * (1 + GAP) + 1e-9
        assert found.bound_s <= least + 1e-9


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seeds", [range(n, n + 50) for n in range(0, GRAPHS, 50)], ids=str)
def test_bounds_hold_and_memory_is_kept(seeds: range) -> None:
    """Under a bound on memory, and with edges that are paid late, the bound is below all that is possible."""
    found_gaps = []
    for graph in map(drawn, seeds):
        capacity = float(np.median([graph.bytes_at(chosen).max() for chosen in choices(graph)]))
        fitting = [c for c in choices(graph) if (graph.bytes_at(c) <= capacity).all()]
        least = min((total(graph, chosen) for chosen in fitting), default=inf)
        found = solve_overlapped(graph, capacity)
        free_s = min(total(graph, chosen) for chosen in choices(graph))
        assert found.free_s <= free_s + 1e-6
        if isinstance(found, NoSolution):
            assert found.bound_s <= least + 1e-6
            continue
        assert (graph.bytes_at(found.chosen) <= capacity).all()
        assert found.seconds == pytest.approx(total(graph, tuple(found.chosen)))
        assert found.bound_s <= least + 1e-6
        assert found.seconds >= least - 1e-9
        found_gaps.append(found.seconds / least - 1 if least else 0.0)
    assert len(found_gaps) > 30
    assert float(np.median(found_gaps)) <= 0.02


def test_a_long_chain() -> None:
    graph = Graph()
    for _ in range(1000):
        node = graph.add_node(3)
        graph.costs[node] = np.array([3.0, 2.0, 1.0])
        if node:
            graph.add_edge(node - 1, node, 1.0 - np.eye(3))
    found = solved(graph)
    assert found.chosen == [2] * 1000
    assert found.seconds == 1000.0
    assert found.bound_s == pytest.approx(1000.0)


def test_a_bound_that_nothing_keeps() -> None:
    graph = Graph(points=1)
    graph.memory[graph.add_node(2)][0] = [3.0, 2.0]
    assert isinstance(solve(graph, capacity=1.0), NoSolution)
    assert solved(graph, capacity=2.0).chosen == [1]


def test_an_interrupted_search_finds_nothing() -> None:
    clock = Clock()
    clock.interrupt()
    assert isinstance(solve(hard(), clock=clock), NoSolution)
    assert solved(hard()).seconds < inf


def test_a_bound_holds_if_the_solver_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimum takes longer than a second. The bound then is below what more seconds find."""
    draw, graph = np.random.default_rng(0), Graph()
    for _ in range(40):
        graph.costs[graph.add_node(6)] = draw.random(6)
    for first, second in combinations(range(40), 2):
        graph.add_edge(first, second, draw.random((6, 6)))
    monkeypatch.setattr(ask, "LIMIT_S", 4.0)
    best_s = solved(graph).seconds
    monkeypatch.setattr(ask, "LIMIT_S", 1.0)
    found = solve(graph)
    assert found.bound_s <= best_s
    if isinstance(found, Solution):
        assert found.gap > GAP
        assert "time limit" in found.why


def test_no_other_weight_is_tried_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, tried = hard(), list[Graph]()
    graph.late, graph.edges = graph.edges, {}

    def noted(weighted: Graph, capacity: float, cutoff_s: float, clock: Clock) -> Solution | NoSolution:
        tried.append(weighted)
        found = solve(weighted, capacity, cutoff_s, clock)
        return replace(found, bound_s=0.0)

    monkeypatch.setattr(overlap, "solve", noted)
    assert isinstance(solve_overlapped(graph), Solution)
    assert len(tried) > 1
    tried.clear()
    monkeypatch.setattr(overlap, "LIMIT_S", 0.0)
    assert isinstance(solve_overlapped(graph), Solution)
    assert len(tried) == 1


def test_memory_that_one_price_saves_exactly() -> None:
    """Ten calls, each with a slow state that holds nothing; the bound is that of whole multiples."""
    graph = Graph(points=1)
    for _ in range(10):
        node = graph.add_node(2)
        graph.costs[node], graph.memory[node] = np.array([1.0, 2.0]), np.array([[1.0, 0.0]])
    found = solved(graph, capacity=4.0)
    assert found.is_tight
    assert found.seconds == 16.0
    assert found.bound_s == pytest.approx(16.0, rel=GAP)
    assert found.byte_s == pytest.approx(1.0, rel=0.5)


@pytest.mark.parametrize("seeds", [range(n, n + 50) for n in range(0, 200, 50)], ids=str)
def test_what_does_not_fit_is_no_result_below_the_cutoff(seeds: range) -> None:
    """With a cutoff, a result fits or its bound is at least the cutoff."""
    beaten = 0
    for graph in map(drawn, seeds):
        capacity = float(np.median([graph.bytes_at(chosen).max() for chosen in choices(graph)]))
        fitting = [c for c in choices(graph) if (graph.bytes_at(c) <= capacity).all()]
        least = min((total(graph, chosen) for chosen in fitting), default=inf)
        found = solve_overlapped(graph, capacity, cutoff_s=least)
        assert found.bound_s <= least + 1e-6
        if isinstance(found, Solution) and found.bound_s < least:
            assert (graph.bytes_at(found.chosen) <= capacity).all()
        beaten += found.bound_s >= least - 1e-6
    assert beaten > 0


@pytest.mark.parametrize(("part", "most"), [(0.5, 40), (0.99, 5), (1.01, 0), (1.5, 0)])
def test_a_cutoff_only_leaves_out_what_takes_longer(part: float, most: int) -> None:
    """With memory for half of the choices: a cutoff above the least cost changes no result, one below gives
    proofs, and no bound is above the least cost."""
    proofs = 0
    for graph in map(drawn, range(60)):
        capacity = float(np.median([graph.bytes_at(chosen).max() for chosen in choices(graph)]))
        fitting = [c for c in choices(graph) if (graph.bytes_at(c) <= capacity).all()]
        least = min((total(graph, chosen) for chosen in fitting), default=inf)
        if least in (0.0, inf):
            continue
        whole = solve_overlapped(graph, capacity)
        found = solve_overlapped(graph, capacity, cutoff_s=part * least)
        assert found.bound_s <= least * (1 + 1e-5)
        assert found.free_s <= min(total(graph, chosen) for chosen in choices(graph)) * (1 + 1e-5)
        proofs += found.bound_s >= part * least
        if part > 1 and isinstance(found, Solution) and isinstance(whole, Solution):
            assert found.seconds <= max(whole.seconds, part * least) * (1 + GAP)
    assert (proofs > most) if most else (proofs == 0)


def test_a_question_without_a_wanted_choice_leaves_the_solver_as_it_was() -> None:
    usual = tb2.option.hbfs
    graph = drawn(0)
    least = sum(float(costs.min()) for costs in graph.costs)
    found = network.answer(Question(Network(graph.costs, graph.edges), 10.0, most_s=0.5 * least))
    assert found.chosen is None and least <= found.bound_s * (1 + 1e-6)
    assert found.bound_s <= min(graph.seconds(chosen) for chosen in choices(graph)) * (1 + 1e-6)
    hardest = Network(hard().costs, hard().edges)
    network.answer(Question(hardest, 10.0, most_s=1e-3))
    network._Solver(Question(hardest, 10.0), Reduced.of(hardest))
    assert tb2.option.hbfs == usual


def hard() -> Graph:
    """A graph of nine nodes, each beside each other one."""
    draw, nodes = np.random.default_rng(0), 9
    graph = Graph(points=2)
    for node in range(nodes):
        graph.add_node(4)
        graph.costs[node], graph.memory[node] = draw.random(4), draw.random((2, 4))
    for first, second in combinations(range(nodes), 2):
        graph.add_edge(first, second, draw.random((4, 4)))
    return graph


def solved(graph: Graph, capacity: float = inf) -> Solution:
    found = solve(graph, capacity)
    assert isinstance(found, Solution)
    return found


def test_edges_that_cost_almost_nothing_do_not_end_later_searches() -> None:
    """The gap in integers was above the cost that stands for an impossible choice."""
    graph = Graph(points=1)
    for node in range(2):
        graph.add_node(2)
        graph.costs[node] = np.array([1.0, 1.0 + 1e-9])
    graph.add_edge(0, 1, np.array([[1e-9, 0.0], [0.0, 1e-9]]))
    assert solved(graph).seconds == pytest.approx(2.0)
    assert solved(hard()).chosen == solved(hard()).chosen
