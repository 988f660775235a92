"""The forward of a schedule, for programs that evaluate."""

from __future__ import annotations

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule, orders


def forward_alone(schedule: Schedule) -> Schedule:
    """The forwards of ``schedule``, on the same ranks and in the same order, of whole micro-batches.

    A forward needs forwards alone, so an order that runs still runs without the other actions.
    """
    slices = schedule.slices
    rows = [
        [Action(a.stage, "F", a.micro_batch // slices) for a in order if _is_first(a, slices)]
        for order in schedule.orders
    ]
    return Schedule(f"{schedule.name}-forward", orders(rows), schedule.routes)


def _is_first(action: Action, slices: int) -> bool:
    """Whether an action is the forward of a micro-batch, or of its first slice."""
    return action.kind == "F" and action.micro_batch % slices == 0
