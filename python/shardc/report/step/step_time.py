"""Estimated time of a step on a cluster, as reported by ``shardc plan`` and ``step.plan``."""

from __future__ import annotations

from torch_mlir import ir

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.step.on_cluster import step_time_on
from shardc.cost.step.step_time import StepTime
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.report.step.read_step import read_step


def step_time(module: ir.Module, cluster: Cluster, schedule: Schedule | None = None) -> StepTime:
    """Estimate the time of a step of a level 3 module, placed on the first devices of ``cluster``.

    ``schedule``: a pipeline's schedule. Default: the module's own. Raises MeshDoesNotFit.
    """
    mesh = read_mesh(module)
    axes = {axis.name: axis.size for axis in mesh.space} if mesh is not None else {}
    written = find_schedule(module)
    if schedule is None and written is not None:
        schedule = read_schedule(written)
    pipe = "" if written is None else written.attributes["axis"].value
    return step_time_on(cluster, axes, read_step(module), pipe, schedule)
