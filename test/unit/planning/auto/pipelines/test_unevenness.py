"""Unequal stages: a step takes one micro-batch in all stages, and each other in the slowest one."""

from __future__ import annotations

import itertools

import pytest

from shardc.cost.pipeline import StageCost
from shardc.cost.schedule_form import FORMS, ONE_F_ONE_B, ScheduleForm
from shardc.cost.simulate import simulate
from shardc.passes.pipeline.schedules.by_name import schedule
from shardc.planning.auto.pipelines.unevenness import Unevenness
from shardc.planning.auto.space import Choice

WORK = (3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Into four stages: 3, 2, 2 and 2."""
SPLIT = next(form for form in FORMS if form.is_split)


def choice(stages: int, micro_batches: int, form: ScheduleForm = ONE_F_ONE_B) -> Choice:
    return Choice(stages, micro_batches, (("pipe", stages), ("nvlink", 8 // stages)), form=form)


@pytest.mark.parametrize("form", [ONE_F_ONE_B, SPLIT], ids=str)
@pytest.mark.parametrize("stages", sorted({*itertools.permutations((3.0, 2.0, 2.0, 2.0))}))
@pytest.mark.parametrize("micro_batches", [6, 8, 16])
def test_a_step_takes_at_least_as_long(
    form: ScheduleForm, stages: tuple[float, ...], micro_batches: int
) -> None:
    """Wherever the slowest stage is; exactly as long under 1F1B if it is the first."""
    timeline = simulate(schedule(form.name, 4, micro_batches), [StageCost(t, t, t) for t in stages])
    given, mean_s = choice(4, micro_batches, form), sum(stages) / 4 * micro_batches
    more_s = Unevenness(WORK, 3 * mean_s).seconds(given)
    equal_s = mean_s * (2 * given.waiting + given.weights_waiting)
    assert more_s > 0
    assert timeline.step_s >= equal_s + more_s - 1e-6
    if form == ONE_F_ONE_B and stages[0] == 3.0:
        assert timeline.step_s == pytest.approx(equal_s + more_s)


def test_what_stages_do_not_add() -> None:
    uneven = Unevenness(WORK, 1.0)
    assert uneven.seconds(choice(1, 8)) == 0.0
    assert uneven.seconds(choice(4, 8, FORMS[1])) == 0.0
    assert uneven.seconds(choice(4, 4)) == uneven.seconds(choice(4, 5)) == 0.0
    assert Unevenness((1.0,) * 8, 1.0).seconds(choice(4, 8)) == pytest.approx(0.0, abs=1e-9)
    assert uneven.seconds(choice(4, 8, SPLIT)) == uneven.seconds(choice(4, 8)) > 0
