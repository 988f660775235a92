"""A pipeline schedule by name or from a file, checked and played through: what ``shardc schedule`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import links_of_nodes, simulate
from shardc.cost.timeline import Timeline, stage_costs
from shardc.diagnostics.cli import UnreadableInput
from shardc.diagnostics.pipeline import BadTimes, BadTransfers
from shardc.dialects.pipe.csv_form import read_csv, read_steps
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.transfer import Steps, Transfer
from shardc.dialects.pipe.weight_versions import versions_held
from shardc.options.schedules import AUTO
from shardc.passes.pipeline.checks.check_collectives import check_collectives
from shardc.passes.pipeline.checks.check_schedule import check_memory, check_schedule
from shardc.passes.pipeline.checks.check_transfers import Mode, check_transfers, peak_buffers
from shardc.passes.pipeline.ranks.transfers import place_transfers
from shardc.passes.pipeline.schedules.by_name import schedule as by_name
from shardc.passes.pipeline.schedules.registry import SCHEDULES

Times = tuple[float, float, float, float]
"""Seconds of a stage's F, I, W, and of sending what it makes."""


@dataclass(frozen=True)
class PlayedSchedule:
    """A schedule that was proved to run. ``costs``: of each stage.

    ``steps``: with its sends and receives, as its file has them or as we place them; ``refused``: how sends
    may wait (:data:`~shardc.passes.pipeline.checks.check_transfers.Mode`) -> why they deadlock then, for
    those that do; ``buffers``: received values that each rank keeps at most.
    """

    schedule: Schedule
    costs: Sequence[StageCost]
    timeline: Timeline
    steps: Steps
    refused: Mapping[Mode, BadTransfers]
    buffers: Sequence[int]

    def summary(self) -> str:
        """Bubble, peak memory, buffers and versions of weights."""
        schedule, timeline = self.schedule, self.timeline
        lines = [
            f"{schedule.name}: {schedule.stages} stages on {schedule.ranks} ranks, {schedule.micro_batches} "
            + (
                "micro-batches" if schedule.slices == 1 else f"slices of sequences, {schedule.slices} of each"
            ),
            f"bubble rate {timeline.bubble_rate:.4f}, step {timeline.step_s:g} s, "
            + f"longest rank {timeline.longest_span_s:g} s",
        ]
        if schedule.changes_mathematics:
            lines.append("changes the mathematics: gradients of older weights are applied to newer ones")
        if len(schedule.routes) > 1:
            lines.append("holds the parameters twice: their gradients must be added")
        for mode, error in self.refused.items():
            lines.append(f"deadlocks with {mode} sends: {error.fields['step']} {error.fields['problem']}")
        return "\n".join([*lines, *_table(self)])


def play_schedule(
    name: str,
    stages: int,
    micro_batches: int,
    *,
    ranks: int | None = None,
    times_s: Sequence[Times] = ((1.0, 1.0, 1.0, 0.0),),
    measured: Timeline | None = None,
    memory_limit_bytes: float | None = None,
    options: Mapping[str, Any] | None = None,
    overlap: bool = True,
    ranks_per_node: int | None = None,
) -> PlayedSchedule:
    """``name``: of a schedule, or a CSV file of one. ``times_s``: of each stage, or one for all; F, I and W
    are those of ``measured``, if there is a run. ``memory_limit_bytes``: what a rank may hold of activations,
    of which a stage keeps 1 for each micro-batch. ``ranks_per_node``: ranks that share the link which leaves
    their node; without it each transfer has one to itself.

    Raises the errors of :func:`by_name`, of the checkers, UnreadableInput, WrongStages, BadTimes
    and NotMeasured.
    """
    if len(times_s) not in (1, stages):
        given = f"{len(times_s)} stages' are given, of {stages}"
        raise BadTimes(text=[*times_s], problem=given, where="--times")
    costs = [StageCost(*times, activation_bytes=1.0, weight_bytes=1.0) for times in times_s]
    costs *= max(0, stages) // len(costs)
    if measured is not None:
        costs = stage_costs(measured, costs, transfer_s=costs[0].transfer_s)
    options = dict(options or {})
    if memory_limit_bytes is not None and name == AUTO:
        options["memory_limit_bytes"] = memory_limit_bytes
    steps: Steps = ()
    if name.endswith(".csv"):
        made, steps = _from_file(Path(name), stages, ranks)
    else:
        made = by_name(name, stages, micro_batches, ranks=ranks, costs=costs, **options)
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
    """Every schedule by name, with what it takes."""
    rows = [(n.name, n.says, n.takes, n.needs_of_any) for n in SCHEDULES.values()]
    rows.append(
        (AUTO, "the best that is found for given times and memory", "as many stages on each rank", "")
    )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _from_file(path: Path, stages: int, ranks: int | None) -> tuple[Schedule, Steps]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableInput(file=path, problem=error) from None
    return read_csv(text, path.stem, stages=stages, ranks=ranks), read_steps(text)


def _table(played: PlayedSchedule) -> Iterator[str]:
    versions = versions_held(played.schedule)
    stages: dict[int, list[int]] = {rank: [] for rank in range(played.schedule.ranks)}
    for stage, rank in sorted(played.schedule.rank_of.items()):
        stages[rank].append(stage)
    head = ["rank", "stages", "waits", "peak activations", "received values", "versions of weights"]
    rows = [head]
    peaks, idle = played.timeline.peak_bytes(played.costs), played.timeline.idle_rates
    for rank, mine in stages.items():
        kept = max((versions.get(stage, 1) for stage in mine), default=1)
        cells = (
            rank,
            ",".join(map(str, mine)),
            f"{idle[rank]:.1%}",
            f"{peaks[rank]:g}",
            played.buffers[rank],
            kept,
        )
        rows.append([str(cell) for cell in cells])
    columns = 6 if played.schedule.changes_mathematics else 5
    widths = [max(len(row[column]) for row in rows) for column in range(columns)]
    yield from (
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False)) for row in rows
    )
