"""``verify-level``: the contract between passes, which MLIR's own verifier can't see into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.diagnostics.levels import LevelBroken
from shardc.diagnostics.sharding import NoSuchAxis
from shardc.dialects.dist.check import check_sharding
from shardc.dialects.dist.mesh import Mesh, read_mesh
from shardc.dialects.dist.sharding import Sharding, ShardingAttr, ShardingCodec
from shardc.dialects.location import source_line
from shardc.dialects.rules.rule import assignment_of, dims_under
from shardc.passes.manager.attributes import edge_attributes
from shardc.passes.manager.program import Node, Program, find_function
from shardc.passes.manager.reading import Reading, ReadingPass


@dataclass(frozen=True)
class VerifyLevel(ReadingPass):
    """Checks that a module keeps the contract of a level.

    1: one function, every op of the torch dialect (or ``dist.constraint``), every argument with a role and a
    name. 2: besides, a mesh; a sharding on every op, argument and result; every operand is cut as its user's
    rule needs. 3: a mesh, a sharding on every argument and result; no ``dist.reshard``, ``dist.constraint``.
    """

    name: ClassVar[str] = "verify-level"
    level: int = 1

    def apply(self, reading: Reading) -> bool:
        function = find_function(reading.module)
        if function is None:
            raise LevelBroken(level=self.level, problem="the module has no function")
        if self.level != 1 and read_mesh(reading.module) is None:
            raise LevelBroken(level=self.level, problem="the module has no dist.mesh")
        if self.level == 1:
            _check_global(function)
        elif self.level == 3:
            _check_rank(function)
        else:
            mesh, program = reading.sharded(self.level)
            _LevelTwo(program, mesh).check()
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


def _check_rank(function: ir.Operation) -> None:
    block = function.regions[0].blocks[0]
    *ops, terminator = [op.operation for op in block.operations]
    edges = (("argument", "arg_attrs", block.arguments), ("result", "res_attrs", terminator.operands))
    for what, which, values in edges:
        for position in range(len(values)):
            if "dist.sharding" not in edge_attributes(function, which, position):
                raise LevelBroken(level=3, problem=f"{what} {position} has no dist.sharding")
    for op in ops:
        if op.name in ("dist.reshard", "dist.constraint", "builtin.unrealized_conversion_cast"):
            raise LevelBroken(level=3, problem=f"{op.name} is left over", where=source_line(op.location))


class _LevelTwo:
    """Reads the shardings of all values, in order, and compares each call's with its rule."""

    def __init__(self, program: Program, mesh: Mesh) -> None:
        self._program, self._mesh = program, mesh
        self._codec = ShardingCodec(program.module.context, mesh)
        self._shardings: list[Sharding] = []
        self._attributes: list[ir.Attribute] = []

    def check(self) -> None:
        program = self._program
        for position in range(len(program.arguments)):
            name = program.argument_key(position)[1] or position
            self._read(program.attribute(position, "dist.sharding"), f"argument {name}", None)
        right: set[tuple[int, tuple[ir.Attribute, ...]]] = set()  # layers repeat the same calls
        for node in program.nodes:
            array = node.op.attributes.get("dist.shardings")
            given = list(array) if isinstance(array, ir.ArrayAttr) else []
            if len(given) != len(node.results):
                problem = f"{node.spec.target} has {len(given)} shardings for {len(node.results)} results"
                raise LevelBroken(level=2, problem=problem, where=source_line(node.op.location))
            for attribute in given:
                self._read(attribute, node.spec.target, node.op)
            key = (id(node.rule), tuple(self._attributes[v] for v in node.values))
            if key not in right and node.spec.target not in ("dist.reshard", "dist.constraint"):
                _check_call(node, [self._shardings[v] for v in node.values])
                right.add(key)

    def _read(self, attribute: ir.Attribute | None, what: str, op: ir.Operation | None) -> None:
        """Add the next value's sharding. Raises LevelBroken."""
        if not isinstance(attribute, ShardingAttr):
            problem = f"{what} has no #dist.sharding"
        elif wrong := self._add(attribute):
            problem = f"the sharding of {what}: {wrong}"
        else:
            return
        where = None if op is None else source_line(op.location)
        raise LevelBroken(level=2, problem=problem, where=where)

    def _add(self, attribute: ShardingAttr) -> str | None:
        """Add the next value's sharding, or return what is wrong with it."""
        rank = len(self._program.types[len(self._shardings)].shape)
        try:
            sharding = self._codec.read(attribute)
        except NoSuchAxis as error:
            return error.template.format(**error.fields)
        self._shardings.append(sharding)
        self._attributes.append(attribute)
        return check_sharding(sharding, rank, self._mesh)


def _check_call(node: Node, shardings: list[Sharding]) -> None:
    """Operands and results must be one assignment of the call's factors."""
    assignment = assignment_of(node.rule, shardings)
    tensors = node.rule.operands + node.rule.results
    for i, (dims, sharding) in enumerate(zip(tensors, shardings, strict=True)):
        if Sharding(dims_under(dims, assignment)).normal().dims != sharding.normal().dims:
            count = len(node.operands)
            tensor = f"operand {i}" if i < count else f"result {i - count}"
            problem = f"{tensor} of {node.spec.target} is {sharding}, which does not fit its rule {node.rule}"
            raise LevelBroken(level=2, problem=problem, where=source_line(node.op.location))
