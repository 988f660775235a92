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
from shardc.dialects.rules.rule import dims_under
from shardc.passes.manager.program import Node, Program, find_function
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.partition.assign import assignment_of


@dataclass(frozen=True)
class VerifyLevel(ReadingPass):
    """Checks that a module keeps the contract of a level.

    1: one function, every op of the torch dialect (or ``dist.constraint``), every argument with a role and a
    name. 2: besides, a mesh; a sharding on every op, argument and result; every operand is cut as its user's
    rule needs. 3: a mesh; no ``dist.reshard`` or ``dist.constraint`` left; a sharding on every argument and
    result.
    """

    name: ClassVar[str] = "verify-level"
    level: int = 1

    def apply(self, reading: Reading) -> bool:
        function = find_function(reading.module)
        if function is None:
            raise LevelBroken(level=self.level, problem="the module has no function")
        if self.level == 1:
            _check_global(function)
            return False
        mesh = read_mesh(reading.module)
        if mesh is None:
            raise LevelBroken(level=self.level, problem="the module has no dist.mesh")
        if self.level == 3:
            _check_rank(function)
            return False
        assert reading.program is not None
        _check_annotated(reading.program, mesh)
        return False


def _check_global(function: ir.Operation) -> None:
    for position in range(len(function.regions[0].blocks[0].arguments)):
        attributes = _edge(function, "arg_attrs", position)
        if "dist.role" not in attributes or "dist.name" not in attributes:
            raise LevelBroken(level=1, problem=f"argument {position} has no dist.role and dist.name")
    for op in function.regions[0].blocks[0].operations:
        name = op.operation.name
        if not name.startswith("torch.") and name not in ("func.return", "dist.constraint"):
            raise LevelBroken(
                level=1, problem=f"{name} is not an op of level 1", where=source_line(op.location)
            )


def _check_rank(function: ir.Operation) -> None:
    block = function.regions[0].blocks[0]
    returned = list(block.operations)[-1].operation.operands
    for what, which, values in (
        ("argument", "arg_attrs", block.arguments),
        ("result", "res_attrs", returned),
    ):
        for position in range(len(values)):
            if "dist.sharding" not in _edge(function, which, position):
                raise LevelBroken(level=3, problem=f"{what} {position} has no dist.sharding")
    for op in function.regions[0].blocks[0].operations:
        if op.operation.name in ("dist.reshard", "dist.constraint", "builtin.unrealized_conversion_cast"):
            raise LevelBroken(
                level=3, problem=f"{op.operation.name} is left over", where=source_line(op.location)
            )


def _check_annotated(program: Program, mesh: Mesh) -> None:
    codec = ShardingCodec(program.module.context, mesh)
    shardings: list[Sharding] = []
    attributes: list[ir.Attribute] = []
    right: set[tuple[int, tuple[ir.Attribute, ...]]] = set()  # layers repeat the same calls
    for position, value in enumerate(program.arguments):
        attribute = program.attribute(position, "dist.sharding")
        rank = len(program.types[value].shape)
        shardings.append(
            _checked(
                attribute,
                rank,
                codec,
                mesh,
                f"argument {program.argument_key(position)[1] or position}",
                None,
            )
        )
        attributes.append(attribute)
    for node in program.nodes:
        array = node.op.attributes["dist.shardings"] if "dist.shardings" in node.op.attributes else None
        given = list(array) if isinstance(array, ir.ArrayAttr) else []
        if len(given) != len(node.results):
            problem = f"{node.spec.target} has {len(given)} shardings for {len(node.results)} results"
            raise LevelBroken(level=2, problem=problem, where=_where(node.op))
        for value, attribute in zip(node.results, given, strict=True):
            rank = len(program.types[value].shape)
            shardings.append(_checked(attribute, rank, codec, mesh, node.spec.target, node.op))
        attributes.extend(given)
        if node.spec.target not in ("dist.reshard", "dist.constraint"):
            values = (*node.operands, *node.results)
            key = (id(node.rule), tuple(attributes[v] for v in values))
            if key not in right:
                _check_call(node, [shardings[v] for v in values])
                right.add(key)


def _checked(
    attribute: ir.Attribute | None,
    rank: int,
    codec: ShardingCodec,
    mesh: Mesh,
    what: str,
    op: ir.Operation | None,
) -> Sharding:
    if not isinstance(attribute, ShardingAttr):
        raise LevelBroken(level=2, problem=f"{what} has no #dist.sharding", where=_where(op))
    try:
        sharding = codec.read(attribute)
    except NoSuchAxis as error:
        problem = error.template.format(**error.fields)
        raise LevelBroken(level=2, problem=f"the sharding of {what}: {problem}", where=_where(op)) from None
    problem = check_sharding(sharding, rank, mesh)
    if problem:
        raise LevelBroken(level=2, problem=f"the sharding of {what}: {problem}", where=_where(op))
    return sharding


def _where(op: ir.Operation | None) -> str | None:
    return source_line(op.location) if op is not None else None


def _check_call(node: Node, shardings: list[Sharding]) -> None:
    """Operands and results must be one assignment of the call's factors."""
    assignment = assignment_of(node.rule, shardings)
    tensors = node.rule.operands + node.rule.results
    for i, (dims, sharding) in enumerate(zip(tensors, shardings, strict=True)):
        if Sharding(dims_under(dims, assignment)).normal().dims != sharding.normal().dims:
            kind = "operand" if i < len(node.operands) else "result"
            number = i if i < len(node.operands) else i - len(node.operands)
            problem = (
                f"{kind} {number} of {node.spec.target} is {sharding}, which does not fit its rule "
                f"{node.rule}"
            )
            raise LevelBroken(level=2, problem=problem, where=_where(node.op))


def _edge(function: ir.Operation, which: str, position: int) -> dict[str, ir.Attribute]:
    if which not in function.attributes:
        return {}
    return {n.name: n.attr for n in ir.DictAttr(function.attributes[which][position])}
