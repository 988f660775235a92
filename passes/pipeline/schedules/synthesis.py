"""``auto``: search for a schedule for given costs and a memory limit, at least as good as all named ones.

The search simulates all named schedules, then orders of the same families with other numbers of micro-batches
in flight and with weight gradients in idle times. Finally it moves single actions of the best order into idle
times while that helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from shardc.cost.pipeline import StageCost, merge_stages
from shardc.cost.simulate import simulate
from shardc.cost.timeline import Timeline
from shardc.diagnostics.passes.pipeline import BadMicroBatches, BadStages, NoScheduleFits, ScheduleStuck
from shardc.dialects.pipe.dependence import Dependences
from shardc.dialects.pipe.schedule import Schedule, one_route
from shardc.options.schedules import AUTO
from shardc.passes.pipeline.schedules.list_scheduling import Queues, list_schedule, state_of_ranks
from shardc.passes.pipeline.schedules.one_f_one_b import furthest_first, one_stage
from shardc.passes.pipeline.schedules.placement import round_robin, zigzag
from shardc.passes.pipeline.schedules.registry import SCHEDULES
from shardc.passes.pipeline.schedules.v_shape import building_block, repeat_block

Measure = Literal["step", "span"]
"""Time to minimise.

``step`` is from the first rank's start to the last rank's end; it matters if ranks wait for each other
between steps, as when clipping by the norm of all gradients. ``span`` is the longest time of one rank (Qi et
al., Zero Bubble, section 4).
"""

PLAYED_ACTIONS = 500_000
"""Limit of actions that the search simulates: about 4 s of CPU. Named schedules are always simulated."""


@dataclass(frozen=True)
class Choice:
    """A schedule, the costs of its stages, and its simulated timeline."""

    schedule: Schedule
    costs: Sequence[StageCost]
    timeline: Timeline
    peak_bytes: float

    def fits(self, memory_limit_bytes: float) -> bool:
        """Return whether no rank exceeds the limit, up to rounding, since bytes may be fractions."""
        return self.peak_bytes <= memory_limit_bytes * (1 + 1e-9)

    def order(self, measure: Measure) -> tuple[float, float, float]:
        """Return the sort key: the measured time, the other time, the peak of memory."""
        first, other = self.timeline.step_s, self.timeline.longest_span_s
        if measure == "span":
            first, other = other, first
        return first, other, self.peak_bytes


def auto(
    ranks: int,
    micro_batches: int,
    costs: Sequence[StageCost],
    memory_limit_bytes: float = inf,
    *,
    stages: int | None = None,
    measure: Measure = "step",
    parameters_twice: bool = False,
) -> Schedule:
    """Return the schedule that :func:`best_schedule` finds."""
    more = (stages, measure, parameters_twice)
    return best_schedule(ranks, micro_batches, costs, memory_limit_bytes, *more).schedule


def best_schedule(
    ranks: int,
    micro_batches: int,
    costs: Sequence[StageCost],
    memory_limit_bytes: float = inf,
    stages: int | None = None,
    measure: Measure = "step",
    parameters_twice: bool = False,
) -> Choice:
    """Return the schedule with the shortest step under a memory limit for each rank, with its timeline.

    ``costs`` are those of the finest stages into which the model may be split, in order; their number is a
    multiple of ``ranks``. The schedule's ``stages``, which the caller may fix, are these, or groups of
    adjacent ones. ``parameters_twice``: whether Chimera, which holds parameters twice, is a candidate. Raises
    NoScheduleFits.
    """
    _check(ranks, micro_batches, len(costs) if stages is None else stages)
    counts = [n for n in range(ranks, len(costs) + 1, ranks) if len(costs) % n == 0 and stages in (None, n)]
    if not counts:
        wanted = stages or f"a multiple of {ranks}"
        raise ValueError(f"costs are of {len(costs)} stages, which do not make {wanted}")
    cuts = [merge_stages(costs, count) for count in counts]
    named = [c for cut in cuts for c in named_choices(ranks, micro_batches, cut, parameters_twice)]
    fitting = [choice for choice in named if choice.fits(memory_limit_bytes)]
    budget = PLAYED_ACTIONS
    for cut in cuts:
        for candidate in _searched(ranks, micro_batches, cut, memory_limit_bytes):
            budget -= 3 * micro_batches * len(cut)
            if budget < 0:
                break
            choice = _play(candidate, cut)
            if choice.fits(memory_limit_bytes):
                fitting.append(choice)
    if not fitting:
        least = min(named, key=lambda choice: choice.peak_bytes)
        raise NoScheduleFits(
            ranks=ranks,
            micro_batches=micro_batches,
            cap=memory_limit_bytes,
            least=least.peak_bytes,
            schedule=least.schedule.name,
        )
    best = min(fitting, key=lambda choice: choice.order(measure))
    return _improved(best, memory_limit_bytes, measure, budget)


def _check(ranks: int, micro_batches: int, stages: int) -> None:
    if ranks < 1 or stages < 1 or stages % ranks:
        nearest = f"cut the model into {max(1, round(stages / max(1, ranks))) * max(1, ranks)} stages"
        takes = "as many on each rank"
        raise BadStages(schedule=AUTO, stages=stages, ranks=ranks, takes=takes, nearest=nearest)
    if micro_batches < 1:
        raise BadMicroBatches(
            schedule=AUTO, ranks=ranks, needs="at least 1 micro-batch", micro_batches=micro_batches, nearest=1
        )


def named_choices(
    ranks: int, micro_batches: int, costs: Sequence[StageCost], parameters_twice: bool = False
) -> list[Choice]:
    """Return the named schedules for stages of these costs, on whole sequences and with unchanged
    mathematics.
    """
    found, stateless = (
        [],
        [replace(cost, state_bytes=0.0) for cost in costs],
    )  # their limits count only activations
    for named in SCHEDULES.values():
        if not named.accepts(len(costs), ranks) or named.nearest(ranks, micro_batches) != micro_batches:
            continue
        schedule = named.make_for(ranks, micro_batches, len(costs) // ranks, stateless)
        twice = len(schedule.routes) > 1
        if schedule.slices == 1 and not schedule.changes_mathematics and (parameters_twice or not twice):
            found.append(_play(schedule, [*costs, *costs] if twice else costs))
    return found


def _play(schedule: Schedule, costs: Sequence[StageCost]) -> Choice:
    timeline, state = simulate(schedule, costs), state_of_ranks(schedule, costs)
    peaks = [fixed + peak for fixed, peak in zip(state, timeline.peak_bytes(costs), strict=True)]
    return Choice(schedule, costs, timeline, max(peaks))


def _searched(
    ranks: int, micro_batches: int, costs: Sequence[StageCost], memory_limit_bytes: float
) -> Iterator[Schedule]:
    """Yield orders of every family under the limit, without those that get stuck."""
    for queues in _families(ranks, micro_batches, len(costs) // ranks):
        for patience in (1.0, 0.5, 0.0):
            with suppress(ScheduleStuck):
                yield list_schedule(AUTO, queues, one_route(len(costs)), costs, memory_limit_bytes, patience)


def _families(ranks: int, micro_batches: int, stages_per_rank: int) -> Iterator[Queues]:
    if stages_per_rank == 1:
        for times in (1, 1.5, 2, 2.2, 3):
            ahead = [round(times * (ranks - rank - 1)) for rank in range(ranks)]
            yield [[one_stage(rank, "I", micro_batches, most)] for rank, most in enumerate(ahead)]
    if stages_per_rank == 2:
        for down, up in ((1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (5, 3)):
            block = building_block(ranks, down, up)
            if block is not None:
                yield [[order] for order in repeat_block(block, micro_batches)]
    for placement in (round_robin, zigzag)[: 2 if stages_per_rank > 1 else 1]:
        for backward_first in (True, False):
            stages = [placement(rank, ranks, stages_per_rank) for rank in range(ranks)]
            yield [furthest_first(mine, "I", micro_batches, backward_first) for mine in stages]


def _improved(best: Choice, memory_limit_bytes: float, measure: Measure, budget: int) -> Choice:
    """Improve ``best`` by moving single actions into idle times while that helps."""
    size = sum(1 for _ in best.schedule.actions())
    moves = _moves(best)
    while budget >= size and (schedule := next(moves, None)):
        budget -= size
        with suppress(ScheduleStuck):
            choice = _play(schedule, best.costs)
            if choice.fits(memory_limit_bytes) and choice.order(measure) < best.order(measure):
                best, moves = choice, _moves(choice)
    return best


def _moves(choice: Choice) -> Iterator[Schedule]:
    """Yield schedules with a later action moved into an idle time in which it can run; longest times
    first.
    """
    ends = {span.action: span.end_s for spans in choice.timeline.spans for span in spans}
    needs = Dependences(choice.schedule).needs
    holes = []
    for rank, spans in enumerate(choice.timeline.spans):
        free_s = spans[0].start_s if spans else 0.0
        for index, span in enumerate(spans):
            if span.start_s > free_s:
                holes.append((free_s - span.start_s, rank, index, free_s))
            free_s = span.end_s
    for _, rank, index, free_s in sorted(holes):
        order = choice.schedule.orders[rank]
        for later in range(index + 1, min(index + 40, len(order))):
            action = order[later]
            if all(ends[needed] <= free_s for needed in needs(action)):
                orders = list(choice.schedule.orders)
                orders[rank] = (*order[:index], action, *order[index:later], *order[later + 1 :])
                yield replace(choice.schedule, name=AUTO, orders=tuple(orders))
