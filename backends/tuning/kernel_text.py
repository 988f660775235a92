"""A kernel as the text of a task, and a configuration put on either."""

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
"""The attribute of a ``kern.kernel``; that of an extracted function is FUNCTION_CONFIG."""
FUNCTION_CONFIG = "kern.config"


def task_of(kernel: ir.Operation, target: str, threads: int) -> Task:
    """One ``kern.kernel`` as a task: its extracted function without its name, locations and configuration."""
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
    """Writes a point's choices as ``#kern.config`` of a ``kern.kernel``."""
    kernel.attributes[CONFIG] = config(point.config, kernel.context)


def configured(task: Task, point: Point | None) -> ir.Module:
    """The task's function, in a context of this thread, with a point's choices; without any for None."""
    module = ir.Module.parse(task.text, _context())
    if point is not None:
        (view,) = module.body
        view.operation.attributes[FUNCTION_CONFIG] = config(point.config, module.context)
    return module


def _context() -> ir.Context:
    """One for each thread: making one takes tens of milliseconds."""
    if not hasattr(_of_thread, "context"):
        _of_thread.context = new_context()
    return _of_thread.context


def _ops(kernel: ir.Operation) -> str:
    """``matmul+add+gelu``: what the kernel computes, of long ones the beginning."""
    name, _, number = kernel_name(kernel).rpartition("_")
    return name if number.isdigit() and name else kernel_name(kernel)


def _sizes(function: ir.Operation) -> str:
    """``1024x1024x1024 f32``: sizes of a contraction, else of the largest tensor, and its dtype."""
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
    """The sizes of the loops of a sum of products; none for anything else."""
    if op.name != GENERIC or not any((loops := GenericLoops(op)).reduces) or len(op.operands) < 3:
        return ()
    sizes = loops.typed_sizes(0)
    return sizes if any(inner.name == "arith.mulf" for inner in loops.body_ops) and all(sizes) else ()
