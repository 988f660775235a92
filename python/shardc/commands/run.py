"""``shardc run``: trains with an artefact on processes of this machine, through torchrun."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shardc.artefact.folder import read_kernels, read_manifest
from shardc.artefact.manifest import Manifest
from shardc.cache.scratch import scratch
from shardc.commands.runs.run_trace import predicted_run, write_run_trace
from shardc.compiler.profiling.conditions import conditions
from shardc.diagnostics.runtime import BadCheckpointFolder, MeshSizeMismatch, RankFailed, RankRefused
from shardc.environment import LAUNCHER, OMP_NUM_THREADS, changed
from shardc.runtime.comm.mesh import Mesh
from shardc.text_files import check_writable, writing
from shardc.tuner.database.place import database_path
from shardc.tuner.database.profiles import read_program

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

SEEN = "look at what that rank printed above"
KILLED = "look at the machine's memory first: a killed process is most often one that took too much of it"

SIGNALLED = 128
"""Offset that shells add to the number of the signal that ended a process."""


def run_artefact(
    folder: Path,
    nproc: int,
    steps: int,
    options: Mapping[str, Path | None] | None = None,
    libraries: Sequence[str] = (),
    cluster: str | None = None,
) -> int:
    """Train ``steps`` steps on ``nproc`` processes, which print to this process's output. Returns 0.

    Args:
        folder: Folder of the artefact.
        nproc: Processes to start; must be the mesh's size.
        steps: Training steps.
        options: Paths by name: ``load`` and ``save`` (checkpoint folders), ``batches`` (a safetensors file)
            and ``trace`` (file for the timeline of the last step).
        libraries: Modules or files that each process imports first, which register custom operators.
        cluster: Cluster of the prediction that the trace shows beside the measurement.

    Raises:
        BadArtefact, MeshSizeMismatch, BadCheckpointFolder: Before any process starts. So do errors of finding
            the cluster.
        RankFailed, RankRefused: Names the rank that failed first; RankRefused is for bad input.
    """
    folder = folder.absolute()
    manifest = read_manifest(folder)
    mesh = Mesh.read(manifest["mesh"])
    if mesh.world_size != nproc:
        shown, where = mesh.describe(), str(folder)
        raise MeshSizeMismatch(mesh_size=mesh.world_size, mesh=shown, nproc=nproc, where=where)
    read_kernels(folder, manifest)
    given = {name: path for name, path in (options or {}).items() if path is not None}
    _check_checkpoints(given.get("load"), given.get("save"))
    trace = given.pop("trace", None)
    check_writable(trace)
    foreseen = [] if trace is None else predicted_run(folder, cluster, nproc)
    arguments = ["--steps", str(steps)]
    if (folder / "runtime" / "report" / "measured.py").is_file():  # compiled by this version, or a later one
        arguments += ["--report"]
        arguments += _predicted(manifest, nproc)
    for name, path in given.items():
        arguments += [f"--{name}", str(path.absolute())]
    with scratch() as made:
        recorded = Path(made) / "recorded.json"
        if trace is not None:
            arguments += ["--trace", str(recorded)]
        launch(folder, nproc, arguments, libraries)
        if trace is not None:
            write_run_trace(foreseen, recorded, trace)
    return 0


def _predicted(manifest: Manifest, nproc: int) -> list[str]:
    """Return the prediction of ``shardc profile`` as arguments; empty if it was not run."""
    if not database_path().is_file():
        return []
    found = read_program(conditions(nproc), program_hash(manifest))
    if found is None:
        return []
    return ["--predicted-s", str(found.seconds), "--planned-bytes", str(found.peak_bytes)]


def program_hash(manifest: Manifest) -> str:
    """Return the hash that identifies the program of an artefact."""
    return manifest["files"]["program.py"]["sha256"]


def launch(folder: Path, nproc: int, arguments: Sequence[str], libraries: Sequence[str] = ()) -> None:
    """Start an artefact's own program on ``nproc`` processes. Raises RankFailed, RankRefused."""
    whole = ["--standalone", "--nproc-per-node", str(nproc), str(folder / "run.py"), *arguments]
    for library in libraries:
        whole += ["--import", str(Path(library).absolute()) if library.endswith(".py") else library]
    with changed(rank_environment()), scratch() as logs:
        _launch(["--log-dir", logs, *whole])  # without --log-dir torchrun leaves a folder behind each time


