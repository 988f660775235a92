"""Python state that a forward might change, as comparable values; a copied call changes none of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from types import CodeType, FunctionType

import torch

from shardc.frontend.step.fold.signature import described
from shardc.frontend.step.frozen import LONGEST, PLAIN, Thing, Values, python_values

_OURS = ("torch.", "shardc.")


def effects(module: torch.nn.Module) -> Values:
    """Return the Python state that a module's forward can change.

    It consists of attributes of the module, its submodules, the objects that they hold and their classes, and
    global variables that their methods read.
    """
    found = python_values({name: inner for name, inner in module.named_modules()})
    things = (value.held for value in found.values() if isinstance(value, Thing))
    objects = {str(id(thing)): vars(thing) for thing in things if _has_state(thing)}
    spaces = {**objects, **{str(id(base)): vars(base) for base in _classes(module)}}
    for where, held in spaces.items():
        found |= {(where, name): described(value) for name, value in held.items() if _may_change(value)}
    for function in _methods(module):
        names = set(_names(function.__code__)) & function.__globals__.keys()
        held = {name: function.__globals__[name] for name in names}
        found |= {(function.__module__, name): described(v) for name, v in held.items() if _may_change(v)}
    return found


def _has_state(value: object) -> bool:
    is_known = isinstance(value, torch.nn.Module | torch.Tensor | type) or callable(value)
    return not is_known and hasattr(value, "__dict__")


def _may_change(value: object) -> bool:
    """Return whether to compare a value: numbers and containers, but no large tables."""
    return isinstance(value, PLAIN) or (isinstance(value, list | dict | tuple) and len(value) <= LONGEST)


def _classes(module: torch.nn.Module) -> set[type]:
    """Return the users' classes among those of a module and its submodules."""
    every = chain.from_iterable(type(inner).__mro__ for inner in module.modules())
    return {base for base in every if base is not object and not base.__module__.startswith(_OURS)}


def _methods(module: torch.nn.Module) -> Iterable[FunctionType]:
    values = chain.from_iterable(vars(base).values() for base in _classes(module))
    return [value for value in values if isinstance(value, FunctionType)]


def _names(code: CodeType) -> Iterator[str]:
    """Yield the global names in a function and its inner functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
