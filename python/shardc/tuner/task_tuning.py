"""How the kernel of a task is tuned, by the target that it says it is of."""

from __future__ import annotations

from shardc.backends.registry import find_target, local_target
from shardc.backends.tuning.target import Tuning
from shardc.diagnostics.kernels import UnknownTarget


def task_backend(task_target: str) -> str:
    """The backend of a task's target. Raises UnknownTarget."""
    return find_target(task_target.split()[0]).backend


def tuning_of(task_target: str) -> Tuning:
    """Raises UnknownTarget for a target that there is not, or whose kernels leave nothing to choose."""
    return _tuning(find_target(task_target.split()[0]).tuning(), task_target)


def generator(task_target: str) -> str:
    """The code generator that trials of a target are made with."""
    return tuning_of(task_target).generator


def local_tuning() -> Tuning:
    """That of this process's own device. Raises UnknownTarget where there are no kernels for it."""
    target = local_target()
    return _tuning(target.tuning(), target.name)


def _tuning(found: Tuning | None, target: str) -> Tuning:
    if found is None:
        raise UnknownTarget(target=target, known="those that can be tuned")
    return found
