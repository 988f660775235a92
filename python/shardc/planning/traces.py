"""Traces of a plan's predicted step for other tools: a file for Perfetto, a folder for Chakra."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch_mlir import ir

from shardc.backends.torch.memory.curve import Curve
from shardc.cost.cluster.cluster import Cluster
from shardc.cost.step.on_cluster import costs_on
from shardc.cost.step.spans import RankSpans, spans_of_step
from shardc.diagnostics.passes.memory import PeakUnknown
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.pipe.schedule_op import find_schedule, read_schedule
from shardc.planning.memory import RankMemory, memory_of
from shardc.planning.price import Price
from shardc.report.step.read_step import read_step
from shardc.report.traces.chakra import chakra_trace
from shardc.report.traces.predicted import predicted_processes
from shardc.report.traces.tracks import Process


def rank_spans(price: Price) -> list[RankSpans]:
    """Return the predicted timeline of each distinct rank of a plan."""
    priced = price.priced
    costs = costs_on(price.cluster, priced.candidate.mesh, priced.pipe)
    return spans_of_step(priced.step, costs, priced.schedule)


def trace_of(price: Price) -> list[Process]:
    """Return the trace's processes, one for each distinct rank of a plan."""
    memory = price.priced.memory
    return predicted_processes(rank_spans(price), [curve_of(m) for m in memory], [m.rank for m in memory])


def trace_of_module(module: ir.Module, cluster: Cluster) -> list[Process]:
    """Return the trace's processes of a level 3 program, placed on the first devices of ``cluster``.

    Raises MeshDoesNotFit.
    """
    mesh, written = read_mesh(module), find_schedule(module)
    axes = {axis.name: axis.size for axis in mesh.space} if mesh is not None else {}
    schedule = None if written is None else read_schedule(written)
    costs = costs_on(cluster, axes, "" if written is None else written.attributes["axis"].value)
    ranks, memory = spans_of_step(read_step(module), costs, schedule), memory_of(module)
    return predicted_processes(ranks, [curve_of(m) for m in memory], [m.rank for m in memory])


def chakra_files(price: Price) -> Mapping[Path, bytes]:
    """Return file name (``rank.<number>.et``) -> contents, for each distinct rank of a plan."""
    devices = [rank.rank for rank in price.priced.memory]
    mesh = price.priced.candidate.mesh
    ranks = zip(devices, rank_spans(price), strict=True)
    return {Path(f"rank.{number}.et"): chakra_trace(rank, mesh, devices) for number, rank in ranks}


def curve_of(rank: RankMemory) -> Curve:
    """Return memory over time; empty if the peak is unknown."""
    return Curve() if isinstance(rank.peak, PeakUnknown) else rank.peak.curve
