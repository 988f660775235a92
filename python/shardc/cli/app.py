"""The typer application with its global options; commands are registered here."""

from typing import Annotated

import typer
from typer import Option

from shardc.cli.check import check
from shardc.cli.compile import compile_
from shardc.cli.doctor import doctor
from shardc.cli.explain import explain
from shardc.cli.opt import opt
from shardc.cli.plan import plan
from shardc.cli.profile import profile
from shardc.cli.run import run
from shardc.cli.schedule import schedule
from shardc.cli.trials import trials
from shardc.cli.tune import tune

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import shardc

        print(f"shardc {shardc.__version__}")
        raise typer.Exit


@app.callback(
    epilog="Start with: shardc compile --help. "
    "Exit codes: 0 success, 1 a check or a rank failed, 2 bad input, 3 a bug in shardc."
)
def _global_options(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, Option("--debug", help="Show the Python traceback of an error. May follow the command too.")
    ] = False,
) -> None:
    """Compiles one PyTorch training step for any mesh of devices, and proves it equal to one device."""


app.command("compile", short_help="Compile a training step for a mesh into a folder of rank programs.")(
    compile_
)
app.command("run", short_help="Train with a compiled folder on processes of this machine.")(run)
app.command("check", short_help="Prove a compiled folder equal to the single-device program.")(check)
app.command("explain", short_help="Explain where shardings came from, and what the collectives cost.")(
    explain
)
app.command("doctor", short_help="Show what this machine has and what works.")(doctor)
app.command("plan", short_help="Estimate what plans cost on a cluster; nothing runs.")(plan)
app.command("profile", short_help="Measure a compiled folder's calls on this machine.")(profile)
app.command("schedule", short_help="Simulate a pipeline schedule, and draw it.")(schedule)
app.command("tune", short_help="Search the tile configurations of a model's kernels.")(tune)
app.add_typer(trials, name="trials", short_help="Export, import, prune and sum up measurements of tuning.")
app.command(
    "opt",
    short_help="Run passes on MLIR and print the result.",
    # Passes are flags that typer does not know, such as --dist-propagate; they arrive among the arguments.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True},
)(opt)
