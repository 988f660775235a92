"""``shardc schedule``: checks a pipeline schedule, by name or from a file, and simulates it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import links_of_nodes, simulate
from shardc.cost.timeline import Timeline, stage_costs
from shardc.diagnostics.passes.pipeline import BadTimes, BadTransfers
from shardc.diagnostics.text import table
from shardc.dialects.pipe.action import Steps, Transfer
from shardc.dialects.pipe.csv_form import read_csv, read_steps
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.stage_graph import Reads
from shardc.options.schedules import AUTO
from shardc.passes.pipeline.checks.check_collectives import check_collectives
from shardc.passes.pipeline.checks.check_schedule import check_memory, check_schedule
from shardc.passes.pipeline.checks.check_transfers import Mode, check_transfers, peak_buffers
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.registry import SCHEDULES
from shardc.report.played_schedule import PlayedSchedule
from shardc.text_files import read_text

Times = tuple[float, float, float, float]
"""Seconds of a stage's F, I and W, and of sending its result."""


def play_schedule(
    name: str,
    stages: int,
    micro_batches: int,
    *,
    ranks: int | None = None,
    times_s: Sequence[Times] = ((1.0, 1.0, 1.0, 0.0),),
    measured: Timeline | None = None,
    memory_limit_bytes: float | None = None,
    options: Mapping[str, float] | None = None,
    overlap: bool = True,
    ranks_per_node: int | None = None,
    reads: Reads = (),
) -> PlayedSchedule:
    """Check a schedule and simulate it.

    Args:
        name: Name of a schedule, or a CSV file of one.
        stages: Stages of the model.
        micro_batches: Micro-batches of a step.
        ranks: Ranks. Default: the most that the schedule can use.
        times_s: Times of each stage, or of all stages, in seconds.
        measured: Timeline of a run, whose F, I and W replace those of ``times_s``. Default: none.
        memory_limit_bytes: Activations that a rank may hold, where one stage keeps 1 per micro-batch. It
            limits the search of ``auto``. Default: no limit.
        options: Options of the schedule, by name.
        overlap: Whether ranks compute while they send.
        ranks_per_node: Ranks that share the link which leaves their node. Default: each transfer has its own
            link.
        reads: For each stage, the earlier stages that its forward reads. Default: the one before it.

    Raises the errors of :func:`by_name` and of the checkers, UnreadableInput, WrongStages, BadTimes and
    NotMeasured.
    """
    if len(times_s) not in (1, stages):
        given = f"{len(times_s)} stages' are given, of {stages}"
        raise BadTimes(text=[*times_s], problem=given, where="--times")
    costs = [StageCost(*times, activation_bytes=1.0, weight_bytes=1.0) for times in times_s]
    costs *= max(0, stages) // len(costs)
    if measured is not None:
        costs = stage_costs(measured, costs, transfer_s=costs[0].transfer_s)
    limited = {} if memory_limit_bytes is None or name != AUTO else {"memory_limit_bytes": memory_limit_bytes}
    steps: Steps = ()
    if name.endswith(".csv"):
        text = read_text(Path(name))
        made = read_csv(text, Path(name).stem, stages=stages, ranks=ranks, reads=reads)
        steps = read_steps(text)
    else:
        more = {"reads": reads, **(options or {}), **limited}
        made = by_name(name, stages, micro_batches, ranks=ranks, costs=costs, **more)
    check_schedule(made, micro_batches * made.slices)
    if not any(isinstance(step, Transfer) for row in steps for step in row):
        steps = place_transfers(made)
    check_collectives(made, steps)
    buffers = peak_buffers(made, steps)
    part = {stage: costs[place] for route in made.routes for place, stage in enumerate(route)}
    costs = [part[stage] for stage in range(made.stages)]
    if memory_limit_bytes is not None:
        check_memory(made, costs, memory_limit_bytes)
    link = links_of_nodes(ranks_per_node) if ranks_per_node else None
    timeline = simulate(made, costs, overlap=overlap, link=link)
    return PlayedSchedule(made, costs, timeline, steps, _refused(made, steps), buffers)


def _refused(made: Schedule, steps: Steps) -> dict[Mode, BadTransfers]:
    found: dict[Mode, BadTransfers] = {}
    for mode in ("blocking", "batched"):
        try:
            check_transfers(made, steps, mode)
        except BadTransfers as error:
            found[mode] = error
    return found


def schedule_list() -> str:
    """List all schedules with their requirements."""
    rows = [(n.name, n.says, n.takes, n.needs_of_any) for n in SCHEDULES.values()]
    auto = (AUTO, "the best that is found for given times and memory", "as many stages on each rank", "")
    return "\n".join(line[2:] for line in table([*rows, auto]))
