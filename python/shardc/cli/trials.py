"""``shardc trials``: exports, imports, prunes and summarizes the tuning database."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from shardc.cli.options import Count

trials = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@trials.callback()
def _trials() -> None:
    """Manage the measurements of shardc tune ($SHARDC_TUNING_DB, else beside the cache of kernels).

    \b
    Examples:
      shardc trials export all.jsonl
      shardc trials import all.jsonl
      shardc trials prune --keep 8
      shardc trials ranges --bound 1.05
    """


@trials.command("export")
def export(
    path: Annotated[Path, Argument(dir_okay=False, help="File of JSON lines to write.")],
    best: Annotated[bool, Option("--best", help="Only the best trial of each kernel.")] = False,
) -> None:
    """Write the trials to a file, for another machine of the same kind."""
    from shardc.commands.trials import export_trials

    print(export_trials(path, best))


@trials.command("import")
def import_(
    path: Annotated[
        Path,
        Argument(exists=True, dir_okay=False, help="File that export wrote, or another tuning database."),
    ],
) -> None:
    """Add the new trials of a file, all or none."""
    from shardc.commands.trials import import_trials

    print(import_trials(path))


@trials.command("prune")
def prune(
    keep: Annotated[int, Option(min=1, help="Trials of each kernel to keep, the fastest.")] = 16,
) -> None:
    """Delete trials that no compile would use: all but the fastest of today's code generators."""
    from shardc.commands.trials import prune_trials

    print(prune_trials(keep))


@trials.command("ranges")
def ranges(
    bound: Annotated[
        float, Option(min=1.0, help="Allowed ratio of a configuration's time to the best time at that size.")
    ] = 1.05,
    most: Annotated[
        Count, Option(min=1, help="Maximum number of configurations, even if the bound is exceeded.")
    ] = None,
    target: Annotated[
        str | None, Option(help="Target as the database names it. If not given, this machine's CPU.")
    ] = None,
) -> None:
    """Print the fewest configurations for each kernel that was measured at several sizes."""
    from shardc.commands.trials import ranges_text

    print(ranges_text(bound, most, target))
