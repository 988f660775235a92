"""``shardc trials``: what tuning remembered, exported, imported, pruned and summed up."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from shardc.cli.options import Count

trials = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@trials.callback()
def _trials() -> None:
    """What shardc tune measured: the tuning database ($SHARDC_TUNING_DB, else beside the cache of kernels).

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
    """Add trials that are not there yet: all of a file, or none."""
    from shardc.commands.trials import import_trials

    print(import_trials(path))


@trials.command("prune")
def prune(
    keep: Annotated[int, Option(min=1, help="Trials of each kernel to keep, the fastest.")] = 16,
) -> None:
    """Drop what no compile would use: all but the fastest trials of today's code generators."""
    from shardc.commands.trials import prune_trials

    print(prune_trials(keep))


@trials.command("ranges")
def ranges(
    bound: Annotated[
        float, Option(min=1.0, help="Time over that with a size's own best that is allowed.")
    ] = 1.05,
    most: Annotated[Count, Option(min=1, help="Configurations at most, whatever is lost.")] = None,
    target: Annotated[
        str | None, Option(help="As the database names it; this machine's CPU if not given.")
    ] = None,
) -> None:
    """Print, of each kernel that was measured at several sizes, the fewest configurations for all of them."""
    from shardc.commands.trials import ranges_text

    print(ranges_text(bound, most, target))
