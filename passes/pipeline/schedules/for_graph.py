"""A schedule for stages that are no chain."""

from __future__ import annotations

from dataclasses import replace

from shardc.diagnostics.passes.pipeline import StageNotRead
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.stage_graph import StageGraph
from shardc.passes.pipeline.schedules import by_name
from shardc.passes.pipeline.schedules.forward_alone import SUFFIX


def for_graph(schedule: Schedule, graph: StageGraph, *, named: bool) -> Schedule:
    """Return the schedule for stages that read what ``graph`` says. Raises StageNotRead.

    ``named``: the schedule is the one of its name, which is made again. Forwards alone may run in the same
    orders, whatever earlier stages they read.
    """
    if graph == schedule.graph:
        return schedule
    if schedule.name.endswith(SUFFIX):
        return replace(schedule, reads=() if graph.is_chain else graph.reads)
    if named:
        return by_name.schedule(schedule.name, graph.stages, schedule.micro_batches, reads=graph.reads)
    for reader, makers in enumerate(graph.reads):
        for maker in makers:
            if maker not in schedule.graph.before[reader]:
                needed = ", ".join(map(str, makers))
                raise StageNotRead(reader=reader, maker=maker, schedule=schedule.name, needed=needed)
    return schedule
