"""``space_of``: the legal configurations of a task."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.tuner.space.space import Space
from shardc.tuner.task import Task


def space_of(task: Task) -> Space:
    """The space of ``task``: sketches that rules derive from what its kernel is made of.

    Raises:
        KernelNotSupported: a body that the target's backend has no loops for.
        UnknownGpuTarget: a target that is neither a CPU nor one of the GPUs.
    """
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(task.text)
        (function,) = module.body.operations
        if task.target.split()[0] == "cpu":
            from shardc.tuner.space.cpu.kernel import sketches

            return Space(sketches(function.operation, task.threads))
        from shardc.backends.triton.targets import find_target
        from shardc.tuner.space.triton.kernel import sketches as on_gpu

        return Space(on_gpu(function.operation, find_target(task.target)))
