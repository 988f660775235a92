"""Towers in graphs of ops: found, put in order, and cut into stages beside each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardc.passes.pipeline.cuts.balance import Forward
from shardc.passes.pipeline.cuts.tower_cuts import TowerCuts
from shardc.passes.pipeline.cuts.towers import Run, Tower, Towers, stage_edges

CHAIN = [[], *([n] for n in range(7))]
PAIR = [[], [0], [1], [], [3], [4], [5, 2], [6]]
"""Ops 0 to 2, ops 3 to 5, and two that follow both; the second tower is the first operand."""
WOVEN = [[], [], [0], [1], [2], [3], [4, 5], [6]]


def forward(sources: list[list[int]], work: list[float]) -> Forward:
    found = Forward([], {})
    found.ops, found.sources, found.work = [None] * len(work), sources, work  # type: ignore[list-item]
    found.cost = [0.0, *itertools.accumulate(work)]
    found.crossing = [0] * (len(work) + 1)
    return found


def test_a_chain_and_its_skips_have_no_towers() -> None:
    skips = [[], [0], [1, 0], [2], [3, 1], [4, 0]]
    for sources in (CHAIN, skips):
        towers = Towers(sources, [1.0] * len(sources), stages=4)
        assert towers.found == [] and not towers.are_mixed and towers.longest_part() == 1


def test_towers_in_order() -> None:
    towers = Towers(PAIR, [1.0] * 8, stages=3)
    assert towers.found == [Tower(start=3, join=6)] and not towers.are_mixed
    assert towers.longest_part() == 5 / 8


def test_branches_with_less_work_than_a_stage_are_no_towers() -> None:
    assert Towers(PAIR, [1.0] * 8, stages=1).found == []
    assert Towers(PAIR, [0.1, 0.1, 0.1, *[1.0] * 5], stages=3).found == []


def test_mixed_towers_are_put_in_order() -> None:
    mixed = Towers(WOVEN, [1.0] * 8, stages=3)
    assert mixed.are_mixed
    order = mixed.order()
    assert order == [0, 2, 4, 1, 3, 5, 6, 7]
    place = {number: at for at, number in enumerate(order)}
    sources = [[place[n] for n in WOVEN[number]] for number in order]
    whole = Towers(sources, [1.0] * 8, stages=3)
    assert not whole.are_mixed and whole.found == [Tower(3, 6)]


@pytest.mark.parametrize("seed", range(20))
def test_an_order_keeps_operands_before_their_readers(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sources = [
        sorted({*draw.integers(0, n, min(n, 2)).tolist()}) if n and draw.random() < 0.9 else []
        for n in range(40)
    ]
    order = Towers(sources, [1.0] * 40, stages=4).order()
    assert sorted(order) == list(range(40))
    place = {number: at for at, number in enumerate(order)}
    assert all(place[source] < place[n] for n, read in enumerate(sources) for source in read)


def test_ops_that_nothing_reads_stay_beside_what_they_read() -> None:
    assert Towers([[], [0], [0], [1], [3]], [1.0] * 5, stages=2).order() == [0, 2, 1, 3, 4]


def test_equal_layers_count_once_in_a_branch_of_a_layer_and_all_in_a_tower() -> None:
    layers = [
        [],
        [0],
        [0],
        [1, 2],
        [3],
        [4],
    ]  # ops 0 to 3 are a layer with two branches, of which there are 9
    assert Towers(layers, [1.0] * 6, stages=8, runs=[Run(0, 4, 32.0)]).found == []
    tower = [[], [0], [], [1, 2], [3]]  # op 1 is a layer of 9 in the first tower
    towers = Towers(tower, [1.0, 1.0, 8.0, 1.0, 1.0], stages=3, runs=[Run(1, 2, 8.0)])
    assert towers.found == [Tower(2, 3)]
    assert towers.longest_part() == 12 / 20


@pytest.mark.parametrize(("stages", "cuts"), [(5, [2, 4, 6, 8]), (4, [2, 4, 7])])
def test_cuts_are_at_the_ends_of_towers(stages: int, cuts: list[int]) -> None:
    sources = [[], [0], [1], [2], [], [4], [5], [6], [3, 7], [8]]
    found = TowerCuts(forward(sources, [1.0] * 10), stages, 8).balanced()
    assert found == cuts
    assert (
        len({stage for edge in stage_edges(sources, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]) for stage in edge}) == 5
    )


def test_a_slower_stage_at_the_end_of_a_tower_must_pay_for_itself() -> None:
    """Towers of 5 and 3 ops and no more than a join: with few micro-batches a shorter path is worth more."""
    sources = [[], *([n] for n in range(4)), [], [5], [6], [7, 4]]
    few, many = (TowerCuts(forward(sources, [1.0] * 8 + [0.01]), 2, count) for count in (2, 64))
    for cutting in (few, many):
        every = [[p] for p in range(1, 9)]
        assert cutting.cost(cutting.balanced()) == pytest.approx(min(map(cutting.cost, every)), rel=0.03)
    assert many.balanced() == [4]


def test_named_cuts_move_to_the_ends_of_towers_and_others_do_not() -> None:
    cutting = TowerCuts(forward(PAIR, [1.0] * 8), 3, 4)
    assert cutting.beside([3, 7], [range(2, 4), range(5, 8)]) == [3, 6]
    assert cutting.beside([3, 8], [range(3, 4), range(8, 9)]) == [3, 8]  # nothing in the last stage
    chain = TowerCuts(forward(CHAIN, [1.0] * 8), 3, 4)
    assert chain.beside([3, 7], [range(2, 4), range(5, 8)]) == [3, 7]
