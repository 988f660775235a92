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

from shardc.backends.tuning.point import Point
from shardc.backends.tuning.runner import Runner
from shardc.backends.tuning.sketches import Sketch
from shardc.backends.tuning.task import Task
from shardc.backends.tuning.trial import Built


class Builder(Protocol):
    """Compiles points of tasks, in processes of its own."""

    def start(self) -> None:
        """Starts the processes, before there is something to build."""

    def build(self, task: Task, points: Sequence[Point | None]) -> Iterator[Built]:
        """Each point, in order, as soon as it is built; None: the kernel without any configuration."""
        ...

    def close(self) -> None:
        """Ends the processes and removes what was built."""


@dataclass(frozen=True)
class Tuning:
    """How a target's kernels are tuned.

    ``task_target``: what tasks and trials are of: the target's name, then what counts of this machine;
    ``threads``: those that kernels run on. ``sketches``: the choices for a module with one function on so
    many threads; it raises KernelNotSupported or TritonKernelNotSupported. ``builder`` (of some processes)
    and ``runner`` make and time points. ``generator``: see :func:`generator_text`. ``timed_alone``: nothing
    may be built while one thread is timed. ``is_pretrained``: the shipped cost model has seen such kernels.
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
    """The version of a backend's compiler, the Python ``package``, and a hash of the ``table`` of its
    configurations: what the meaning of a point and the default, which ratios are to, depend on.
    """
    try:
        compiler = version(package)
    except PackageNotFoundError:
        compiler = "none"
    return f"{backend} {hashlib.sha256(table.read_bytes()).hexdigest()[:16]} {package} {compiler}"
