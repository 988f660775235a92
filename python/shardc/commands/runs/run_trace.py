"""``shardc run --trace``: writes a step as measured and as predicted to one file."""

from __future__ import annotations

from pathlib import Path

from shardc.commands.module_file import read_module
from shardc.compiler.local_cluster import cluster_of
from shardc.cost.cluster.cluster import Cluster
from shardc.planning.traces import trace_of_module
from shardc.report.traces.file import write_trace_file
from shardc.report.traces.measured import measured_processes
from shardc.report.traces.tracks import Process
from shardc.text_files import read_text


def predicted_run(folder: Path, cluster: str | None, nproc: int) -> list[Process]:
    """Return the predicted step of an artefact, as one trace process for each distinct rank.

    ``cluster``: the cluster to predict for; None for this machine's CPUs, which gives no prediction for GPUs.
    Raises MeshDoesNotFit, and the errors of finding a cluster.
    """
    found = _cluster(cluster, nproc)
    return [] if found is None else trace_of_module(read_module(_program(folder)), found)


def write_run_trace(predicted: list[Process], recorded: Path, trace: Path) -> None:
    """Write the ranks' recorded timelines, each beside its prediction. Raises UnwritableOutput."""
    measured = measured_processes(read_text(recorded))
    write_trace_file(trace, sorted([*predicted, *measured], key=lambda process: process.rank))


def _cluster(name: str | None, nproc: int) -> Cluster | None:
    import torch

    if name is None and torch.cuda.is_available():
        return None
    return cluster_of(name or f"local-{nproc}")


def _program(folder: Path) -> Path:
    """Return the file of the level-3 program; for a pipeline, the one cut into stages."""
    cut = folder / "levels" / "3-pipeline.mlir"
    return cut if cut.is_file() else folder / "levels" / "3-rank.mlir"
