"""``shardc opt``: runs passes on MLIR, as MLIR's own opt tools do."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from shardc.cli.options import Texts, with_options
from shardc.options.opt import OptOptions
from shardc.text_files import check_writable, reading, write_text

STDIN = "-"


@with_options(OptOptions)
def opt(
    arguments: Annotated[
        Texts,
        Argument(
            metavar="[FILE] [--PASS[=OPTIONS]]...",
            help="MLIR file, - (the default) for standard input; passes.",
        ),
    ] = None,
    pipeline: Annotated[
        str, Option("--pipeline", "--pass-pipeline", help="Passes and named pipelines in MLIR's syntax.")
    ] = "",
    output: Annotated[str, Option("--output", "-o", help="File to write; - is standard output.")] = STDIN,
    list_passes: Annotated[
        bool, Option("--list-passes", help="Print all passes with their options, and all pipelines.")
    ] = False,
    *,
    given: Mapping[str, bool],
) -> None:
    """Run passes on MLIR and print the result.

    Passes are given as flags, in order, or as one pipeline. MLIR's own passes work, too.

    \b
    Examples:
      shardc opt --canonicalize --cse step.mlir
      shardc opt step.mlir --pipeline 'canonicalize{max-iterations=4},func.func(cse)' -o out.mlir
      shardc opt --list-passes
    """
    from shardc.commands import opt as driver
    from shardc.passes.manager import pass_pipelines as pipelines

    if list_passes:
        print(pipelines.describe_all())
        return
    file, flags = _split_arguments(arguments or [])
    if flags and pipeline:
        raise typer.BadParameter("give passes as flags or as a --pipeline, not both")
    if output != STDIN:
        check_writable(Path(output))
    name = "<stdin>" if file == STDIN else file
    with reading(file):
        source = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    text = driver.run_pipeline(source, name, pipeline or ",".join(flags), OptOptions(**given))
    if output == STDIN:
        print(text, end="")
    else:
        write_text(Path(output), text)


def _split_arguments(arguments: list[str]) -> tuple[str, list[str]]:
    """Split the input file from the passes. ``--canonicalize=max-iterations=3`` is a pass with an option."""
    files = [argument for argument in arguments if argument == STDIN or not argument.startswith("-")]
    if len(files) > 1:
        raise typer.BadParameter(f"give one input file, not {len(files)}: {', '.join(files)}")
    passes = [argument.lstrip("-").partition("=") for argument in arguments if argument not in files]
    return (files or [STDIN])[0], [f"{name}{{{options}}}" if options else name for name, _, options in passes]
