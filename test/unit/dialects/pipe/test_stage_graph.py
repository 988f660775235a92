"""Graphs of stages: the fewest reads, hops of values, paths."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardc.dialects.pipe.stage_graph import StageGraph

PAIRS = StageGraph(((), (0,), (), (2,), (1, 3)))
"""Two towers of two stages each, and a stage that joins them."""


@st.composite
def edges(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    stages = draw(st.integers(1, 7))
    pairs = list(itertools.combinations(range(stages), 2))
    return stages, draw(st.lists(st.sampled_from(pairs))) if pairs else []


def reach(stages: int, pairs: list[tuple[int, int]]) -> list[set[int]]:
    """What each stage needs, by repeated steps along the pairs."""
    found = [{stage} for stage in range(stages)]
    for _ in range(stages):
        for maker, reader in pairs:
            found[reader] |= found[maker]
    return found


@given(edges())
def test_reads_are_the_fewest_that_reach_the_same(given: tuple[int, list[tuple[int, int]]]) -> None:
    stages, pairs = given
    graph = StageGraph.of(stages, pairs)
    kept = [(other, stage) for stage, reads in enumerate(graph.reads) for other in reads]
    assert [*map(set, graph.before)] == reach(stages, pairs) == reach(stages, kept)
    for edge in kept:
        assert reach(stages, [other for other in kept if other != edge]) != reach(stages, pairs)


@given(edges())
def test_values_hop_along_reads(given: tuple[int, list[tuple[int, int]]]) -> None:
    graph = StageGraph.of(*given)
    for maker, reader in given[1]:
        for hops, ends in (
            (graph.down(maker, reader), (maker, reader)),
            (graph.up(reader, maker), (reader, maker)),
        ):
            assert (hops[-1][0], hops[0][1]) == ends
            assert all(later[0] == earlier[1] for later, earlier in itertools.pairwise(hops))
            assert all(min(hop) in graph.reads[max(hop)] for hop in hops)
    for stage, behind in enumerate(graph.behind):
        assert behind == max((1 + graph.behind[other] for other in graph.readers[stage]), default=0)


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_a_chain(stages: int) -> None:
    graph = StageGraph.chain(stages)
    assert graph.is_chain and graph.longest == stages
    assert StageGraph.of(stages, itertools.combinations(range(stages), 2)) == graph
    assert graph.between({0, stages - 1}) == {*range(stages)}


def test_towers() -> None:
    assert (PAIRS.longest, PAIRS.behind) == (3, (2, 1, 2, 1, 0))
    assert PAIRS.readers == ((1,), (4,), (3,), (4,), ())
    assert PAIRS.between({0, 4}) == {0, 1, 4} and PAIRS.between({1, 3}) == {1, 3}
    assert PAIRS.down(0, 4) == [(1, 4), (0, 1)] and PAIRS.up(4, 2) == [(3, 2), (4, 3)]
