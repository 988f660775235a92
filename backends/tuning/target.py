"""``Tuning``: interface for tuning a target's kernels."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from torch_mlir import ir

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.runner import Runner
from shardc.backends.tuning.sketches import Sketch
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built


class Builder(Protocol):
    """Compiler of points of tasks, in separate processes."""

    def start(self) -> None:
        """Start the processes, before there is something to build."""

    def build(self, task: Task, points: Sequence[Point | None]) -> Iterator[Built]:
        """Yield each point, in order, as soon as it is built. None means the kernel without configuration."""
        ...

    def close(self) -> None:
        """End the processes and remove the built files."""


@dataclass(frozen=True)
class Tuning:
    """Tuning of a target's kernels.

    ``task_target``: target of tasks and trials: the target's name, then properties of this machine.
    ``threads``: number of threads of kernels. ``sketches``: function (module with one function, threads) ->
    sketches; it raises KernelNotSupported or TritonKernelNotSupported. ``builder``: makes a builder with a
    number of processes. ``runner``: makes a runner, which times points. ``generator``: see
    :func:`generator_text`. ``timed_alone``: True if nothing may be built while one thread is timed.
    ``is_pretrained``: True if the shipped cost model was trained on such kernels.
    """

    task_target: str
    threads: int
    sketches: Callable[[ir.Module, int], tuple[Sketch, ...]]
    builder: Callable[[int | None], Builder]
    runner: Callable[[], Runner]
    generator: str
    timed_alone: bool = True
    is_pretrained: bool = False


@cache
def generator_text(backend: str, table: Path, package: str) -> str:
    """Return the version of a backend's code generator, which decides the meaning of points and ratios.

    It has the version of the compiler, the Python ``package``, and a hash of the code in the file ``table``
    with the default configurations.
    """
    try:
        compiler = version(package)
    except PackageNotFoundError:
        compiler = "none"
    return f"{backend} {code_hash(table.read_text())[:16]} {package} {compiler}"


def code_hash(source: str) -> str:
    """Return a hash of Python code that ignores its docstrings, comments and layout."""
    code = "\n".join(map(ast.unparse, _WithoutDocstrings().visit(ast.parse(source)).body))
    return hashlib.sha256(code.encode()).hexdigest()


class _WithoutDocstrings(ast.NodeTransformer):
    """Remover of strings that are statements: docstrings, also those below fields and constants."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node
