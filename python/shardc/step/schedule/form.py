"""Closed form of the schedule that options of a pipeline name."""

from __future__ import annotations

from shardc.cost.schedule_form import ONE_F_ONE_B, ScheduleForm, form_of
from shardc.options.pipeline import Pipeline


def schedule_form(options: Pipeline | None, ranks: int) -> ScheduleForm | None:
    """Return the closed form of the schedule of ``ranks``; None if it has none."""
    if options is None:
        return ONE_F_ONE_B
    per_rank = options.stage_count // ranks
    return form_of(options.schedule, per_rank, balances=options.balance_activations)