def _check_checkpoints(load: Path | None, save: Path | None) -> None:
    """Raise BadCheckpointFolder before training starts instead of after the last step."""
    from shardc.runtime.checkpoint.folder import find_checkpoint
    from shardc.runtime.errors import BadCheckpoint

    if load is not None:
        try:
            find_checkpoint(load)
        except BadCheckpoint as error:
            problem, hint = error.what.removeprefix("it "), "name one that --save or save_checkpoint wrote"
            raise BadCheckpointFolder(folder=load, problem=problem, hint=hint, where="--load") from None
    if save is not None:
        _check_save(save)


def _check_save(save: Path) -> None:
    from shardc.runtime.checkpoint.folder import is_for_checkpoints

    hint = "name a new or empty folder, or that of an older checkpoint"
    with writing(save):
        above = next(path for path in (save, *save.absolute().parents) if path.exists())
    if not above.is_dir():
        problem = "is not a folder" if above == save else f"cannot be made: {above} is not a folder"
        raise BadCheckpointFolder(folder=save, problem=problem, hint=hint, where="--save")
    if not os.access(above, os.W_OK):
        problem = f"cannot be written: {above} may not be written to"
        raise BadCheckpointFolder(folder=save, problem=problem, hint=hint, where="--save")
    if not is_for_checkpoints(save):
        problem = "is not empty and holds no checkpoint; it is not overwritten"
        raise BadCheckpointFolder(folder=save, problem=problem, hint=hint, where="--save")


def _launch(arguments: list[str]) -> None:
    """Call :func:`torchrun` and translate its errors to RankFailed and RankRefused."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        torchrun(arguments)
    except ChildFailedError as error:
        raise failure_of(error) from None


def torchrun(arguments: list[str]) -> None:
    """Run torchrun in this process; as a command it would report a failed rank only in a traceback.

    Raises KeyboardInterrupt for Ctrl-C and SystemExit for another signal, after the ranks have ended. Raises
    ChildFailedError if ranks failed.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException

    for name in ("torch.distributed.elastic", "torch.distributed.elastic.agent.server.api"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        run.run(run.parse_args(arguments))
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        raise SystemExit(SIGNALLED + error.sigval) from None


def failure_of(error: ChildFailedError) -> RankFailed:
    """Return shardc's error for the rank that failed first."""
    rank, failure = error.get_first_failure()
    refused = failure.exitcode == RankRefused.exit_code
    return (RankRefused if refused else RankFailed)(rank=rank, **_describe(failure.exitcode))


def _describe(exit_code: int) -> dict[str, str]:
    if exit_code >= 0:
        return {"how": f"ended with exit code {exit_code}", "hint": SEEN}
    name = signal.Signals(-exit_code).name
    return {"how": f"was killed by {name}", "hint": KILLED if name == "SIGKILL" else SEEN}


def rank_environment() -> dict[str, str | None]:
    """Return changes to the ranks' environment.

    They clear the import path, give ranks that share a CPU one thread each, and name the process with which
    the ranks must end.
    """
    import torch

    threads = OMP_NUM_THREADS.text() or (None if torch.cuda.is_available() else "1")
    # Silence PyTorch's profiler, which reports its start and memory allocated before it.
    quiet = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return {**quiet, "PYTHONPATH": None, OMP_NUM_THREADS.name: threads, LAUNCHER.name: str(os.getpid())}
