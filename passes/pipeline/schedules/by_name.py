"""Schedules by name, for ``schedule=`` and ``shardc schedule``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from shardc.cost.pipeline import StageCost
from shardc.diagnostics.passes.pipeline import BadScheduleOption
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.stage_graph import Reads, StageGraph
from shardc.options.schedules import AUTO, check_named
from shardc.passes.pipeline.schedules.list_scheduling import EQUAL
from shardc.passes.pipeline.schedules.registry import check_options, named_schedule
from shardc.passes.pipeline.schedules.synthesis import auto


def schedule(
    name: str,
    stages: int,
    micro_batches: int,
    *,
    ranks: int | None = None,
    costs: Sequence[StageCost] | None = None,
    reads: Reads = (),
    **options: object,
) -> Schedule:
    """Return the schedule ``name``, or the one that ``auto`` finds, for a model of ``stages`` stages.

    ``ranks`` defaults to the most that the schedule can use. ``costs`` has an entry for each stage, by
    default equal ones; some schedules' orders depend on them. ``micro_batches`` counts whole sequences, not
    slices. ``reads``: for each stage, the earlier stages that its forward reads; default: the one before it.
    Only schedules of one stage a rank and whole sequences, without old weights, take others. ``options`` are
    the schedule's own, such as ``slices`` of token-level schedules, or ``memory_limit_bytes`` of ``auto``.
    Raises UnknownSchedule, UnknownScheduleOption, BadScheduleOption, BadStages, BadMicroBatches,
    NoScheduleFits.
    """
    if name == AUTO:
        check_options(AUTO, options, [*inspect.signature(auto).parameters][3:])
        search: Callable[..., Schedule] = auto
        ranks, costs = stages if ranks is None else ranks, costs or [EQUAL] * max(0, stages)
        return search(ranks, micro_batches, costs, **{"stages": stages, **options})
    named = named_schedule(name)
    if reads:
        check_reads(name, stages, reads)
    ranks = check_named(name, stages, micro_batches, ranks)
    assert ranks is not None
    if costs is not None and len(costs) != stages:
        raise ValueError(f"costs are of {len(costs)} stages, not of {stages}")
    return named.make_for(ranks, micro_batches, stages // ranks, costs, reads, **options)


def check_reads(name: str, stages: int, reads: Reads) -> None:
    """Check what each stage reads: earlier stages in ascending order. Raises BadScheduleOption."""
    is_right = all(list(row) == sorted({*row} & {*range(stage)}) for stage, row in enumerate(reads))
    if len(reads) != stages or not is_right:
        must = f"the earlier stages, in order, that each of {stages} stages reads"
        nearest = StageGraph.chain(max(1, stages)).reads
        raise BadScheduleOption(schedule=name, option="reads", value=reads, must=must, nearest=nearest)
