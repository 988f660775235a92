"""Tuning interface of a task's target."""

from __future__ import annotations

from shardc.backends.registry import find_target, local_target
from shardc.backends.tuning.target import Tuning
from shardc.diagnostics.kernels import UnknownTarget


def task_backend(task_target: str) -> str:
    """Return the backend of a task's target. Raises UnknownTarget."""
    return find_target(task_target.split()[0]).backend


def tuning_of(task_target: str) -> Tuning:
    """Return the tuning of a target. Raises UnknownTarget if it does not exist, or cannot be tuned."""
    return _tuning(find_target(task_target.split()[0]).tuning(), task_target)


def generator(task_target: str) -> str:
    """Return the code generator with which trials of a target are made."""
    return tuning_of(task_target).generator


def local_tuning() -> Tuning:
    """Return the tuning of this process's device. Raises UnknownTarget if it cannot be tuned."""
    target = local_target()
    return _tuning(target.tuning(), target.name)


def _tuning(found: Tuning | None, target: str) -> Tuning:
    if found is None:
        raise UnknownTarget(target=target, known="those that can be tuned")
    return found
