"""``space_of``: the legal configurations of a task."""

from __future__ import annotations

from torch_mlir import ir

from shardc.backends.tuning.space import Space
from shardc.backends.tuning.task import Task
from shardc.dialects.context import new_context
from shardc.tuner.task_tuning import tuning_of


def space_of(task: Task) -> Space:
    """Return the space of ``task``. Raises KernelNotSupported, TritonKernelNotSupported, UnknownTarget."""
    with new_context(), ir.Location.unknown():
        return space_of_module(ir.Module.parse(task.text), task.target, task.threads)


def space_of_module(functions: ir.Module, target: str, threads: int = 1) -> Space:
    """Return the space of a module with one function of ``extract``. Call it in the module's context."""
    return Space(tuning_of(target).sketches(functions, threads))
