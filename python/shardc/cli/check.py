"""``shardc check``: proves a compiled folder equal to the single-device program."""

from typing import Annotated

import typer
from typer import Option

from shardc.cli.options import Artefact, Libraries
from shardc.runtime.report.progress import work

CHECK_FAILED = 1


def check(
    folder: Artefact,
    steps: Annotated[int, Option(min=1, help="Training steps to compare.")] = 3,
    libraries: Libraries = None,
) -> None:
    """Prove a compiled folder equal to the single-device program.

    Simulates all ranks in this process and compares losses, gradients, updated parameters and
    optimizer state. Exits with 0 if they are equal and with 1 if not.

    \b
    Example:
      shardc check out/ --steps 3
    """
    with work(f"checking {folder}"):
        from shardc.commands.check import check_artefact

        report = check_artefact(folder, steps, libraries or ())
    print(report.render())
    if not report.passed:
        raise typer.Exit(CHECK_FAILED)
