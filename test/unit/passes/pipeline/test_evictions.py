"""Evictions of activations: as data, as a schedule places them, their memory and their time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardc.cost.memory import peak_activations
from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.diagnostics.passes.pipeline import BadEviction, BadTransfers
from shardc.dialects.pipe.action import Transfer
from shardc.dialects.pipe.eviction import Eviction
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.checks.check_schedule import check_schedule
from shardc.passes.pipeline.checks.check_transfers import Mode, check_transfers, peak_buffers
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.schedules.balance_activations import balance_activations, evict_within
from shardc.passes.pipeline.schedules.by_name import schedule as by_name

MODES: tuple[Mode, ...] = ("blocking", "batched", "buffered", "paired")
SIZES = [(4, 4), (4, 8), (5, 20), (7, 14), (8, 32), (16, 16)]


def held(schedule: Schedule) -> list[float]:
    return peak_activations(schedule, [1.0] * schedule.stages)


def test_an_eviction_is_read_as_it_is_written() -> None:
    eviction = Eviction(0, 3, 7, 2, 9)
    assert str(eviction) == "0EVICT3 to 7, 2 until 9"
    assert Eviction.parse(str(eviction)) == eviction
    with pytest.raises(BadEviction, match="the eviction 0EVICT3 is not written as one"):
        Eviction.parse("0EVICT3")


@pytest.mark.parametrize(("ranks", "micro_batches"), SIZES)
def test_ranks_hold_as_many_as_in_the_paper(ranks: int, micro_batches: int) -> None:
    """Kim et al. 2023: (p + 2) / 2 micro-batches, where 1F1B's first rank holds p."""
    plain = by_name("1f1b", ranks, micro_batches)
    balanced = balance_activations(plain)
    assert balanced.orders == plain.orders
    assert held(plain) == [float(ranks - rank) for rank in range(ranks)]
    assert max(held(balanced)) == (ranks + 3) // 2


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h1", "fill-drain"])
def test_they_run_on_every_transport(name: str) -> None:
    per_rank = 2 if name == "interleaved" else 1
    plain = by_name(name, 6 * per_rank, 12, ranks=6)
    kept = [3.0] * per_rank + [1.0] * 5 * per_rank  # the first stage keeps more
    schedule = evict_within(plain, kept, [0.0] * 6, 0.8 * max(peak_activations(plain, kept)))
    assert schedule.evictions
    check_schedule(schedule)
    steps = place_transfers(schedule)
    for mode in MODES:
        check_transfers(schedule, steps, mode)
    assert peak_buffers(schedule, steps)[-1] > peak_buffers(plain, place_transfers(plain))[-1]


def test_equal_ranks_evict_nothing() -> None:
    for name in ("zb-h1", "fill-drain"):
        assert not balance_activations(by_name(name, 8, 16)).evictions


def test_a_limit_evicts_no_more_than_it_needs() -> None:
    plain = by_name("1f1b", 8, 32)
    counts = []
    for limit in (8.0, 7.0, 6.0, 5.0):
        found = evict_within(plain, [1.0] * 8, [0.0] * 8, limit)
        assert max(held(found)) <= limit
        counts.append(len(found.evictions))
    assert counts[0] == 0 and counts == sorted(counts) and len(set(counts)) == 4
    assert max(held(evict_within(plain, [1.0] * 8, [0.0] * 8, 4.0))) == 5  # the lowest, for the error


def test_bytes_of_state_and_of_stages_count() -> None:
    """The last rank, whose parameters fill it, keeps nothing for others."""
    plain, state = by_name("1f1b", 4, 8), [0.0, 0.0, 0.0, 3.0]
    full = evict_within(plain, [1.0] * 4, state, 3.5)
    assert all(eviction.rank != 3 for eviction in full.evictions)
    assert evict_within(plain, [1.0] * 4, [0.0] * 4, 3.0).evictions


def test_activations_count_on_both_ranks() -> None:
    plain = by_name("1f1b", 4, 8)
    one = replace(plain, evictions=(Eviction(0, 1, 3, 0, 5),))
    before, after = held(plain), held(one)
    assert after[3] == before[3] + 1 and after[1:3] == before[1:3]
    assert after[0] == 4  # other micro-batches reach the peak, too


@pytest.mark.parametrize("name", ["1f1b", "interleaved"])
def test_short_evictions_are_hidden_and_long_ones_are_not(name: str) -> None:
    per_rank = 2 if name == "interleaved" else 1
    plain = by_name(name, 8 * per_rank, 32, ranks=8)
    balanced = balance_activations(plain)

    def step_s(schedule: Schedule, eviction_s: float) -> float:
        return simulate(schedule, [StageCost(1, 1, 1, eviction_s=eviction_s)] * 8 * per_rank).step_s

    alone_s = step_s(plain, 0.0)
    assert step_s(balanced, 0.0) == step_s(balanced, 0.5) == alone_s == step_s(plain, 9.0)
    assert alone_s < step_s(balanced, 2.0) < step_s(balanced, 4.0)


RIGHT = Eviction(0, 1, 3, 0, 5)
WRONG = {
    "of micro-batch 9 in stage 0, which no rank runs": RIGHT._replace(micro_batch=9),
    "goes from rank 0 of 4 to 0": RIGHT._replace(rank=0),
    "goes from rank 0 of 4 to 4": RIGHT._replace(rank=4),
    "leaves 0 actions between forward and backward, not 2": Eviction(3, 1, 0, 2, 3),
    "returns the activations before it receives them": RIGHT._replace(accepted=6),
    "or after its last action": RIGHT._replace(returned=99),
    "or another one deadlocks": RIGHT._replace(accepted=16, returned=16),
}


@pytest.mark.parametrize("problem", WRONG)
def test_evictions_that_cannot_run_are_refused(problem: str) -> None:
    plain = by_name("1f1b", 4, 8)
    check_schedule(replace(plain, evictions=(RIGHT,)))
    with pytest.raises(BadEviction, match=problem):
        check_schedule(replace(plain, evictions=(WRONG[problem],)))
    with pytest.raises(BadEviction, match="is the second one of these activations"):
        check_schedule(replace(plain, evictions=(RIGHT, RIGHT)))


def test_schedules_that_keep_no_whole_micro_batches_are_refused() -> None:
    for name in ("terapipe", "pipedream", "chimera"):
        with pytest.raises(BadEviction, match=f"one route and one update, which {name} has not"):
            check_schedule(replace(by_name(name, 4, 8), evictions=(RIGHT,)))


@pytest.mark.parametrize("kind", ["EVICT", "ACCEPT", "RETURN", "LOAD"])
def test_a_missing_transfer_is_named(kind: str) -> None:
    schedule = replace(by_name("1f1b", 4, 8), evictions=(RIGHT,))
    left_out = Transfer(0, kind, 1)  # type: ignore[arg-type]
    steps = tuple(tuple(s for s in row if s != left_out) for row in place_transfers(schedule))
    with pytest.raises(BadTransfers):
        check_transfers(schedule, steps)
