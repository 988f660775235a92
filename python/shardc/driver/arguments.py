"""The arguments of ``compile_step``, looked at before anything is traced."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from shardc.diagnostics.api import BadArgument
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.fuse.choices import NUMERICS, STEP_MATMULS

AUTOCAST = (torch.bfloat16, torch.float16)
"""What torch's autocast computes in on every device."""


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raises BadArgument for the first of ``compile_step``'s arguments, by name, that is of a wrong kind."""
    for name, (is_right, expected, hint) in RULES.items():
        if name in arguments and not is_right(arguments[name]):
            raise BadArgument(
                argument=name,
                given=_describe(arguments[name]),
                expected=expected,
                hint=hint,
                where=f"{name}=",
            )


def world_size() -> int | None:
    """How many processes torchrun started; None if it started none. Raises BadArgument for what is no number."""
    text = os.environ.get("WORLD_SIZE")
    if text is None:
        return None
    if not text.isdecimal():
        raise BadArgument(
            argument="the environment variable WORLD_SIZE",
            given=repr(text),
            expected="a number of processes",
            hint="start the script with torchrun, which sets it, or unset it",
        )
    return int(text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_plan(plan: Any) -> bool:
    if isinstance(plan, Mapping):
        return all(isinstance(pattern, str) for pattern in plan)
    return isinstance(plan, str | Path)


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(name, str) for name in value)


def _is_edges(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(edge, str) for edge in value)


_EDGES = 'give pairs of ops as shardc explain --fusion names them, ["aten.add.Tensor+gelu@model.py:12"],'

Rule = tuple[Callable[[Any], bool], str, str]

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
    "mesh": (
        lambda v: isinstance(v, Mapping),
        "a mapping of axis names to sizes",
        'give names and sizes, as in mesh={"data": 2, "tensor": 2}',
    ),
    "plan": (
        _is_plan,
        "a preset's name, the path of a saved plan, or a mapping with name patterns as keys",
        'as in plan="data*tensor", plan="plan.json" or plan={"*.q_proj.weight": ["tensor", None]}',
    ),
    "loss": (
        lambda v: v is None or callable(v),
        "a function",
        "pass loss=fn, called as fn(output, batch), that returns one number",
    ),
    "clip_grad_norm": (
        lambda v: v is None or (_is_number(v) and v > 0),
        "a number above 0",
        "give the largest norm that the gradients may have together, such as 1.0, or None",
    ),
    "autocast": (
        lambda v: v is None or v in AUTOCAST,
        "torch.bfloat16, torch.float16 or None",
        "give the dtype itself, as in autocast=torch.bfloat16",
    ),
    "micro_batches": (
        lambda v: _is_whole(v) and v >= 1,
        "a whole number from 1",
        "give the number of parts that each rank's batch is cut into",
    ),
    "schedule": (
        lambda v: v is None or isinstance(v, str | Path | Schedule),
        "the name of a schedule, a CSV file, or a schedule",
        'as in schedule="1f1b" or schedule="mine.csv"',
    ),
    "stages": (
        lambda v: v is None or (_is_whole(v) and v >= 1) or _is_names(v),
        "a whole number from 1, or names of modules",
        'as in stages=4, or stages=["layers.8", "layers.16", "layers.24"] for the modules at which stages 1 to 3 start',
    ),
    "stale_weights": (
        lambda v: isinstance(v, bool),
        "True or False",
        "pass stale_weights=True for a schedule that updates weights while micro-batches are in flight",
    ),
    "recompute": (
        lambda v: v is None or isinstance(v, str) or _is_names(v),
        "none, full or selective, or a list of these with one for each stage",
        'as in recompute="full", or recompute=["selective", "none"] for two stages',
    ),
    "gather": (
        lambda v: v is None or isinstance(v, str),
        "micro-batch or step",
        'as in gather="step" for parameters that are gathered once a step and not for each micro-batch',
    ),
    "cap_bytes": (
        lambda v: v is None or (_is_number(v) and v > 0),
        "a number of bytes above 0",
        "give what each device may hold, as in cap_bytes=80e9, or None",
    ),
    "seed": (_is_whole, "a whole number", "give the seed of dropout and other random numbers, such as 0"),
    "fuse": (
        lambda v: isinstance(v, bool),
        "True or False",
        "pass fuse=False for a program of ATen calls alone",
    ),
    "numerics": (
        lambda v: v in NUMERICS,
        " or ".join(map(repr, NUMERICS)),
        '"fused" rounds 16-bit floats at a kernel\'s results, "eager" after each op, as PyTorch does',
    ),
    "matmuls": (
        lambda v: v in STEP_MATMULS,
        " or ".join(map(repr, STEP_MATMULS)),
        '"auto" takes what is faster, "extern" calls a library, "generated" computes them in kernels',
    ),
    "forbid_fusion": (_is_edges, "a list of edges", f"{_EDGES} that must not share a kernel"),
    "force_fusion": (_is_edges, "a list of edges", f"{_EDGES} that must share a kernel"),
    "state": (
        lambda v: v is None or isinstance(v, Mapping) or callable(v),
        "a state dict or a function",
        "pass model.state_dict(), or a function (name, shape, dtype, slices) -> tensor that makes each block",
    ),
}
"""Argument -> whether a value will do, what is expected in words, what to do."""


def _describe(value: Any) -> str:
    """A value in a message: numbers and text as they are, anything else by its type."""
    if value is None or isinstance(value, bool | int | float | str | torch.dtype):
        return repr(value)
    if isinstance(value, Mapping):
        keys = ", ".join(repr(key) for key in list(value)[:3])
        return f"a {type(value).__name__} with the keys {keys or 'none'}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"
