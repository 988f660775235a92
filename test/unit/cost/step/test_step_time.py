"""The time of a step from its work: bubbles, the host, and its report."""

from dataclasses import replace

import pytest

from shardc.cost.ops import DeviceRates, Product
from shardc.cost.step.costs import Costs
from shardc.cost.step.step_time import BUBBLE, StepTime, step_time_of
from shardc.cost.step.streams import HOST
from shardc.cost.step.work import Item, Section, StageWork, StepWork
from shardc.dialects.dist.axis import Axis
from shardc.passes.pipeline.schedules.bidirectional import chimera
from shardc.passes.pipeline.schedules.one_f_one_b import interleaved, one_f_one_b

RATES = DeviceRates(1e12, 1e12, 1e9, stream_reached=1.0)
COSTS = Costs(RATES, lambda item: item.moved_bytes / 1e8)
"""Passes over memory at 1 GB/s, collectives at 0.1 GB/s."""


def one_pass(seconds: float, phase: str = "forward") -> Item:
    return Item("memory", phase, moved_bytes=seconds * 1e9)


def stage(forward_s: float, backward_s: float) -> StageWork:
    return StageWork({"F": (one_pass(forward_s),), "B": (one_pass(backward_s, "backward"),)}, 1e8)


def pipeline(stages: int) -> StepWork:
    return StepWork((stage(1.0, 2.0),) * stages, ((),) * stages)


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 8), (4, 4)])
def test_equal_stages_have_the_bubble_of_1f1b(ranks: int, micro_batches: int) -> None:
    time = step_time_of(pipeline(ranks), COSTS, one_f_one_b(ranks, micro_batches))
    assert time.seconds == pytest.approx(3.0 * (micro_batches + ranks - 1))
    assert time.causes[BUBBLE] == pytest.approx(3.0 * (ranks - 1))
    assert sum(time.causes.values()) == pytest.approx(time.seconds)


def test_several_stages_a_rank_have_a_smaller_bubble() -> None:
    plain = step_time_of(StepWork((stage(2.0, 4.0),) * 2, ((), ())), COSTS, one_f_one_b(2, 4))
    time = step_time_of(StepWork((stage(1.0, 2.0),) * 4, ((), ())), COSTS, interleaved(2, 4, 2))
    assert time.causes[BUBBLE] == pytest.approx(plain.causes[BUBBLE] / 2)


def test_copies_of_a_stage_cost_the_same() -> None:
    time = step_time_of(pipeline(2), COSTS, chimera(2, 4))
    assert 12.0 <= time.seconds < 20.0


def test_transfers_that_are_waited_for_make_the_step_longer() -> None:
    slow = replace(COSTS, transfer_s=lambda size_bytes: size_bytes / 1e9)
    hidden = step_time_of(pipeline(2), slow, one_f_one_b(2, 8)).seconds
    waited = step_time_of(pipeline(2), replace(slow, overlap=False), one_f_one_b(2, 8)).seconds
    assert step_time_of(pipeline(2), COSTS, one_f_one_b(2, 8)).seconds < hidden < waited


def test_reductions_run_once_a_step_behind_the_last_backward() -> None:
    reduction = Item("collective", "backward", moved_bytes=5e8, collective="all_reduce", axes=(DATA,))
    work = StageWork({**stage(1.0, 2.0).actions, "REDUCE_GRAD": (reduction,)})
    time = step_time_of(StepWork((work,) * 2, ((), ())), COSTS, one_f_one_b(2, 4))
    assert time.seconds == pytest.approx(3.0 * 5 + 5.0)
    assert time.causes["data"] == pytest.approx(5.0)


DATA = Axis("data", 1, 4)


def test_a_loop_counts_as_often_as_it_runs() -> None:
    work = StepWork((), ((Section((one_pass(2.0),), times=3), Section((one_pass(1.0, "optimizer"),))),))
    time = step_time_of(work, COSTS)
    assert time.seconds == pytest.approx(7.0)
    assert time.causes == pytest.approx({"memory": 6.0, "optimizer": 1.0})


def test_a_slow_host_bounds_each_micro_batch() -> None:
    time = step_time_of(pipeline(2), replace(COSTS, call_s=50.0), one_f_one_b(2, 4))
    assert time.seconds == pytest.approx(100.0 * 5, rel=0.01)
    assert time.causes[HOST] > 0.9 * 4 * 100.0


def test_utilization_leaves_recomputation_out() -> None:
    product = Product(1, 1000, 1000, 1000)
    item = Item("matmul", "forward", flops=product.flops, product=product)
    again = replace(item, phase="recompute")
    time = step_time_of(StepWork((), ((Section((item, again)),),)), COSTS)
    assert (time.flops, time.again_flops) == (4e9, 2e9)
    assert time.model_flop_utilization(RATES) == pytest.approx(2e9 / time.seconds / 1e12)


def test_the_report_has_the_largest_cause_first() -> None:
    lines = StepTime(2.0, {"data": 0.5, "matmul": 1.5}).render()
    assert lines[0] == "step: 2000.0 ms"
    assert [line.split()[0] for line in lines[2:]] == ["matmul", "data"]
    assert "75.0%" in lines[2]
