"""A reading of the step function that several passes share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch_mlir import ir

from shardc.diagnostics.dialects.levels import LevelBroken
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.passes.manager.base import Pass
from shardc.passes.manager.program import Program, read_program


class Reading:
    """The step function of ``module``, read lazily and kept until a pass changes the module."""

    def __init__(self, module: ir.Module) -> None:
        self.module = module

    @cached_property
    def program(self) -> Program | None:
        """The step function, or None if the module has no function."""
        return read_program(self.module)

    def sharded(self, level: int) -> tuple[Mesh, Program]:
        """Return the mesh and the step function, for passes over shardings. Raises LevelBroken."""
        mesh = read_mesh(self.module)
        if mesh is None or self.program is None:
            missing = "dist.mesh" if mesh is None else "function"
            raise LevelBroken(level=level, problem=f"the module has no {missing}")
        return mesh, self.program


@dataclass(frozen=True)
class ReadingPass(Pass):
    """A pass that reuses an earlier reading of the step function, if no pass has changed it since."""

    def run(self, module: ir.Module) -> None:
        self.apply(Reading(module))

    def apply(self, reading: Reading) -> bool:
        """Rewrite the step. Return whether anything other than attributes changed."""
        raise NotImplementedError(f"{type(self).__name__} has no apply method")
