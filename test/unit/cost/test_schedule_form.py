"""Closed forms of schedules equal what the simulator computes for equal stages: time, messages and memory."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from shardc.cost.memory import peak_activations
from shardc.cost.pipeline import StageCost
from shardc.cost.schedule_form import FORMS, ONE_F_ONE_B, ScheduleForm, form_of
from shardc.cost.simulate import simulate
from shardc.cost.timeline import Timeline
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.stage_graph import Reads, StageGraph
from shardc.passes.pipeline.schedules.balance_activations import balance_activations
from shardc.passes.pipeline.schedules.by_name import schedule

RANKS, MICRO_BATCHES = (1, 2, 3, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
TIMES = ((1.0, 1.0, 1.0), (1.0, 1.0, 0.75), (1.0, 2.0, 1.0), (2.0, 2.5, 0.5))
"""Seconds of F, I and W of a micro-batch on a rank. W takes no longer than F."""
INTERLEAVED = (2, 3, 4)
ALL = [form for form in FORMS if form.per_rank == 1] + [ScheduleForm("interleaved", v) for v in INTERLEAVED]
ALL += [ScheduleForm("interleaved", v, balances=True) for v in INTERLEAVED]

GRAPHS: list[Reads] = [
    ((), (), (0, 1)),
    ((), (0,), (), (2,), (1, 3)),
    ((), (0,), (), (1, 2), (3,)),
    ((), (), (), (0, 1, 2)),
]
"""Towers beside each other, of equal or different length, with a joint part."""


def sizes_of(form: ScheduleForm) -> list[tuple[int, int]]:
    pairs = [(ranks, count) for ranks in RANKS for count in MICRO_BATCHES]
    return [pair for pair in pairs if form.allows(*pair, layers=pair[0] * form.per_rank)]


def simulated(
    form: ScheduleForm,
    ranks: int,
    micro_batches: int,
    times: tuple[float, float, float],
    transfer_s: float = 0.0,
) -> tuple[Schedule, Timeline]:
    cost = StageCost(*(seconds / form.per_rank for seconds in times), transfer_s=transfer_s)
    costs = [cost] * (ranks * form.per_rank)
    made = made_by(form, ranks, micro_batches)
    return made, simulate(made, costs)


@cache
def made_by(form: ScheduleForm, ranks: int, micro_batches: int) -> Schedule:
    made = schedule(form.name, ranks * form.per_rank, micro_batches, ranks=ranks)
    return balance_activations(made) if form.balances else made


@pytest.mark.parametrize("form", ALL, ids=str)
def test_a_step_takes_as_long_as_simulated(form: ScheduleForm) -> None:
    for ranks, count in sizes_of(form):
        for times in TIMES:
            _, timeline = simulated(form, ranks, count, times)
            first, inputs, weights = times
            foretold = (first + inputs) * form.slots(ranks, count)
            foretold += weights * form.weight_slots(ranks, count)
            if form.balances and times != TIMES[0]:
                assert timeline.step_s >= foretold - 1e-9, (ranks, count, times)
            else:
                assert timeline.step_s == pytest.approx(foretold), (ranks, count, times)


@pytest.mark.parametrize("form", [form for form in ALL if not form.balances], ids=str)
def test_a_rank_holds_as_many_micro_batches_as_simulated(form: ScheduleForm) -> None:
    for ranks, count in sizes_of(form):
        made, _ = simulated(form, ranks, count, TIMES[0])
        held = max(peak_activations(made, [1 / form.per_rank] * (ranks * form.per_rank)))
        assert held == pytest.approx(form.in_flight(ranks, count)), (ranks, count)


@pytest.mark.parametrize("form", [form for form in ALL if form.balances], ids=str)
def test_balanced_ranks_hold_at_most_one_stage_more(form: ScheduleForm) -> None:
    sizes = sizes_of(form)
    assert {ranks for ranks, _ in sizes} == {4, 8}
    for ranks, count in sizes:
        plain, _ = simulated(replace(form, balances=False), ranks, count, TIMES[0])
        made, _ = simulated(form, ranks, count, TIMES[0])
        kept = [1 / form.per_rank] * (ranks * form.per_rank)
        least, held = form.in_flight(ranks, count), max(peak_activations(made, kept))
        assert held < max(peak_activations(plain, kept))
        assert least <= held + 1e-9 <= least + 1 / form.per_rank + 2e-9, (ranks, count)


@pytest.mark.parametrize("transfer_s", [0.01, 0.3])
@pytest.mark.parametrize("form", ALL, ids=str)
def test_messages_add_as_much_as_simulated(form: ScheduleForm, transfer_s: float) -> None:
    """Short messages add exactly as much; long ones, which take more than a slot of a stage, no less."""
    for ranks, count in sizes_of(form):
        for times in TIMES:
            alone = simulated(replace(form, balances=False), ranks, count, times)[1].step_s
            sent = simulated(form, ranks, count, times, transfer_s)[1].step_s
            foretold = transfer_s * form.sends(ranks, count)
            assert sent - alone >= foretold - 1e-9, (ranks, count, times)
            if transfer_s < 0.1 and times == TIMES[0]:
                assert sent - alone == pytest.approx(foretold), (ranks, count)


def test_weights_that_take_longer_take_no_less() -> None:
    """The closed form of ZB-H1 is then a lower bound."""
    form = form_of("zb-h1")
    assert form is not None
    for ranks, count in sizes_of(form):
        _, timeline = simulated(form, ranks, count, (1.0, 1.0, 1.5))
        foretold = 2.0 * form.slots(ranks, count) + 1.5 * form.weight_slots(ranks, count)
        assert timeline.step_s >= foretold - 1e-9
        assert (timeline.step_s > foretold + 1e-9) == (ranks > 1 and count > 1)


def test_the_last_rank_holds_back_as_many_weights_as_simulated() -> None:
    form = form_of("zb-h1")
    assert form is not None
    for ranks, count in sizes_of(form):
        made, _ = simulated(form, ranks, count, TIMES[0])
        left = most = 0
        for action in made.orders[-1]:
            left += {"F": 0, "I": 1, "W": -1}[action.kind]
            most = max(most, left)
        assert most == form.pending(ranks, count), (ranks, count)


def test_forms_by_name() -> None:
    assert form_of("1f1b") == ONE_F_ONE_B
    assert form_of("interleaved") == form_of("interleaved", 2) == ScheduleForm("interleaved", 2)
    assert form_of("interleaved", 3) == ScheduleForm("interleaved", 3)
    assert form_of("v-half") is None
    assert str(form_of("interleaved", 4)) == "interleaved, 4 stages a rank"
    assert str(form_of("1f1b", balances=True)) == "1f1b, balanced activations"


def test_some_schedules_are_never_slower_than_others() -> None:
    one, two, four, split, balanced, *_ = FORMS
    for ranks, count in ((2, 4), (4, 16)):
        assert split.is_no_slower(one, ranks, count)
        assert four.is_no_slower(two, ranks, count) and two.is_no_slower(one, ranks, count)
        assert not one.is_no_slower(two, ranks, count)
        assert one.is_no_slower(balanced, ranks, count) and not balanced.is_no_slower(one, ranks, count)
        assert not four.is_no_slower(split, ranks, count) and not split.is_no_slower(four, ranks, count)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("reads", GRAPHS)
def test_stages_that_are_no_chain_take_no_less(name: str, reads: Reads) -> None:
    """Figures of a graph are bounds: the time of its longest path, and what the first stage on it holds."""
    ranks, graph = len(reads), StageGraph(reads)
    known = form_of(name)
    assert known is not None
    form = replace(known, path=graph.longest / ranks)
    assert form == known and form.longest(ranks) == graph.longest
    for count in MICRO_BATCHES:
        for first, inputs, weights in TIMES:
            cost = StageCost(first, inputs, weights, weight_bytes=1.0)
            made = schedule(name, ranks, count, reads=reads)
            timeline = simulate(made, [cost] * ranks)
            least_s = (first + inputs) * form.slots(ranks, count) + weights * form.weight_slots(ranks, count)
            assert timeline.step_s >= least_s * (1 - 1e-9)
            chain_s = simulate(schedule(name, ranks, count), [cost] * ranks).step_s
            assert timeline.step_s < chain_s or name == "zb-h1"
            assert max(peak_activations(made, [1.0] * ranks)) >= form.in_flight(ranks, count)


def test_a_part_of_the_work_is_a_whole_number_of_stages() -> None:
    form = ScheduleForm(path=0.6)
    assert [form.longest(ranks) for ranks in (1, 2, 4, 5, 10)] == [1, 2, 3, 3, 6]
    assert (form.slots(5, 8), form.in_flight(5, 8), form.in_flight(5, 2)) == (10.0, 3, 2)
    assert 0 < form.sends(5, 8) < ONE_F_ONE_B.sends(5, 8)
