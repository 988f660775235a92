"""Checks of ``compile_step``'s arguments other than options. They run before anything is traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import distributed

from shardc.diagnostics.api import BadArgument, MeshNotGiven
from shardc.environment import WORLD_SIZE
from shardc.options.field import describe
from shardc.options.parallelism import Parallelism


def check_arguments(arguments: Mapping[str, object]) -> None:
    """Raise BadArgument for the first argument of the wrong kind. ``arguments``: name -> value."""
    for name, (is_right, expected, hint) in RULES.items():
        if name in arguments and not is_right(arguments[name]):
            given, where = describe(arguments[name]), f"{name}="
            raise BadArgument(argument=name, given=given, expected=expected, hint=hint, where=where)


def one_device(parallelism: object) -> dict[str, int] | None:
    """Return the default of ``mesh=``: one device, or None if ``parallelism=`` has a mesh.

    Raises MeshNotGiven if several processes run.
    """
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
    """Return torchrun's number of processes, or the process group's; None if neither exists."""
    if WORLD_SIZE.text() is None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return world_size()


def world_size() -> int | None:
    """Return torchrun's ``WORLD_SIZE``; None if it is unset. Raises BadArgument if it is no number."""
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
"""Argument -> (predicate of valid values, the expected kind in words, hint for the user)."""
