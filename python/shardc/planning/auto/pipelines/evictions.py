"""Activations that ranks keep on other ranks, as what their transfers add to a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.pipeline import StageCost
from shardc.cost.schedule_form import ScheduleForm
from shardc.cost.simulate import simulate
from shardc.cost.step.on_cluster import costs_on
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.schedules import by_name
from shardc.passes.pipeline.schedules.balance_activations import balance_activations
from shardc.passes.search.choose import Found
from shardc.planning.auto.space import Choice
from shardc.planning.candidates import PIPE

_RANKS = 32
"""Ranks up to which a pipeline is simulated. Of more, a part is, with as many micro-batches per rank."""
_EVEN = 0.9
"""Part of the mean over ranks that those which evict are taken to keep at least, for a bound."""

Evicting = Callable[[Choice, Found], tuple[float, float]]
"""Seconds that evictions add to the plan found for a choice, and to any plan of the choice."""


def evicting(cluster: Cluster) -> Evicting:
    """Return what evictions add on a cluster, if stages take and keep equally much."""

    def seconds(choice: Choice, found: Found) -> tuple[float, float]:
        kept, solution, form = found.kept, found.solution, choice.form
        if kept is None or choice.stages == 1 or not form.balances or form.path < 1:
            return 0.0, 0.0
        costs = costs_on(cluster, choice.mesh, PIPE)
        turns = form.slots(choice.stages, choice.micro_batches) * form.per_rank

        def added_s(step_s: float, kept_bytes: float) -> float:
            stage_s, sent_s = step_s / turns, costs.transfer_s(kept_bytes / form.per_rank)
            forward_s = kept.forward_part * stage_s
            cost = StageCost(forward_s, stage_s - forward_s, 0.0, eviction_s=sent_s)
            return waiting_s(form, choice.stages, choice.micro_batches, cost, overlap=costs.overlap)

        least_s = added_s(solution.bound_s, _EVEN * kept.least_bytes) if choice.stages <= _RANKS else 0.0
        return added_s(solution.seconds, kept.size_bytes), least_s

    return seconds


def waiting_s(
    form: ScheduleForm, ranks: int, micro_batches: int, cost: StageCost, *, overlap: bool = True
) -> float:
    """Return how much later a step ends because of evictions, if each stage has the same ``cost``.

    ``overlap``: whether transfers run beside computations.
    """
    times = ceil(ranks / _RANKS)
    schedule = _balanced(form, ceil(ranks / times), ceil(micro_batches / times))
    ends = [
        simulate(schedule, [replace(cost, eviction_s=seconds)] * schedule.stages, overlap=overlap).step_s
        for seconds in (0.0, cost.eviction_s)
    ]
    return times * (ends[1] - ends[0])


@lru_cache(maxsize=64)
def _balanced(form: ScheduleForm, ranks: int, micro_batches: int) -> Schedule:
    """Return the schedule of a form with its evictions; several stages a rank take whole rounds of ranks."""
    if form.per_rank > 1:
        micro_batches = ceil(micro_batches / ranks) * ranks
    schedule = by_name.schedule(form.name, ranks * form.per_rank, micro_batches, ranks=ranks)
    return balance_activations(schedule)
