"""``auto``: under its cap, valid, and never worse than the best schedule that has a name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.cost.pipeline import StageCost, merge_stages
from shardc.cost.simulate import simulate
from shardc.passes.pipeline.checks.check_schedule import check_memory, check_schedule
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL
from shardc.passes.pipeline.schedules.synthesis import auto, best_schedule, named_choices

seconds = st.floats(0.1, 3).map(lambda x: round(x, 2))
stage_costs = st.builds(
    StageCost,
    seconds,
    seconds,
    seconds,
    st.floats(0, 1),
    activation_bytes=st.integers(1, 4),
    weight_bytes=st.sampled_from((0, 0.5, 1)),
)


@given(st.sampled_from((2, 4)), st.sampled_from((1, 2)), st.integers(1, 10), st.data())
@settings(max_examples=12, deadline=None)
def test_never_worse_than_the_best_named_one(
    ranks: int, per_rank: int, micro_batches: int, data: st.DataObject
) -> None:
    costs = data.draw(st.lists(stage_costs, min_size=ranks * per_rank, max_size=ranks * per_rank))
    named = [
        choice
        for stages in range(ranks, len(costs) + 1, ranks)
        for choice in named_choices(ranks, micro_batches, merge_stages(costs, stages), parameters_twice=True)
    ]
    memory_limit_bytes = data.draw(st.sampled_from(sorted(choice.peak_bytes for choice in named)))
    best = best_schedule(ranks, micro_batches, costs, memory_limit_bytes, parameters_twice=True)
    check_schedule(best.schedule, micro_batches)
    check_memory(best.schedule, best.costs, memory_limit_bytes + 1e-6)
    assert simulate(best.schedule, best.costs).step_s == best.timeline.step_s
    fitting = [choice for choice in named if choice.peak_bytes <= memory_limit_bytes]
    assert fitting
    assert best.timeline.step_s <= min(choice.timeline.step_s for choice in fitting)


def test_it_makes_what_has_no_name() -> None:
    """With the memory of 3 micro-batches on 4 ranks V-Half is the best named one, and not the best."""
    half = StageCost(0.5, 0.5, 0.5, activation_bytes=0.5, weight_bytes=0.25)
    named = [c for c in named_choices(4, 8, [half] * 8) if c.peak_bytes <= 3]
    best = best_schedule(4, 8, [half] * 8, memory_limit_bytes=3)
    assert min(c.timeline.step_s for c in named) == 28.5
    assert best.timeline.step_s <= 26.5 and best.peak_bytes <= 3


def test_the_cut_is_part_of_the_choice() -> None:
    """Transfers that take long are worth fewer stages; the caller may fix how many there are."""
    far = StageCost(0.5, 0.5, 0.5, transfer_s=4)
    near = StageCost(0.5, 0.5, 0.5)
    assert auto(4, 8, [far] * 8).stages == 4
    assert auto(4, 8, [near] * 8).stages == 8
    assert auto(4, 8, [near] * 8, stages=4).stages == 4


def test_the_same_each_time() -> None:
    costs = [StageCost(1, 1.5, 0.7, 0.2), StageCost(1.4, 1, 0.9, 0.1)] * 2
    assert auto(4, 6, costs, 5) == auto(4, 6, costs, 5)


def test_merging_adds_up() -> None:
    one, other = StageCost(1, 2, 3, 0.1, 5, 4), StageCost(2, 2, 2, 0.3, 1, 1)
    assert merge_stages([one, other], 1) == [StageCost(3, 4, 5, 0.3, 6, 5)]
    with pytest.raises(ValueError, match="3 stages cannot be merged into 2"):
        merge_stages([EQUAL] * 3, 2)
