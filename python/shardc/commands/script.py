"""Scripts with a function ``build()`` that returns what to compile.

Errors in a script are reported before the compiler is imported. This file therefore imports torch alone, as
the script does anyway.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from shardc.diagnostics.api import BadScript, ScriptFailed
from shardc.diagnostics.base import ShardcError
from shardc.options.step import StepOptions

if TYPE_CHECKING:
    from shardc.step.compile_step import CompiledStep

T = TypeVar("T")


@dataclass(frozen=True)
class Training:
    """Values that a script's ``build()`` returned, the line that defines ``build``, and the script's path."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: object
    loss: Callable[..., torch.Tensor] | None = None
    line: int = 1
    path: Path = Path()

    def asks(self) -> AbstractContextManager[None]:
        """Attribute traces inside the block to ``build``, for errors without another line of the user's."""
        from shardc.frontend.importing.recorder import called_from  # a part of the compiler

        return called_from(str(self.path), self.line)

    def compile(self, options: StepOptions) -> CompiledStep:
        """Compile the step. Raises as :func:`~shardc.step.compile_step.compile_step` does."""
        from shardc.step.compile_step import compile_with  # late import: errors in the script come first

        with self.asks():
            return compile_with(self.model, self.optimizer, self.batch, options, self.loss)


def read_script(path: Path) -> Training:
    """Run a script and call its ``build()``.

    Raises BadScript if it does not return a model, optimizer and batch, ScriptFailed if its code raises.
    """
    build = getattr(_load(path), "build", None)
    if not callable(build):
        raise BadScript(script=path, problem="defines no function build()", where=str(path))
    code = getattr(build, "__code__", None)
    line = None if code is None else code.co_firstlineno
    where = f"{path}:{line}" if line else str(path)
    if problem := _asks_for(build):
        raise BadScript(script=path, problem=problem, where=where)
    made = _guard(build, path)
    if problem := _problem_of(made):
        raise BadScript(script=path, problem=f"has a build() {problem}", where=where)
    assert isinstance(made, tuple | list)
    model, optimizer, batch, loss = [*made, None][:4]
    return Training(model, optimizer, batch, loss, line or 1, path)


def _asks_for(build: Callable[..., object]) -> str:
    """Describe a wrong definition of ``build``; empty if it can be called."""
    if isinstance(build, type):
        return f"defines build as the class {build.__name__}, not as a function"
    try:
        needed = [p.name for p in signature(build).parameters.values() if p.default is p.empty and p.kind < 2]
    except ValueError:  # a function of C has no signature
        return ""
    return f"defines build({', '.join(needed)}), which is called without arguments" if needed else ""


def _problem_of(made: object) -> str:
    """Describe what is wrong with the value of ``build()``; empty if it is valid."""
    if not isinstance(made, tuple | list):
        return f"that returns {_article(made)}, not 3 or 4 values"
    expected = [name for name, _, _ in PARTS]
    found = _in_order(made)
    if not 3 <= len(made) <= 4:
        lacking = [name for name in expected[:3] if name not in found]
        more = f": {' and '.join(f'the {name}' for name in lacking)} is missing" if len(lacking) == 1 else ""
        return f"that returns {len(made)} values, not 3 or 4 values{more}"
    if {"model", "optimizer"} <= set(found) and found[:2] != expected[:2]:
        return f"that returns ({', '.join(found)}): return them in the order ({', '.join(expected)})"
    for part, (name, is_right, wanted) in zip(made, PARTS, strict=False):
        if isinstance(part, type):
            return f"whose {name} is the class {part.__name__}, not {wanted}: call it, {part.__name__}(...)"
        if not is_right(part):
            return f"whose {name} is {_article(part)}, not {wanted}"
    if isinstance(made[2], Iterator | DataLoader | Dataset):
        kind = type(made[2]).__name__
        return f"whose batch is a {kind}, not one batch of it: return next(iter(loader)) in its place"
    return ""


def _in_order(made: Sequence[object]) -> list[str]:
    """Classify each value by its type as a name of PARTS; ``batch`` is the default."""
    kinds = ((torch.nn.Module, "model"), (torch.optim.Optimizer, "optimizer"))
    names: list[str] = []
    for part in made:
        otherwise = "loss" if callable(part) else "batch"
        name = next((name for kind, name in kinds if isinstance(part, kind)), otherwise)
        names.append("loss" if name in names and name == "model" else name)  # a loss may be a module
    return names


PARTS: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    ("model", lambda part: isinstance(part, torch.nn.Module), "a torch.nn.Module"),
    ("optimizer", lambda part: isinstance(part, torch.optim.Optimizer), "a torch.optim.Optimizer"),
    ("batch", lambda part: part is not None, "a mapping, tuple or list of tensors"),
    ("loss", lambda part: part is None or callable(part), "a function of the model's output and the batch"),
)
"""Parts of the value of ``build()``, in order: name, predicate of valid values, and description."""


def _article(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _load(path: Path) -> ModuleType:
    name = f"shardc_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadScript(script=path, problem="is not a Python file", where=str(path))
    loader, module = spec.loader, importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        _guard(lambda: loader.exec_module(module), path)
        return module
    finally:
        if folder in sys.path:  # the script may have removed it
            sys.path.remove(folder)


def _guard(work: Callable[[], T], path: Path) -> T:
    """Run the user's code; an exception becomes an error that names the user's line."""
    try:
        return work()
    except ShardcError:
        raise
    except SystemExit as exit_:
        problem = f"ended the process (exit code {exit_.code!r}) before build() returned"
        raise ScriptFailed(script=path, problem=problem, where=_raised_at(exit_, path)) from exit_
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0]
        problem = f"raised {type(error).__name__}{': ' if text else ''}{text}"
        raise ScriptFailed(script=path, problem=problem, where=_raised_at(error, path)) from error


def _raised_at(error: BaseException, path: Path) -> str:
    """Return ``file:line`` of the innermost line of the script that an error passed through."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == str(path)]
    line = lines[-1] if lines else None
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno
    return f"{path}:{line}" if line else str(path)
