"""The forward part of a schedule, for evaluation."""

from __future__ import annotations

from dataclasses import replace

from shardc.cost.simulate import simulate
from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule, orders
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL, list_schedule

SUFFIX = "-forward"


def forward_alone(schedule: Schedule) -> Schedule:
    """Return the forwards of ``schedule``, of whole micro-batches, on the same ranks.

    A forward needs only forwards, so the schedule's own order can run without backward. If it delays forwards
    to save memory, as V-Min does, a greedy order is shorter: a free rank runs its last stage that is ready,
    or its first. The result is the shortest of the three, for stages of equal cost.
    """
    slices, costs = schedule.slices, [EQUAL] * schedule.stages
    rows = [
        [Action(a.stage, "F", a.micro_batch // slices) for a in order if _is_first(a, slices)]
        for order in schedule.orders
    ]
    name = f"{schedule.name.removesuffix(SUFFIX)}{SUFFIX}"
    own = Schedule(name, orders(rows), schedule.routes, reads=schedule.reads)
    found = (own, _played(own, furthest_first=True), _played(own, furthest_first=False))
    return min(found, key=lambda one: simulate(one, costs).step_s)


def _is_first(action: Action, slices: int) -> bool:
    """Return whether an action is the forward of a micro-batch, or of its first slice."""
    return action.kind == "F" and action.micro_batch % slices == 0


def _played(schedule: Schedule, furthest_first: bool) -> Schedule:
    """Return the greedy order in which a free rank prefers its last stage, or its first."""
    places = {stage: place for route in schedule.routes for place, stage in enumerate(route)}
    queues = []
    for order in schedule.orders:
        stages = sorted({a.stage for a in order}, key=lambda s: (places[s], s), reverse=furthest_first)
        queues.append([sorted(a for a in order if a.stage == stage) for stage in stages])
    costs = [EQUAL] * schedule.stages
    found = list_schedule(schedule.name, queues, schedule.routes, costs, reads=schedule.reads)
    return replace(schedule, orders=found.orders)
