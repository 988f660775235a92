"""Scripts that say what to compile: a Python file with ``build()``."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import torch

from shardc.diagnostics.api import BadScript, ScriptFailed
from shardc.diagnostics.base import ShardcError
from shardc.frontend.importing.recorder import called_from
from shardc.options.step import StepOptions
from shardc.step.compile_step import CompiledStep, compile_with

T = TypeVar("T")


@dataclass(frozen=True)
class Training:
    """What a script's ``build()`` returns, the line that defines ``build``, and the script."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: object
    loss: Callable[..., torch.Tensor] | None = None
    line: int = 1
    path: Path = Path()

    def asks(self) -> AbstractContextManager[None]:
        """Traces inside were asked for by ``build``: errors that no line of the user's raised name it."""
        return called_from(str(self.path), self.line)

    def compile(self, options: StepOptions) -> CompiledStep:
        """The compiled step. Raises as :func:`~shardc.step.compile_step.compile_step` does."""
        with self.asks():
            return compile_with(self.model, self.optimizer, self.batch, options, self.loss)


def read_script(path: Path) -> Training:
    """Run a script and call its ``build()``.

    Raises BadScript where it does not give a model, optimizer and batch, ScriptFailed where its code raises.
    """
    build = getattr(_load(path), "build", None)
    if not callable(build):
        raise BadScript(script=path, problem="defines no function build()", where=str(path))
    made = _guard(build, path)
    code = getattr(build, "__code__", None)
    line = None if code is None else code.co_firstlineno
    where = f"{path}:{line}" if line else str(path)
    if not isinstance(made, tuple | list) or not 3 <= len(made) <= 4:
        got = f"{len(made)} values" if isinstance(made, tuple | list) else _article(made)
        problem = f"has a build() that returns {got}, not 3 or 4 values"
        raise BadScript(script=path, problem=problem, where=where)
    for part, (name, is_right, expected) in zip(made, PARTS, strict=False):
        if not is_right(part):
            problem = f"has a build() whose {name} is {_article(part)}, not {expected}"
            raise BadScript(script=path, problem=problem, where=where)
    model, optimizer, batch, loss = [*made, None][:4]
    return Training(model, optimizer, batch, loss, line or 1, path)


PARTS: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    ("model", lambda part: isinstance(part, torch.nn.Module), "a torch.nn.Module"),
    ("optimizer", lambda part: isinstance(part, torch.optim.Optimizer), "a torch.optim.Optimizer"),
    ("batch", lambda part: part is not None, "a mapping, tuple or list of tensors"),
    ("loss", lambda part: part is None or callable(part), "a function of the model's output and the batch"),
)
"""What ``build()`` returns, in order: a name, whether a value will do, what it should be in words."""


def _article(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _load(path: Path) -> ModuleType:
    name = f"shardc_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadScript(script=path, problem="is no Python file", where=str(path))
    loader, module = spec.loader, importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        _guard(lambda: loader.exec_module(module), path)
        return module
    finally:
        if folder in sys.path:  # the script may have taken it away
            sys.path.remove(folder)


def _guard(work: Callable[[], T], path: Path) -> T:
    """Run the user's code; what it raises becomes an error that names the user's line."""
    try:
        return work()
    except ShardcError:
        raise
    except SystemExit as exit_:
        problem = f"ended the process by itself (exit code {exit_.code!r}) before it said what to compile"
        raise ScriptFailed(script=path, problem=problem, where=_raised_at(exit_, path)) from exit_
    except Exception as error:
        text = (str(error).strip().splitlines() or [""])[0]
        problem = f"raised {type(error).__name__}{': ' if text else ''}{text}"
        raise ScriptFailed(script=path, problem=problem, where=_raised_at(error, path)) from error


def _raised_at(error: BaseException, path: Path) -> str:
    """``file:line`` of the innermost line of the script that an error went through."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == str(path)]
    line = lines[-1] if lines else None
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno
    return f"{path}:{line}" if line else str(path)
