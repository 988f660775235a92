"""``shardc check``: proves a compiled folder equal to the single-device program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardc.cli.progress import status

CHECK_FAILED = 1


def check(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="Folder that shardc compile wrote.")
    ],
    steps: Annotated[int, typer.Option(min=1, help="Training steps to compare.")] = 3,
    libraries: Annotated[
        list[str] | None,
        typer.Option(
            "--import", metavar="MODULE", help="Module or .py file that registers custom operators."
        ),
    ] = None,
) -> None:
    """Prove a compiled folder equal to the single-device program.

    Simulates all ranks in this process and compares losses, gradients, updated parameters and
    optimizer state.
    Exits with 0 if they are equal and with 1 if not.

    \b
    Example:
      shardc check out/ --steps 3
    """
    with status(f"checking {folder}"):
        from shardc.commands.check import check_artefact

        report = check_artefact(folder, steps, libraries or ())
    print(report.render())
    if not report.passed:
        raise typer.Exit(CHECK_FAILED)
