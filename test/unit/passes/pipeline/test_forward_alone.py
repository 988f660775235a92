"""The forwards of a schedule are a schedule by themselves, on the same ranks."""

from __future__ import annotations

import pytest

from shardc.cost.simulate import simulate
from shardc.diagnostics.passes.pipeline import BadSchedule
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.checks.check_schedule import check_schedule
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.forward_alone import forward_alone
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL
from shardc.passes.pipeline.schedules.registry import SCHEDULES

RANKS, MICRO_BATCHES = 4, 8


def made(name: str) -> Schedule:
    return by_name(name, SCHEDULES[name].fewest * RANKS, MICRO_BATCHES, ranks=RANKS)


@pytest.mark.parametrize("name", SCHEDULES)
def test_forwards_run_without_the_rest_where_they_were(name: str) -> None:
    whole, found = made(name), forward_alone(made(name))
    check_schedule(found, MICRO_BATCHES, trains=False)
    assert found.rank_of == whole.rank_of and found.routes == whole.routes
    assert {action.kind for action in found.actions()} == {"F"}
    assert found.slices == 1 and not found.changes_mathematics
    assert forward_alone(found) == found


def test_a_training_step_refuses_them() -> None:
    with pytest.raises(BadSchedule, match="0B0 is missing"):
        check_schedule(forward_alone(made("1f1b")))


WAYS = {"1f1b": 1, "zb-h1": 1, "interleaved": 1, "hanayo": 2, "zb-v": 2, "v-half": 2, "v-min": 2}
"""How often the ranks wait for one another: the last of a V has its first micro-batch late, and its results
go all the way back.
"""


@pytest.mark.parametrize("name", WAYS)
def test_ranks_wait_for_the_first_and_the_last_micro_batch_alone(name: str) -> None:
    found = forward_alone(made(name))
    played = simulate(found, [EQUAL] * found.stages)
    assert played.step_s == MICRO_BATCHES * found.stages // RANKS + WAYS[name] * (RANKS - 1)
