"""Values that are stacked over micro-batches, on the ranks that need all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.partition.local_call import CallWriter
from shardc.passes.pipeline.stages.places import Row

Made = Mapping[int, ir.Value]
"""Micro-batch -> its rows."""


def ranks_of(row: Row, schedule: Schedule) -> dict[int, list[int]]:
    """Return the ranks that compute rows, with their micro-batches."""
    found: dict[int, list[int]] = {}
    for m in range(schedule.micro_batches):
        found.setdefault(schedule.rank_of[schedule.route(m)[row.place[0]]], []).append(m)
    return found


def stacked(row: Row, made: Made, block: ir.Block) -> ir.Value:
    """Concatenate the rows of all micro-batches at the end of ``block``."""
    parts: Sequence[ir.Value] = [made[m] for m in sorted(made)]
    writer = CallWriter(CallBuilder(block), row.result.owner.location, ir.InsertionPoint(block))
    return parts[0] if len(parts) == 1 else writer.call("aten.cat", tuple(parts), row.dim)
