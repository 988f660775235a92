"""Who writes or runs which structured op, marked where it is defined: an op of ``kern`` needs no list.

@handles(ScatterAddOp)
def emit_scatter(body: Structured, module: ir.Module) -> Emitted: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from torch_mlir.dialects import ext

F = TypeVar("F", bound=Callable[..., Any])

_HANDLERS: dict[str, dict[str, Callable[..., Any]]] = {}
"""Module -> op -> function."""


def handles(*ops: type[ext.Operation]) -> Callable[[F], F]:
    """Marks a function as the one of its package for ``ops``."""

    def mark(function: F) -> F:
        names = [op.OPERATION_NAME for op in ops]
        _HANDLERS.setdefault(function.__module__, {}).update(dict.fromkeys(names, function))
        return function

    return mark


@cache
def handlers(*packages: str) -> Mapping[str, Callable[..., Any]]:
    """Op -> the function for it, of those in the modules of ``packages``, which are imported here."""
    modules = [f"{p}.{module.name}" for p in packages for module in iter_modules(import_module(p).__path__)]
    for module in modules:
        import_module(module)
    return {name: f for module in modules for name, f in _HANDLERS.get(module, {}).items()}
