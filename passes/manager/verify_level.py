"""``verify-level``: checks of the contracts between passes, beyond MLIR's own verifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.dialects.levels import LevelBroken
from shardc.dialects.dist.mesh import read_mesh
from shardc.dialects.location import source_line
from shardc.passes.manager.attributes import edge_attributes
from shardc.passes.manager.program import find_function
from shardc.passes.manager.rank_level import RankLevel
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.manager.sharded_level import ShardedLevel


@dataclass(frozen=True)
class VerifyLevel(ReadingPass):
    """Checks that a module keeps the contract of a level.

    1: one function, every op of the torch dialect (or ``dist.constraint``), every argument with a role and a
    name.

    2: also a mesh, and a sharding on every op, argument and result; the shardings of every call agree with
    its rule; results have their stated shardings.

    3: a mesh, and a sharding on every argument and result; no ``dist.reshard`` or ``dist.constraint``. Each
    collective changes its operand's layout to its result's, each call agrees with its rule, and each loop
    combines terms over its axis.
    """

    name: ClassVar[str] = "verify-level"
    level: int = 1

    def apply(self, reading: Reading) -> bool:
        function = find_function(reading.module)
        if function is None:
            raise LevelBroken(level=self.level, problem="the module has no function")
        mesh = read_mesh(reading.module)
        if self.level != 1 and mesh is None:
            raise LevelBroken(level=self.level, problem="the module has no dist.mesh")
        if self.level == 1:
            _check_global(function)
        elif self.level == 3 and mesh is not None:
            RankLevel(function, mesh).check()
        else:
            mesh, program = reading.sharded(self.level)
            ShardedLevel(program, mesh).check()
        return False


def _check_global(function: ir.Operation) -> None:
    block = function.regions[0].blocks[0]
    for position in range(len(block.arguments)):
        if not {"dist.role", "dist.name"} <= edge_attributes(function, "arg_attrs", position).keys():
            raise LevelBroken(level=1, problem=f"argument {position} has no dist.role and dist.name")
    for op in block.operations:
        name = op.operation.name
        if not name.startswith("torch.") and name not in ("func.return", "dist.constraint"):
            problem = f"{name} is not an op of level 1"
            raise LevelBroken(level=1, problem=problem, where=source_line(op.location))
