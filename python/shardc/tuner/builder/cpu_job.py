"""What a process of the CPU builder does."""

from __future__ import annotations

from shardc.backends.cpu.compile import compile_functions
from shardc.backends.cpu.object_code import object_code_here
from shardc.runtime.kernels import sealed
from shardc.tuner.extract_tasks import configured
from shardc.tuner.point import Point
from shardc.tuner.task import Task


def build(asked: tuple[Task, Point | None]) -> bytes:
    """The library of a task's kernel at a point. Raises ShardcError where there are no loops for it."""
    return sealed(compile_functions(configured(*asked), object_code_here))
