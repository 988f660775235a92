"""PyTorch's hash of a graph without loading what it asks Inductor for, on which no graph of ours depends: 0.8 s."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

import torch
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import codecache

P = ParamSpec("P")
R = TypeVar("R")

_WRAPPER = "torch._inductor.codegen.wrapper"
"""Loads Inductor's scheduler, IR and Triton heuristics: 0.3 s."""


def without_inductor(hash_of: Callable[P, R]) -> Callable[P, R]:
    """``hash_of`` with three questions answered beforehand.

    Custom passes of Inductor's code generators: none. Triton kernels that the graph calls: none, and the source of
    those that it has loads its module when it is asked for. The hash of all of Triton's files: PyTorch throws it away
    where there is no GPU.
    """

    @functools.wraps(hash_of)
    def lean(*args: P.args, **kwargs: P.kwargs) -> R:
        with ExitStack() as stack:
            stack.enter_context(patch.object(codecache, "init_backend_registration"))
            stack.enter_context(patch.object(autograd_cache, "has_triton_package", lambda: False))
            if not torch.cuda.is_available():
                stack.enter_context(patch.object(codecache, "triton_key", lambda: None))
            stack.enter_context(loaded_later(_WRAPPER))
            return hash_of(*args, **kwargs)

    return lean


@contextmanager
def loaded_later(name: str) -> Iterator[None]:
    """Inside the block a module that is not loaded yet is loaded when something of it is called."""
    if name in sys.modules:
        yield
        return
    later = sys.modules[name] = _Later(name)
    try:
        yield
    finally:
        if sys.modules.get(name) is later:
            del sys.modules[name]


class _Later(ModuleType):
    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
            return getattr(import_module(self.__name__), name)(*args, **kwargs)

        return call
