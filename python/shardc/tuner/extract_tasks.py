"""``tasks_of``: the kernels of a program as tasks."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.base import Target
from shardc.backends.body.extract import kernels
from shardc.backends.registry import local_target
from shardc.backends.tuning.kernel_text import task_of
from shardc.backends.tuning.task import Task
from shardc.dialects.kern.kernel import kernel_name


def tasks_of(
    module: ir.Module, target: Target | None = None, threads: int | None = None
) -> list[tuple[Task, int]]:
    """Return the kernels of a level 4 module as tasks with their numbers of calls, in order of first calls.

    ``target``: default: this process's device. ``threads``: default: the target's. The result is empty if
    kernels for the target cannot be tuned.
    """
    return [(task, len(found)) for task, found in kernels_of(module, target, threads).items()]


def kernels_of(
    module: ir.Module, target: Target | None = None, threads: int | None = None
) -> dict[Task, list[ir.Operation]]:
    """Return task -> its kernels, to write configurations on; arguments as of :func:`tasks_of`."""
    target = target or local_target()
    tuning = target.tuning()
    if tuning is None:
        return {}
    threads = tuning.threads if threads is None else threads
    found: dict[Task, list[ir.Operation]] = {}
    named: dict[str, Task] = {}
    for kernel in kernels(module):
        name = kernel_name(kernel)  # kernels with the same name have the same body
        if name not in named:
            named[name] = task_of(kernel, tuning.task_target, threads)
        found.setdefault(named[name], []).append(kernel)
    return found
