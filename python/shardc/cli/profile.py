"""``shardc profile``: what a program's calls take on this machine."""

from typing import Annotated

from typer import Option

from shardc.cli.options import Artefact, Libraries
from shardc.runtime.report.progress import work


def profile(
    folder: Artefact,
    steps: Annotated[int, Option(min=1, help="Training steps whose calls are timed.")] = 15,
    again: Annotated[bool, Option("--again", help="Repeat measurements that were made before.")] = False,
    libraries: Libraries = None,
) -> None:
    """Measure the calls of a compiled folder's program on this machine's CPU, and add up a step's time.

    The program trains on all of its processes, which share the cores as they do in shardc run. Figures are
    stored beside those of shardc tune; calls that were measured before are not measured again.

    \b
    Examples:
      shardc profile out/
      shardc profile out/ --steps 30 --again
    """
    with work(f"profiling {folder.name}"):
        from shardc.commands.profile import profile as profile_

        text = profile_(folder, steps, again, libraries or ())
    print(text)
