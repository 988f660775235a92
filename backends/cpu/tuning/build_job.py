"""Job of a process of the CPU builder."""

from __future__ import annotations

from shardc.backends.cpu.compile import compile_functions
from shardc.backends.cpu.object_code.object_code import object_code_here
from shardc.backends.tuning.kernel_text import configured
from shardc.backends.tuning.point import Point
from shardc.backends.tuning.task import Task
from shardc.runtime.kernels.library import sealed


def build(asked: tuple[Task, Point | None]) -> bytes:
    """Compile a task's kernel at a point to a library. Raises ShardcError if it is not supported."""
    return sealed(compile_functions(configured(*asked), object_code_here))
