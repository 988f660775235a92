"""``shardc run --trace``: a step as it was recorded, and as it was predicted, in one file."""

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
    """The predicted step of an artefact, a process for each distinct rank.

    ``cluster``: whose prediction it is; None for this machine's CPUs, of which a run on GPUs has none.
    Raises MeshDoesNotFit, and what finding a cluster does.
    """
    found = _cluster(cluster, nproc)
    return [] if found is None else trace_of_module(read_module(_program(folder)), found)


def write_run_trace(predicted: list[Process], recorded: Path, trace: Path) -> None:
    """Write what ranks ``recorded``, each beside its prediction. Raises UnwritableOutput."""
    measured = measured_processes(read_text(recorded))
    write_trace_file(trace, sorted([*predicted, *measured], key=lambda process: process.rank))


def _cluster(name: str | None, nproc: int) -> Cluster | None:
    import torch

    if name is None and torch.cuda.is_available():
        return None
    return cluster_of(name or f"local-{nproc}")


def _program(folder: Path) -> Path:
    """The program of level 3: of a pipeline, cut into stages."""
    cut = folder / "levels" / "3-pipeline.mlir"
    return cut if cut.is_file() else folder / "levels" / "3-rank.mlir"
