"""Exposed parts of collectives add up to the time for which a step waits."""

from __future__ import annotations

import pytest

from shardc.cost.ops import DeviceRates
from shardc.cost.step.costs import Costs
from shardc.cost.step.exposed import exposed_s
from shardc.cost.step.spans import spans_of_step
from shardc.cost.step.step_time import step_time_of
from shardc.cost.step.work import Item, Section, StepWork
from shardc.dialects.dist.axis import Axis

DATA = (Axis("data", 1, 8),)


def kernel(*needs: int) -> Item:
    """A second's pass over memory."""
    return Item("memory", "forward", needs, moved_bytes=1e9)


def gather(seconds: float, *needs: int) -> Item:
    return Item("collective", "forward", needs, seconds, collective="all_gather", axes=DATA)


def costs(overlap: bool) -> Costs:
    rates = DeviceRates(1e12, 1e12, 1e9, units=1, cache_bytes=0.0)
    return Costs(rates, lambda item: item.moved_bytes, overlap=overlap)


ITEMS = (kernel(), gather(1.0), gather(3.0), kernel(), kernel(1), kernel(2), gather(2.0, 5))
"""The first gather is hidden; for part of the second, and for the third, kernels wait."""


@pytest.mark.parametrize("overlap", [True, False])
def test_waits_add_up(overlap: bool) -> None:
    work = StepWork((), ((Section(ITEMS, 2), Section(ITEMS)),))
    (rank,) = spans_of_step(work, costs(overlap))
    time = step_time_of(work, costs(overlap))
    assert sum(exposed_s(rank)) == pytest.approx(time.causes["data"])
    assert rank.end_s == pytest.approx(time.seconds)


def test_each_collective_by_itself() -> None:
    one_s = costs(True).seconds(kernel())
    (rank,) = spans_of_step(StepWork((), ((Section(ITEMS),),)), costs(True))
    found = exposed_s(rank)
    assert found[1] == 0 and found[6] == pytest.approx(2.0)
    assert found[2] == pytest.approx(4.0 - 3 * one_s) and sum(found) == pytest.approx(found[2] + 2.0)
    assert sum(exposed_s(spans_of_step(StepWork((), ((Section(ITEMS),),)), costs(False))[0])) == 6.0
