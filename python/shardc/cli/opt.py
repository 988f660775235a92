"""``shardc opt``: runs passes on MLIR, as MLIR's own opt tools do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shardc.diagnostics.cli import UnreadableInput, UnwritableOutput

STDIN = "-"


def opt(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE] [--PASS[=OPTIONS]]...",
            help="MLIR file, - (the default) for standard input; passes.",
        ),
    ] = None,
    pipeline: Annotated[
        str,
        typer.Option("--pipeline", "--pass-pipeline", help="Passes and named pipelines in MLIR's syntax."),
    ] = "",
    output: Annotated[
        str, typer.Option("--output", "-o", help="File to write; - is standard output.")
    ] = STDIN,
    verify_each: Annotated[bool, typer.Option(help="Verify the IR after each pass.")] = True,
    print_ir_after_all: Annotated[
        bool, typer.Option("--print-ir-after-all", help="Print the IR after each pass on standard error.")
    ] = False,
    split_input_file: Annotated[
        bool, typer.Option("--split-input-file", help="Treat the parts between // ----- lines one by one.")
    ] = False,
    verify_diagnostics: Annotated[
        bool,
        typer.Option(
            "--verify-diagnostics", help="Errors must be those of the // expected-error@+1 {{text}} comments."
        ),
    ] = False,
    mlir_print_debuginfo: Annotated[
        bool, typer.Option("--mlir-print-debuginfo", help="Print locations.")
    ] = False,
    allow_unregistered_dialect: Annotated[
        bool,
        typer.Option("--allow-unregistered-dialect", help="Accept ops of dialects that nobody registered."),
    ] = False,
    list_passes: Annotated[
        bool, typer.Option("--list-passes", help="Print all passes with their options, and all pipelines.")
    ] = False,
) -> None:
    """Run passes on MLIR and print what they leave.

    Passes are given as flags, in order, or as one pipeline. Passes of MLIR's own work too.

    \b
    Examples:
      shardc opt --canonicalize --cse step.mlir
      shardc opt step.mlir --pipeline 'dist-propagate{max-iterations=4},func.func(cse)' -o out.mlir
      shardc opt --list-passes
    """
    from shardc.driver import opt as driver
    from shardc.driver import pipelines

    if list_passes:
        print(pipelines.describe_all())
        return
    file, flags = _split_arguments(arguments or [])
    if flags and pipeline:
        raise typer.BadParameter("give passes as flags or as a --pipeline, not both")
    options = driver.OptOptions(
        verify_each=verify_each,
        print_ir_after_all=print_ir_after_all,
        split_input_file=split_input_file,
        verify_diagnostics=verify_diagnostics,
        mlir_print_debuginfo=mlir_print_debuginfo,
        allow_unregistered_dialect=allow_unregistered_dialect,
    )
    name = "<stdin>" if file == STDIN else file
    _write(output, driver.run_pipeline(_read(file), name, pipeline or ",".join(flags), options))


def _split_arguments(arguments: list[str]) -> tuple[str, list[str]]:
    """The input file and the passes; ``--canonicalize=max-iterations=3`` is one with an option."""
    files = [argument for argument in arguments if argument == STDIN or not argument.startswith("-")]
    if len(files) > 1:
        raise typer.BadParameter(f"give one input file, not {len(files)}: {', '.join(files)}")
    flags = []
    for argument in arguments:
        if argument not in files:
            name, _, options = argument.lstrip("-").partition("=")
            flags.append(f"{name}{{{options}}}" if options else name)
    return (files or [STDIN])[0], flags


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableInput(file=file, problem=_reason(error)) from error


def _write(file: str, text: str) -> None:
    if file == STDIN:
        print(text, end="")
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnwritableOutput(file=file, problem=_reason(error)) from error


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
