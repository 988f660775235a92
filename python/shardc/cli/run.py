"""``shardc run``: trains with a compiled folder on processes of this machine."""

import sys
from typing import Annotated

import typer
from typer import Option

from shardc.cli.options import Artefact, File, Libraries


def run(
    folder: Artefact,
    nproc: Annotated[int, Option("--nproc", "-n", min=1, help="Processes to start: the size of the mesh.")],
    steps: Annotated[int, Option(min=1, help="Training steps to run.")] = 10,
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
        Option("--cluster", "-c", help="Cluster of the prediction; this machine's processors if not given."),
    ] = None,
    libraries: Libraries = None,
) -> None:
    """Train with a compiled folder on processes of this machine, and print the loss of each step.

    On a cluster, start the folder's own program with torchrun instead.

    \b
    Examples:
      shardc run out/ --nproc 4 --steps 10
      shardc run out/ --nproc 4 --load checkpoints/step10 --save checkpoints/step20
      shardc run out/ --nproc 4 --trace run.pftrace
    """
    from shardc.commands.run import run_artefact

    if sys.stderr.isatty():  # no spinner: the processes print to the same terminal
        print(f"starting {nproc} processes", file=sys.stderr)
    files = {"load": load, "save": save, "trace": trace}
    raise typer.Exit(run_artefact(folder, nproc, steps, files, libraries or (), cluster))
