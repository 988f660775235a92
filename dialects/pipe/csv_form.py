"""Schedules as CSV, a row a rank, a cell an action: the ``compute_only`` form of ``torch.distributed.pipelining``."""

from __future__ import annotations

import csv
import io

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule, one_route, orders


def write_csv(schedule: Schedule) -> str:
    """What ``PipelineScheduleMulti._load_csv`` reads. Routes and slices are not in it."""
    text = io.StringIO()
    csv.writer(text).writerows(schedule.orders)
    return text.getvalue()


def read_csv(text: str, name: str = "csv") -> Schedule:
    """A schedule in which every micro-batch goes through all stages. Empty cells, which say that a rank waits, are left out.

    Raises BadAction.
    """
    rows = [[Action.parse(cell) for cell in row if cell.strip()] for row in csv.reader(io.StringIO(text))]
    stages = 1 + max((action.stage for row in rows for action in row), default=0)
    return Schedule(name, orders(rows), one_route(stages))
