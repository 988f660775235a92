"""Scripts that say what to compile: a Python file with ``build()``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from shardc.diagnostics.api import BadScript
from shardc.diagnostics.base import ShardcError


@dataclass(frozen=True)
class Training:
    """What a script's ``build()`` returns."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: Any
    loss: Callable[[Any, Any], torch.Tensor] | None = None


def read_script(path: Path) -> Training:
    """Run a script and call its ``build()``. Raises BadScript where it does not give a model, optimizer and batch."""
    build = getattr(_load(path), "build", None)
    if not callable(build):
        raise BadScript(script=path, problem="defines no function build()", where=str(path))
    made = _call(build, path)
    parts = made if isinstance(made, tuple) else (made,)
    if not 3 <= len(parts) <= 4:
        raise BadScript(script=path, problem=f"has a build() that returns {len(parts)} values, not 3 or 4", where=str(path))
    for part, kind, name in zip(parts, (torch.nn.Module, torch.optim.Optimizer), ("model", "optimizer"), strict=False):
        if not isinstance(part, kind):
            problem = f"has a build() whose {name} is a {type(part).__name__}, not a {kind.__module__}.{kind.__name__}"
            raise BadScript(script=path, problem=problem, where=str(path))
    return Training(*parts)


def _load(path: Path) -> ModuleType:
    name = f"shardc_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadScript(script=path, problem="is no Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        return _guard(lambda: spec.loader.exec_module(module) or module, path)  # type: ignore[union-attr]
    finally:
        sys.path.remove(str(path.parent.resolve()))


def _call(build: Callable[[], Any], path: Path) -> Any:
    return _guard(build, path)


def _guard(work: Callable[[], Any], path: Path) -> Any:
    """Run the user's code; what it raises becomes an error that names the user's line."""
    try:
        return work()
    except ShardcError:
        raise
    except Exception as error:
        trace, line = error.__traceback__, None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == str(path):
                line = trace.tb_lineno
            trace = trace.tb_next
        if isinstance(error, SyntaxError):
            line = error.lineno
        where = f"{path}:{line}" if line else str(path)
        raise BadScript(script=path, problem=f"raised {type(error).__name__}: {error}", where=where) from error
