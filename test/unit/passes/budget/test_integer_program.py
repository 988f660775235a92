"""The integer program of a memory budget against all choices of a few small graphs."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from shardc.passes.budget.integer_program import BudgetProgram
from shardc.passes.budget.step_graph import MOST_STARTS, ForwardOp, StepGraph, Storage

Figures = tuple[int, int]
"""Bytes at the peak, and work that is done twice."""


def chain_graph(sizes: list[int], works: list[int], read: set[int]) -> StepGraph:
    """Ops at positions 0 to n-1, each of which reads the one before. Backward at ``2 n - 1 - i`` reads what
    op ``i`` made, if ``read`` has it, and makes 3 bytes that the next one reads.
    """
    n = len(sizes)
    ops = {i: ForwardOp(works[i], i) for i in range(n)}
    storages = tuple(
        Storage(
            i,
            sizes[i],
            min(i + 1, n - 1),
            (2 * n - 1 - i, 2 * n - 1 - i) if i in read else None,
            frozenset({i + 1} if i + 1 < n else ()),
        )
        for i in range(n)
    )
    base = [sizes[t] + (sizes[t - 1] if t else 0) if t < n else 6 for t in range(2 * n)]
    return StepGraph(ops, storages, tuple(base))


def simulated(graph: StepGraph, again: set[int]) -> Figures:
    """The figures of one choice, by its definition."""
    live = list(graph.base_bytes)
    starts: dict[int, int] = {}
    work = 0.0
    for op in reversed(graph.ops):
        (storage,) = graph.made_by[op]
        needs = [starts[r] for r in storage.readers if r in starts]
        if storage.backward:
            needs.append(storage.backward[0])
        if not needs:
            continue
        first, last = min(needs), graph.last_use(storage)
        if op in again:
            starts[op] = first
            work += graph.ops[op].work_bytes
        else:
            first = storage.forward_end + 1
        for position in range(first, last + 1):
            live[position] += storage.size_bytes
    return max(live), int(work)


GRAPHS = {
    "a chain read whole": chain_graph([8, 8, 8, 8, 8], [1, 1, 1, 1, 1], {0, 1, 2, 3, 4}),
    "large and cheap": chain_graph([10, 40, 10, 40, 10], [90, 2, 90, 2, 90], {0, 1, 2, 3, 4}),
    "one is not read": chain_graph([10, 40, 20, 40, 10], [5, 7, 3, 2, 4], {1, 3, 4}),
    "none is free": chain_graph([9, 30, 21, 12, 33], [4, 9, 2, 8, 5], {0, 2, 3}),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_least_work_of_all_choices_within_each_peak(graph: StepGraph) -> None:
    choices = list(chain.from_iterable(combinations(graph.ops, k) for k in range(len(graph.ops) + 1)))
    figures = [simulated(graph, set(choice)) for choice in choices]
    program = BudgetProgram(graph)
    assert program.kept().peak_bytes == pytest.approx(simulated(graph, set())[0])
    least = min(figures)
    assert program.least().peak_bytes == pytest.approx(least[0], rel=1e-5)
    for peak in sorted({peak for peak, _ in figures}):
        found = program.within(peak)
        best = min(work for bytes_, work in figures if bytes_ <= peak)
        assert found.work_bytes == pytest.approx(best, rel=1e-2)
        made, work = simulated(graph, set(found.again))
        assert made <= peak and work == best


def test_what_is_kept_is_never_computed_again() -> None:
    graph = GRAPHS["large and cheap"]
    ops = {op: ForwardOp(known.work_bytes, known.kind, op == 1) for op, known in graph.ops.items()}
    program = BudgetProgram(StepGraph(ops, graph.storages, graph.base_bytes))
    assert 1 not in program.least().again
    assert program.kept().peak_bytes == pytest.approx(simulated(graph, set())[0])


def test_ops_of_one_kind_are_decided_together() -> None:
    # the middle ones alone have as many starts as each other
    graph = chain_graph([8, 8, 8, 8], [1, 1, 1, 1], {0, 1, 2, 3})
    starts = [len(graph.starts[op]) for op in graph.ops]
    assert starts == [4, 3, 2, 1]
    alike = StepGraph(
        {op: ForwardOp(1, "all") for op in graph.ops},
        tuple(Storage(s.op, s.size_bytes, s.forward_end, s.backward) for s in graph.storages),
        graph.base_bytes,
    )
    program = BudgetProgram(alike)
    assert program.least().again in (frozenset(), frozenset(graph.ops))
    assert program.within(program.kept().peak_bytes).again == frozenset()


def test_starts_are_few() -> None:
    n = 3 * MOST_STARTS
    graph = chain_graph([1] * n, [1] * n, set(range(n)))
    assert len(graph.starts[0]) <= MOST_STARTS
    assert graph.starts[0][0] == n
