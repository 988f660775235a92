"""Search for ``schedule="auto"``: the fastest schedule on the step's cluster that fits its memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import cast

from torch_mlir import ir

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.step.on_cluster import costs_on
from shardc.diagnostics.passes.pipeline import (
    NoScheduleFits,
    ScheduleNotYet,
    ScheduleWithoutCluster,
    TooManyStages,
)
from shardc.dialects.dist.mesh import read_mesh
from shardc.options.pipeline import Pipeline
from shardc.options.recompute import policies_of
from shardc.options.schedules import AUTO
from shardc.passes.pipeline.pipe_cut import pipeline_sizes
from shardc.passes.pipeline.schedules.synthesis import Choice, best_schedule
from shardc.step.schedule.stage_costs import Cutting, stage_costs

STAGES_PER_RANK = (1, 2)
"""Numbers of stages per rank to try if the user gives no number of stages."""


def with_schedule(
    module: ir.Module,
    axis: str,
    options: Pipeline,
    recompute: str | Sequence[str],
    cluster: Cluster | None,
) -> Pipeline:
    """Return ``options`` with ``schedule="auto"`` replaced by the best schedule; others unchanged."""
    if options.schedule != AUTO:
        return options
    if cluster is None:
        raise ScheduleWithoutCluster()
    return replace(options, schedule=choose_schedule(module, axis, options, recompute, cluster).schedule)


def choose_schedule(
    module: ir.Module, axis: str, options: Pipeline, recompute: str | Sequence[str], cluster: Cluster
) -> Choice:
    """Return the schedule with the shortest simulated step on ``cluster``. ``module`` is at level 3.

    A rank's parameters, gradients, optimizer state and activations must fit in ``memory_limit_bytes``, by
    default the memory of a device of the cluster. Without a given number of stages, one and two stages per
    rank are tried. Raises NoScheduleFits, with the schedule that needs the least memory, and what cutting the
    step raises.
    """
    ranks, micro_batches = pipeline_sizes(module, axis)
    mesh = read_mesh(module)
    assert mesh is not None
    sizes = {each.name: each.size for each in mesh.space}
    costs = costs_on(cluster, sizes, axis)
    devices = cluster.used(prod(sizes.values()))
    limit = options.memory_limit_bytes or min(device.memory_bytes for device in devices)
    found, failed = list[Choice](), list[NoScheduleFits]()
    for cutting in _cuttings(ranks, options, recompute):
        try:
            stages = stage_costs(module, cutting, costs)
            found.append(best_schedule(ranks, micro_batches, stages, limit, cutting.stages))
        except NoScheduleFits as error:
            failed.append(error)
        except TooManyStages:
            if cutting.stages == ranks or options.stages:
                raise
    if not found:
        raise min(failed, key=lambda error: cast(float, error.fields["least"]))
    return min(found, key=lambda choice: choice.order("step"))


def _cuttings(ranks: int, options: Pipeline, recompute: str | Sequence[str]) -> Iterator[Cutting]:
    wanted = options.stage_count or (0 if isinstance(recompute, str) else len(recompute))
    per_rank = STAGES_PER_RANK[:1] if options.speeds else STAGES_PER_RANK
    if options.speeds and wanted not in (0, ranks):
        raise ScheduleNotYet(schedule=AUTO, why="ranks of other speeds get one stage each")
    for stages in [wanted] if wanted else [ranks * each for each in per_rank]:
        yield Cutting(policies_of(recompute, stages), options.cuts, options.gather, options.speeds or ())
