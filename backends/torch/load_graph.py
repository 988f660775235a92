"""Loading of a graph's program, as a Python function, from its text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module

import torch

from shardc.runtime.check import Json
from shardc.runtime.first_run import FirstRun, called_operators
from shardc.runtime.kernels import pool
from shardc.runtime.kernels.loaders import Kernels
from shardc.runtime.source import listed
from shardc.runtime.torch_private import direct_call

_DEFINED_BY = {
    "shardc.attention": "shardc.runtime.operators.attention",
    "shardc.convolution": "shardc.runtime.operators.convolution",
    "shardc.linear_cross_entropy": "shardc.runtime.operators.linear_cross_entropy",
}
"""Modules to import, because a process that does not trace has not imported them."""


def load_graph(
    text: str, library: Kernels | None = None, strict: bool = True
) -> Callable[..., tuple[object, ...]]:
    """Return the program's function. For wrong results its first run raises if ``strict``, else it warns."""
    for op, module in _DEFINED_BY.items():
        if f"torch.ops.{op}" in text:
            import_module(module)
    names: Json = {"empty": pool.contiguous}
    if library is not None:
        names |= {"kernel": library.kernel, "kernels": library.batch}
    exec(compile(text, listed(text, "shardc graph"), "exec"), names)
    ops = called_operators(names)
    # Skips one Python call of each operator call, which is a quarter of a small op's time.
    names |= {name: direct_call(op) for name, op in ops.items()}
    FirstRun(text, names, ops, strict)
    return names["graph"]


def current(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which kernels are launched on ``device``."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
