"""The time of unequal shares: each place along the axis on its own kind of device."""

from __future__ import annotations

import pytest

from shardc.cost.cluster.cluster import Cluster, Library
from shardc.cost.cluster.device import Device, Peaks
from shardc.cost.cluster.level import Level
from shardc.cost.step.on_cluster import costs_on, fastest_costs_on, step_time_on
from shardc.cost.step.work import Item, Section, StageWork, StepWork
from shardc.passes.pipeline.schedules.by_name import schedule


def mixed() -> Cluster:
    """A device of 3 GB/s and one of 1 GB/s."""
    kinds = [
        Device(f"of-{rate}", 1e9, "", 1, Peaks(f32=rate * 1e9), rate * 1e9, launch_s=0.0) for rate in (3, 1)
    ]
    link = Level("link", 2, bandwidth_bytes_s=1e9, latency_s=0.0)
    return Cluster("mixed", tuple(kinds), (link,), Library("gloo", 0.0))


def work(*turns: int) -> StepWork:
    one = (Item("memory", "forward", moved_bytes=1e9),)
    return StepWork((), tuple((Section(one, times),) for times in turns), "data")


def test_shares_as_the_devices_balance() -> None:
    time = step_time_on(mixed(), {"data": 2}, work(3, 1))
    fast, slow = time.places["data 0 (of-3)"], time.places["data 1 (of-1)"]
    assert fast == pytest.approx(slow) and time.seconds == max(fast, slow)


def test_the_step_waits_for_the_last() -> None:
    time, even = (
        step_time_on(mixed(), {"data": 2}, work(1, 3)),
        step_time_on(mixed(), {"data": 2}, work(3, 1)),
    )
    assert time.seconds == time.places["data 1 (of-1)"] == pytest.approx(3 * even.seconds)
    assert "data 1 (of-1)" in "\n".join(time.render())


def stage(size_bytes: float) -> StageWork:
    kinds = (("F", "forward"), ("B", "backward"))
    return StageWork({kind: (Item("memory", phase, moved_bytes=size_bytes),) for kind, phase in kinds})


def test_stages_run_on_their_own_kinds_of_device() -> None:
    """Stages of 3 GB and 1 GB take equally long on devices of 3 GB/s and 1 GB/s."""
    order, mesh = schedule("1f1b", 2, 8), {"pipe": 2}
    even = step_time_on(mixed(), mesh, StepWork((stage(3e9), stage(1e9)), ((), ())), "pipe", order)
    one = step_time_on(mixed(), mesh, StepWork((stage(1e9), stage(1e9)), ((), ())), "pipe", order)
    turned = step_time_on(mixed(), mesh, StepWork((stage(1e9), stage(3e9)), ((), ())), "pipe", order)
    assert even.causes["bubble"] / even.seconds == pytest.approx(1 / 9)
    assert one.seconds < even.seconds < turned.seconds
    assert turned.seconds > 2.8 * one.seconds


def test_the_fastest_costs_are_below_those_of_each_rank() -> None:
    costs, fastest = costs_on(mixed(), {"pipe": 2}, "pipe"), fastest_costs_on(mixed(), {"pipe": 2}, "pipe")
    (item,) = stage(1e9).actions["F"]
    assert [costs.of_rank(rank).seconds(item) > 0 for rank in range(2)] == [True, True]
    assert fastest.seconds(item) == min(costs.of_rank(rank).seconds(item) for rank in range(2))
    assert costs.of_rank(1).seconds(item) == pytest.approx(3 * costs.of_rank(0).seconds(item))
