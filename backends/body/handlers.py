"""Registration of functions that emit or run structured ops, by a decorator instead of a list.

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
    """Register a function as its package's handler of ``ops``."""

    def mark(function: F) -> F:
        names = [op.OPERATION_NAME for op in ops]
        _HANDLERS.setdefault(function.__module__, {}).update(dict.fromkeys(names, function))
        return function

    return mark


@cache
def handlers(*packages: str) -> Mapping[str, Callable[..., Any]]:
    """Import all modules of ``packages``; return op -> its handler there."""
    modules = [f"{p}.{module.name}" for p in packages for module in iter_modules(import_module(p).__path__)]
    for module in modules:
        import_module(module)
    return {name: f for module in modules for name, f in _HANDLERS.get(module, {}).items()}
