"""``Tuning``: how a target's kernels are tuned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from torch_mlir import ir

from shardc.backends.tuning.built import Built
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.runner import Runner
from shardc.backends.tuning.sketches import Sketch
from shardc.backends.tuning.task import Task


class Builder(Protocol):
    """Compiles points of tasks, in processes of its own."""

    def start(self) -> None:
        """Starts the processes, before there is something to build."""

    def build(self, task: Task, points: Sequence[Point | None]) -> Iterator[Built]:
        """Each point, in order, as soon as it is built; None: the kernel without any configuration."""

    def close(self) -> None:
        """Ends the processes and removes what was built."""


@dataclass(frozen=True)
class Tuning:
    """How a target's kernels are tuned.

    ``task_target`` is what tasks and trials say that they are of: the target's name first, then what of this
    machine counts; ``threads`` those that kernels run on. ``sketches`` gives what may be chosen for a module
    with one function on so many threads, and raises KernelNotSupported or TritonKernelNotSupported.
    ``builder`` (of some processes, or as many as are good) and ``runner`` make and time points.
    ``generator`` is the code generator that trials are made with (:func:`generator_text`). ``timed_alone``:
    nothing may be built while something is timed on one thread, either. ``is_pretrained``: the learned cost
    model that comes with shardc has seen such kernels.
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
    """The version of a backend's compiler, the Python ``package``, and the ``table`` of its configurations,
    on which the meaning of a point and the default that ratios are to depend. What else changes in a backend
    leaves a point legal and its results right, and its ratio about what it was.
    """
    try:
        compiler = version(package)
    except PackageNotFoundError:
        compiler = "none"
    return f"{backend} {hashlib.sha256(table.read_bytes()).hexdigest()[:16]} {package} {compiler}"
