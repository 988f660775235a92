"""Scripts that say what to compile: a Python file with ``build()``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from shardc.diagnostics.api import BadScript, ScriptFailed
from shardc.diagnostics.base import ShardcError
from shardc.frontend.importing.recorder import called_from


@dataclass(frozen=True)
class Training:
    """What a script's ``build()`` returns, the line that defines ``build``, and the script."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batch: Any
    loss: Callable[[Any, Any], torch.Tensor] | None = None
    line: int = 1
    path: Path = Path()

    def asks(self) -> AbstractContextManager[None]:
        """Traces inside were asked for by ``build``: errors that no line of the user's raised name it."""
        return called_from(str(self.path), self.line)


def read_script(path: Path) -> Training:
    """Run a script and call its ``build()``.

    Raises BadScript where it does not give a model, optimizer and batch, ScriptFailed where its code raises.
    """
    build = getattr(_load(path), "build", None)
    if not callable(build):
        raise BadScript(script=path, problem="defines no function build()", where=str(path))
    made = _guard(build, path)
    line = _line_of(build)
    where = f"{path}:{line}" if line else str(path)
    if not isinstance(made, tuple | list) or not 3 <= len(made) <= 4:
        got = f"{len(made)} values" if isinstance(made, tuple | list) else _article(made)
        raise BadScript(
            script=path, problem=f"has a build() that returns {got}, not 3 or 4 values", where=where
        )
    for part, (name, is_right, expected) in zip(made, PARTS, strict=False):
        if not is_right(part):
            problem = f"has a build() whose {name} is {_article(part)}, not {expected}"
            raise BadScript(script=path, problem=problem, where=where)
    return Training(*made, **({"line": line} if line else {}), path=path)


PARTS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("model", lambda part: isinstance(part, torch.nn.Module), "a torch.nn.Module"),
    ("optimizer", lambda part: isinstance(part, torch.optim.Optimizer), "a torch.optim.Optimizer"),
    ("batch", lambda part: part is not None, "a mapping, tuple or list of tensors"),
    ("loss", lambda part: part is None or callable(part), "a function of the model's output and the batch"),
)
"""What ``build()`` returns, in order: a name, whether a value will do, what it should be in words."""


def _article(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _line_of(build: Callable[..., Any]) -> int | None:
    code = getattr(build, "__code__", None)
    return code.co_firstlineno if code is not None else None


def _load(path: Path) -> ModuleType:
    name = f"shardc_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadScript(script=path, problem="is no Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        _guard(lambda: spec.loader.exec_module(module), path)  # type: ignore[union-attr]
        return module
    finally:
        if folder in sys.path:  # the script may have taken it away
            sys.path.remove(folder)


def _guard(work: Callable[[], Any], path: Path) -> Any:
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
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno
    return f"{path}:{line}" if line else str(path)
