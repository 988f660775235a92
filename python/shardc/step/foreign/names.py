"""Patterns of module and parameter names in a plan, and what they match in a model."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from fnmatch import fnmatch

from torch import nn

from shardc.diagnostics.styles import PatternMatchesNoModule
from shardc.passes.plan.named_styles import name_pattern


def modules_named(model: nn.Module, pattern: str) -> list[tuple[str, nn.Module]]:
    """Return the modules that ``parallelize_module`` finds for a pattern.

    Each dotted part of the pattern matches one part of a name. The empty pattern matches the model itself.
    """
    found: list[tuple[str, nn.Module]] = [("", model)]
    for part in pattern.split(".") if pattern else ():
        children = ((path, name, m) for path, parent in found for name, m in parent.named_children())
        found = [(f"{path}.{name}".lstrip("."), m) for path, name, m in children if fnmatch(name, part)]
    return found


def matches_something(names: Iterable[str], pattern: str) -> bool:
    """Return True if a pattern of ``transformers`` matches one of the names of modules and parameters."""
    is_named = name_pattern(pattern).fullmatch
    return any(is_named(name) for name in names)


def names_of(model: nn.Module) -> list[str]:
    """Return the names of all modules and parameters."""
    modules = (name for name, _ in model.named_modules(remove_duplicate=False))
    return [*modules, *(name for name, _ in model.named_parameters(remove_duplicate=False))]


def no_match(model: nn.Module, pattern: str, style: object, where: str) -> PatternMatchesNoModule:
    """Return the error for a pattern that matches nothing."""
    near = nearest(pattern, [name for name in names_of(model) if name])
    return PatternMatchesNoModule(pattern=pattern, style=style, nearest=near, where=where)


def nearest(pattern: str, names: Iterable[str]) -> str:
    """Return the names most like a pattern, at most three."""
    known = list(names)
    return ", ".join(difflib.get_close_matches(pattern, known, n=3, cutoff=0.2) or known[:3])


def class_line(model: nn.Module) -> str:
    """Return ``file:line`` of a model's class, or the class's name if its source is not found."""
    kind = type(model)
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return f"{kind.__module__}.{kind.__qualname__}"
