"""``space_of``: the legal configurations of a task."""

from __future__ import annotations

from torch_mlir import ir

from shardc.dialects.context import new_context
from shardc.tuner.space.space import Space
from shardc.tuner.task import Task

CPU = "cpu"


def space_of(task: Task) -> Space:
    """The space of ``task``: sketches that rules derive from what its kernel is made of.

    Raises:
        KernelNotSupported, TritonKernelNotSupported: a body that the target's backend has no loops for.
        UnknownGpuTarget: a target that is neither a CPU nor one of the GPUs.
    """
    with new_context(), ir.Location.unknown():
        return space_of_module(ir.Module.parse(task.text), task.target, task.threads)


def space_of_module(functions: ir.Module, target: str, threads: int = 1) -> Space:
    """The same of a module with one function, as :func:`shardc.backends.body.extract.extract` makes it, in whose
    context it is called.
    """
    if target.split()[0] == CPU:
        from shardc.tuner.space.cpu.kernel import sketches

        return Space(sketches(functions, threads))
    from shardc.backends.triton.targets import find_target
    from shardc.tuner.space.triton.kernel import sketches as on_gpu

    return Space(on_gpu(functions, find_target(target)))
