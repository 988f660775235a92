"""The arguments of ``compile_step`` that are no options, looked at before anything is traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import distributed

from shardc.diagnostics.api import BadArgument, MeshNotGiven
from shardc.environment import WORLD_SIZE
from shardc.options.field import describe
from shardc.options.parallelism import Parallelism


def check_arguments(arguments: Mapping[str, object]) -> None:
    """Raises BadArgument for the first of ``compile_step``'s arguments, by name, that is of a wrong kind."""
    for name, (is_right, expected, hint) in RULES.items():
        if name in arguments and not is_right(arguments[name]):
            given, where = describe(arguments[name]), f"{name}="
            raise BadArgument(argument=name, given=given, expected=expected, hint=hint, where=where)


def one_device(parallelism: object) -> dict[str, int] | None:
    """The mesh where no ``mesh=`` is given: one device; None if the group has one. Raises MeshNotGiven."""
    held = isinstance(parallelism, Parallelism) or (
        isinstance(parallelism, Mapping) and parallelism.get("mesh") is not None
    )
    if held:
        return None
    world = world_size()
    if world is not None and world > 1:
        raise MeshNotGiven(world=world, where="mesh=")
    return {"data": 1}


def processes() -> int | None:
    """How many processes torchrun started, or are in the process group; None where there is neither."""
    if WORLD_SIZE.text() is None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return world_size()


def world_size() -> int | None:
    """How many processes torchrun started; None if it started none. Raises BadArgument for no number."""
    text = WORLD_SIZE.text()
    if text is not None and not text.isdecimal():
        raise BadArgument(
            argument="the environment variable WORLD_SIZE",
            given=repr(text),
            expected="a number of processes",
            hint="start the script with torchrun, which sets it, or unset it",
        )
    return None if text is None else int(text)


Rule = tuple[Callable[[object], bool], str, str]

RULES: dict[str, Rule] = {
    "model": (
        lambda v: isinstance(v, torch.nn.Module),
        "a torch.nn.Module",
        "wrap a function in a module whose forward calls it",
    ),
    "optimizer": (
        lambda v: isinstance(v, torch.optim.Optimizer),
        "an optimizer of torch.optim",
        "build it from the model's parameters: torch.optim.AdamW(model.parameters())",
    ),
    "loss": (
        lambda v: v is None or callable(v),
        "a function",
        "pass loss=fn, called as fn(output, batch), that returns one number",
    ),
    "state": (
        lambda v: v is None or isinstance(v, Mapping) or callable(v),
        "a state dict or a function",
        "pass model.state_dict(), or a function (name, shape, dtype, slices) -> tensor that makes each block",
    ),
}
"""Argument -> whether a value will do, what is expected in words, what to do."""
