"""``shardc tune``: searches the tile configurations of a model's kernels."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from shardc.cli.flag_texts import parse_pins
from shardc.cli.options import Count, File, Texts, read_kernels, with_options
from shardc.cli.progress import tuning
from shardc.options.kernels import Kernels
from shardc.runtime.report.progress import work
from shardc.text_files import check_writable, write_text


@with_options(Kernels, only=("target", "matmuls"))
def tune(
    path: Annotated[
        Path,
        Argument(
            exists=True,
            metavar="SCRIPT|FOLDER|MLIR",
            help="Script with build(), folder that shardc compile wrote, or level-4 MLIR.",
        ),
    ],
    trials: Annotated[Count, Option(min=0, help="Points to try, over all kernels.")] = None,
    seconds: Annotated[float | None, Option(min=0.0, help="Time for the search.")] = None,
    strategy: Annotated[
        str, Option(help="evolutionary, analytic (in the order of the estimates), random or exhaustive.")
    ] = "evolutionary",
    seed: Annotated[int, Option(help="Seed of the random draws; equal seeds try the same points.")] = 0,
    regret: Annotated[
        float,
        Option(
            min=0.0, max=1.0, help="Stop when going on is expected to save less than this share of the time."
        ),
    ] = 0.01,
    pin: Annotated[
        Texts, Option(metavar="NAME=VALUE", help="Fix a parameter at a value in all kernels that have it.")
    ] = None,
    points: Annotated[
        File,
        Option(
            exists=True,
            dir_okay=False,
            metavar="JSON",
            help="File that pins values, and forbids and adds points.",
        ),
    ] = None,
    space: Annotated[bool, Option("--space", help="Print the search spaces, and try nothing.")] = False,
    resume: Annotated[
        bool, Option(help="Reuse trials of earlier sessions instead of repeating them.")
    ] = True,
    plot: Annotated[
        File, Option(dir_okay=False, metavar="SVG", help="Write a picture of the best so far of each kernel.")
    ] = None,
    *,
    given: Mapping[str, object],
) -> None:
    """Search tile configurations for a model's kernels, by measurement, or by models if the GPU is absent.

    Every trial is recorded: an interrupted search continues when it is started again, and later compiles use
    the best configurations. Without a budget, the search ends when continuing is not expected to pay off.

    \b
    Examples:
      shardc tune train.py --seconds 300
      shardc tune out/ --trials 200 --plot best.svg
      shardc tune train.py --target sm_90
      shardc tune train.py --space
    """
    kernels = read_kernels(given)
    pins = parse_pins(pin or [])
    check_writable(plot)
    with work(f"reading the kernels of {path.name}"):
        from shardc.commands import tune as commands
        from shardc.report.tuning_svg import tuning_svg
        from shardc.report.tuning_text import spaces_text, tuning_text

        constraints = commands.constraints_of(pins, points)
        jobs = commands.jobs_of(path, kernels.target, kernels.matmuls)
    if space:
        print(spaces_text(jobs, commands.constrained_spaces(jobs, constraints)))
        return
    interrupted = False
    budget, search = commands.Budget(trials, seconds, regret), commands.Search(strategy, seed, resume)
    with tuning() as on_round:
        try:
            result = commands.tune_found(jobs, budget, search, constraints, on_round)
        except commands.TuningInterrupted as error:
            result, interrupted = error.result, True
    print(tuning_text(result))
    if plot is not None:
        write_text(plot, tuning_svg(result))
    if interrupted:
        raise KeyboardInterrupt
