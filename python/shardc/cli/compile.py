"""``shardc compile``: from a script with a model to a folder with a program for each rank."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from shardc.cli.options import with_options
from shardc.options.given import GROUPS
from shardc.options.parallelism import lacks_mesh
from shardc.options.step import StepOptions
from shardc.runtime.report.progress import work


@with_options(*GROUPS.values(), optional=("mesh",))
def compile_(
    script: Annotated[
        Path,
        Argument(exists=True, dir_okay=False, help="Python file with build(): model, optimizer and batch."),
    ],
    out: Annotated[Path, Option("--out", "-o", help="Folder to write. Replaced only if shardc wrote it.")],
    given: Mapping[str, object],
) -> None:
    """Compile a whole training step for a mesh and write a folder with a program for each rank.

    The script defines build(), which returns (model, optimizer, example_batch) and, if the model's output
    has no .loss, a function loss(output, batch). Needs no GPU and no second process. The folder runs with
    torch alone.

    \b
    Examples:
      shardc compile examples/llama.py --mesh data=2,tensor=2 --plan 'data*tensor' -o out/
      shardc compile examples/llama.py --mesh data=4 --plan zero3 --clip-grad-norm 1.0 -o out/
      shardc compile examples/llama.py --mesh pipe=2,data=2 --plan 'pipeline*data' --micro-batches 4 \\
        --schedule zb-h1 -o out/
      shardc compile examples/llama.py --plan auto --cluster h100-8 -o out/
    """
    options = None if lacks_mesh(given) else StepOptions.of(given, "the command line")
    with work(f"compiling {script.name}"):
        if options is None:
            from shardc.commands.compile import search_and_compile

            report = search_and_compile(script, out, given)
        else:
            from shardc.commands.compile import compile_script

            report = compile_script(script, out, options)
    print(report.render())
