"""``shardc run``: trains with a compiled folder on processes of this machine."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from shardc.cli.options import Count, File, Libraries, Texts
from shardc.diagnostics.runtime import NotOfASource

STEPS = 10
"""Default number of training steps of a compiled folder."""


def run(
    source: Annotated[
        Path,
        Argument(
            exists=True,
            metavar="FOLDER|SCRIPT",
            help="Folder that shardc compile wrote, or Python script that calls compile_step.",
        ),
    ],
    nproc: Annotated[int, Option("--nproc", "-n", min=1, help="Processes to start: the size of the mesh.")],
    arguments: Annotated[Texts, Argument(help="Arguments of the script.")] = None,
    steps: Annotated[int | None, Option(min=1, help="Training steps to run.  [default: 10]")] = None,
    load: Annotated[
        File, Option(exists=True, file_okay=False, help="Checkpoint folder to start from.")
    ] = None,
    save: Annotated[File, Option(help="Checkpoint folder to write at the end.")] = None,
    trace: Annotated[
        File,
        Option(
            dir_okay=False,
            help="Write the last step, measured and predicted: .pftrace for Perfetto, .json for Chrome.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        Option("--cluster", "-c", help="Cluster of the prediction. If not given, this machine's processors."),
    ] = None,
    libraries: Libraries = None,
    elastic: Annotated[
        Count,
        Option(
            "--elastic",
            min=1,
            help="Ranks that a script may lose; it is started again with those that are left.",
        ),
    ] = None,
) -> None:
    """Train with a compiled folder on processes of this machine, and print the loss of each step.

    A script runs as it does under torchrun. With --elastic, it is started again on fewer processes when a
    rank is killed. It loads its last checkpoint, and plan="auto" without a mesh plans for the ranks left.

    On a cluster, start the folder's own program with torchrun instead.

    \b
    Examples:
      shardc run out/ --nproc 4 --steps 10
      shardc run out/ --nproc 4 --load checkpoints/step10 --save checkpoints/step20
      shardc run out/ --nproc 4 --trace run.pftrace
      shardc run train.py --nproc 4 --elastic 2
    """
    if sys.stderr.isatty():  # no spinner: the processes print to the same terminal
        print(f"starting {nproc} processes", file=sys.stderr)
    files = {"load": load, "save": save, "trace": trace}
    of_folder = {**files, "steps": steps, "cluster": cluster, "import": libraries}
    if source.is_file():
        _refuse(source, of_folder, "script", "folder")
        from shardc.commands.runs.run_script import run_script

        raise typer.Exit(run_script(source, nproc, arguments or (), elastic or 0))
    _refuse(source, {"elastic": elastic, "arguments": arguments}, "folder", "script")
    from shardc.commands.run import run_artefact

    raise typer.Exit(run_artefact(source, nproc, steps or STEPS, files, libraries or (), cluster))


def _refuse(source: Path, options: Mapping[str, object], kind: str, other: str) -> None:
    """Raise NotOfASource for a given option that applies only to the other kind of source."""
    for name, value in options.items():
        if value:
            shown = f"--{name}" if name != "arguments" else "an argument of a script"
            where = f"shardc run {source}"
            raise NotOfASource(option=shown, other=other, source=source, kind=kind, where=where)
