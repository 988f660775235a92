"""Text of a kernel for a task, and the setting of configurations on kernels and tasks."""

from __future__ import annotations

import threading
from math import prod

from torch_mlir import ir

from shardc.backends.body.extract import extract_kernels
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import NAME, Task
from shardc.dialects.context import new_context
from shardc.dialects.kern.config import config
from shardc.dialects.kern.generic import GENERIC, GenericLoops
from shardc.dialects.kern.kernel import kernel_name
from shardc.dialects.kern.types import ELEMENTS, read_builtin

_of_thread = threading.local()

CONFIG = "config"
"""Attribute of a ``kern.kernel`` for its configuration. Extracted functions have FUNCTION_CONFIG instead."""
FUNCTION_CONFIG = "kern.config"


def task_of(kernel: ir.Operation, target: str, threads: int) -> Task:
    """Return a ``kern.kernel`` as a task: its extracted function, without name, locations and config."""
    module = extract_kernels([kernel])
    (view,) = module.body
    function = view.operation
    with module.context:
        function.attributes["sym_name"] = ir.StringAttr.get(NAME)
    if FUNCTION_CONFIG in function.attributes:
        del function.attributes[FUNCTION_CONFIG]
    text = module.operation.get_asm(enable_debug_info=False)
    return Task(text, target, threads, f"{_ops(kernel)} {_sizes(function)}")


def configure(kernel: ir.Operation, point: Point) -> None:
    """Write a point's choices as ``#kern.config`` of a ``kern.kernel``."""
    kernel.attributes[CONFIG] = config(point.config, kernel.context)


def configured(task: Task, point: Point | None) -> ir.Module:
    """Return the task's function with a point's choices, or without any for None.

    The module is in a context of this thread.
    """
    module = ir.Module.parse(task.text, _context())
    if point is not None:
        (view,) = module.body
        view.operation.attributes[FUNCTION_CONFIG] = config(point.config, module.context)
    return module


def _context() -> ir.Context:
    """Return this thread's context. Making one takes tens of milliseconds."""
    if not hasattr(_of_thread, "context"):
        _of_thread.context = new_context()
    return _of_thread.context


def _ops(kernel: ir.Operation) -> str:
    """Return the ops of a kernel, as ``matmul+add+gelu``, shortened for long kernels."""
    name, _, number = kernel_name(kernel).rpartition("_")
    return name if number.isdigit() and name else kernel_name(kernel)


def _sizes(function: ir.Operation) -> str:
    """Return sizes and dtype, as ``1024x1024x1024 f32``: those of a contraction, or of the largest tensor."""
    block = function.regions[0].blocks[0]
    values = [*block.arguments, *list(block.operations)[-1].operation.operands]
    tensors = [t for v in values if (t := read_builtin(v.type)) is not None]
    if not tensors:
        return ""
    largest = max(tensors, key=lambda t: prod(n or 1 for n in t.shape))
    loops = [sizes for view in block.operations if (sizes := _contraction(view.operation))]
    shape = max(loops, key=prod) if loops else largest.shape
    return f"{'x'.join('?' if n is None else str(n) for n in shape)} {ELEMENTS[largest.dtype]}"


def _contraction(op: ir.Operation) -> tuple[int, ...]:
    """Return the loop sizes of a sum of products; empty for anything else."""
    if op.name != GENERIC or not any((loops := GenericLoops(op)).reduces) or len(op.operands) < 3:
        return ()
    sizes = loops.typed_sizes(0)
    return sizes if any(inner.name == "arith.mulf" for inner in loops.body_ops) and all(sizes) else ()
