"""Schedules as CSV, in the two forms of ``torch.distributed.pipelining``. A row is a rank, a cell an action.

``compute_only`` has only actions; ``compute_comms`` also has sends, receives, and collectives of parameters
and gradients.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator

from shardc.diagnostics.passes.pipeline import BadSchedule, WrongStages
from shardc.dialects.pipe.action import Action, Step, Steps, parse_step
from shardc.dialects.pipe.schedule import Schedule, one_route, orders
from shardc.dialects.pipe.stage_graph import Reads

_OVERLAP = re.compile(r"\(([^)]*)\)OVERLAP_F_B")


def write_csv(rows: Schedule | Iterable[Iterable[Step]]) -> str:
    """Return a schedule's actions, or rows of steps (``compute_comms``), as CSV.

    ``PipelineScheduleMulti._load_csv`` reads it. The CSV does not hold routes, slices, updates and reads.
    """
    text = io.StringIO()
    csv.writer(text).writerows(rows.orders if isinstance(rows, Schedule) else rows)
    return text.getvalue()


def read_csv(
    text: str,
    name: str = "csv",
    *,
    stages: int | None = None,
    ranks: int | None = None,
    routes: tuple[tuple[int, ...], ...] | None = None,
    slices: int = 1,
    reads: Reads = (),
) -> Schedule:
    """Read the actions of a CSV text in either form.

    Empty cells, in which a rank waits, are dropped. So is communication, which follows from the actions and
    the plan. ``routes`` defaults to one route through all stages. ``stages`` and ``ranks`` are the numbers
    that the schedule must have. ``reads``: what each stage reads; default: the one before it in its route.
    Raises BadAction, BadSchedule if a stage has no action, and WrongStages.
    """
    rows = [[step for step in row if isinstance(step, Action)] for row in read_steps(text)]
    there = {action.stage for row in rows for action in row}
    missing = next(stage for stage in range(len(there) + 1) if stage not in there)
    if missing < max(1, len(there)):
        raise BadSchedule(schedule=name, action=f"stage {missing}", problem="has no action")
    for what, wanted, found in (("stages", stages, len(there)), ("ranks", ranks, len(rows))):
        if wanted is not None and wanted != found:
            raise WrongStages(schedule=name, what=what, found=found, wanted=wanted)
    return Schedule(name, orders(rows), routes or one_route(len(there)), slices, reads=reads)


def read_steps(text: str) -> Steps:
    """Return each rank's actions, transfers and collectives; overlapped ones one by one. Raises BadAction."""
    return tuple(tuple(_steps(row)) for row in csv.reader(io.StringIO(text)))


def _steps(row: list[str]) -> Iterator[Step]:
    for cell in map(str.strip, row):
        overlap = _OVERLAP.fullmatch(cell)
        if overlap:
            yield from map(parse_step, overlap[1].split(";"))
        elif cell:
            yield parse_step(cell)
