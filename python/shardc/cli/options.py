"""Command-line flags derived from the fields of options, and parameters that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from shardc.diagnostics.options import OldSpelling
from shardc.options.field import Group, Option, choices, flag, options_of
from shardc.options.given import OLD_NAMES, Given
from shardc.options.kernels import Kernels

Artefact = Annotated[Path, Argument(exists=True, file_okay=False, help="Folder that shardc compile wrote.")]
Command = Callable[..., None]
File = Path | None
Count = int | None
Texts = list[str] | None
Libraries = Annotated[
    Texts,
    typer.Option("--import", metavar="MODULE", help="Module or .py file that registers custom operators."),
]

OLD_SCHEDULE_FLAGS = {"--microbatches": "--micro-batches", "--memory": "--memory-limit"}
OLD_FLAGS = {flag(old): flag(new) for old, new in OLD_NAMES.items()}
"""Flags of earlier versions, of ``shardc schedule`` and of the other commands, and their new names."""


def refuse_old_flags(arguments: Sequence[str]) -> None:
    """Raise OldSpelling for a flag of an earlier version.

    ``shardc opt`` has none: its passes are flags, too.
    """
    command = next((argument for argument in arguments if not argument.startswith("-")), "")
    old = {"schedule": OLD_SCHEDULE_FLAGS, "opt": {}}.get(command, OLD_FLAGS)
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in old:
            raise OldSpelling(old=name, new=old[name], where=f"shardc {command}")


def read_kernels(given: Mapping[str, object]) -> Kernels:
    """Return the kernel options among those that a command received, checked."""
    kernels = Given(given, "the command line", ("kernels",)).group("kernels", Kernels)
    kernels.check_step()
    return kernels


def with_options(
    *groups: type[Group], only: Sequence[str] = (), optional: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Decorate a command so that the options of ``groups`` become flags beside its own parameters.

    The command receives the options that the user gave as the mapping ``given``, by name. They are parsed,
    but not checked.

    Args:
        groups: Option groups to take flags from.
        only: Names of the options to take. Default: all that have a flag.
        optional: Options that their group requires but this command does not.
    """
    options = [option for group in groups for option in options_of(group).values()]
    flags = [o for o in options if (o.name in only if only else _has_flag(o))]
    return lambda command: _derive(command, flags, optional)


def _has_flag(option: Option) -> bool:
    return option.about.has_flag and option.about.only != "torch.compile"


def _derive(command: Command, options: Sequence[Option], optional: Sequence[str]) -> Command:
    def derived(**arguments: object) -> None:
        given = {option.name: arguments.pop(option.name) for option in options}
        read = {o.name: o.read(given[o.name]) for o in options if given[o.name] not in (None, [])}
        command(**arguments, given=read)

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != "given"]
    required = [p for p in parameters if p.default is p.empty]
    others = [p for p in parameters if p.default is not p.empty]
    derived.__doc__, derived.__name__, derived.__annotations__ = command.__doc__, command.__name__, {}
    flags = [_parameter(option, option.is_required and option.name not in optional) for option in options]
    signature = inspect.Signature([*required, *flags, *others])
    derived.__signature__ = signature  # type: ignore[attr-defined]
    return derived


def _parameter(option: Option, is_required: bool) -> inspect.Parameter:
    """Return the parameter from which typer builds an option's flag."""
    names = [flag(option.name), *([f"-{option.about.short}"] if option.about.short else [])]
    if option.type is bool and option.default:
        names = [f"{names[0]}/{flag(f'no-{option.name}')}"]
    metavar = option.about.hint.metavar or "|".join(choices(option.type)) or None
    info = typer.Option(*names, metavar=metavar, help=option.about.help + _default(option.default))
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if is_required else None,
        annotation=Annotated[_flag_type(option, is_required), info],
    )


def _flag_type(option: Option, is_required: bool) -> object:
    kind = option.type if option.type in (bool, int) else float if option.type == float | None else str
    kind = list[str] if option.is_list else kind
    return kind if is_required else kind | None  # type: ignore[operator]


def _default(default: object) -> str:
    """Return the note on a default; only names and numbers are shown."""
    is_shown = isinstance(default, str | int) and not isinstance(default, bool)
    return f"  [default: {default}]" if is_shown else ""
