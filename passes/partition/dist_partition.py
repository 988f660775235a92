"""``dist-partition``: from global shapes and explicit reshards (level 2) to one rank's program (level 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import fill
from shardc.dialects.aten.types import TensorType, read_type
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.passes.ingest.torch_share import TorchShare, is_apart
from shardc.passes.manager.program import Node, Program
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.partition.assign import assignment_of
from shardc.passes.partition.form_loops import form_loops
from shardc.passes.partition.local_call import MlirLocal
from shardc.passes.partition.reshard_lower import ReshardLowering, plan_steps

KEPT = ("dist.phase", "dist.name")
"""Op attributes that go over to the rank program."""


@dataclass(frozen=True)
class DistPartition(ReadingPass):
    """Rebuilds the step on local shapes: each call as its rule says, each reshard as the cheapest chain of
    collectives.

    What is cut over a time axis runs in a ``dist.loop``; sums over iterations are its carried values.
    """

    name: ClassVar[str] = "dist-partition"

    def apply(self, reading: Reading) -> bool:
        module = reading.module
        mesh, program = reading.sharded(level=2)
        apart = any(is_apart(node.op) for node in program.nodes)
        padded = any(program.attribute(i, "dist.padded") is not None for i in range(len(program.arguments)))
        with module.context, ir.Location.unknown():
            _Partitioner(program, ShardingCodec(module.context, mesh), mesh).run()
        if padded or apart:
            TorchShare().run(
                module
            )  # masks and positions of each use are its own until all know how they lie
        return True


class _Partitioner:
    def __init__(self, program: Program, codec: ShardingCodec, mesh: Mesh) -> None:
        self._program = program
        self._codec = codec
        self._mesh = mesh
        self._context = program.module.context
        self._shardings: list[Sharding] = []
        self._values: list[ir.Value] = []

    def run(self) -> None:
        self._read_shardings()
        _function, block = self._new_function()
        self._builder = CallBuilder(block)
        self._reshards = ReshardLowering(self._builder, self._codec, self._context)
        self._values = list(block.arguments)
        end = ir.InsertionPoint(block)
        for node in self._program.nodes:
            if node.op.name == "dist.reshard":
                self._values.append(self._reshard(node, end))
            elif node.op.name == "dist.constraint":
                self._values.append(self._values[node.operands[0]])
            else:
                self._values.extend(self._call(node, end))
        terminator = self._program.terminator
        assert terminator is not None
        ir.Operation.create(
            "func.return",
            [],
            [self._values[v] for v in self._program.returns],
            loc=terminator.location,
            ip=end,
        )
        self._program.function.erase()
        form_loops(block, self._codec, self._mesh)

    def _read_shardings(self) -> None:
        program, codec = self._program, self._codec
        for position, value in enumerate(program.arguments):
            attribute = program.attribute(position, "dist.sharding")
            rank = len(program.types[value].shape)
            self._shardings.append(codec.read(attribute) if attribute else Sharding.replicated(rank))
        for node in program.nodes:
            array = ir.ArrayAttr(node.op.attributes["dist.shardings"])
            self._shardings.extend(codec.read(a) for a in array)

    def _local(self, value: int) -> TensorType:
        type_ = self._program.types[value]
        return type_.with_shape(self._shardings[value].local_shape(type_.shape))

    def _new_function(self) -> tuple[ir.Operation, ir.Block]:
        program = self._program
        old = program.function
        inputs = [ir.Type.parse(str(self._local(v)), self._context) for v in program.arguments]
        outputs = [ir.Type.parse(str(self._local(v)), self._context) for v in program.returns]
        attributes = {name: old.attributes[name] for name in old.attributes}
        attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, outputs))
        function = ir.Operation.create(
            "func.func", [], [], attributes, regions=1, loc=old.location, ip=ir.InsertionPoint(old)
        )
        locations = [a.location for a in program.block.arguments]
        block = ir.Block.create_at_start(function.regions[0], inputs, locations)
        return function, block

    def _call(self, node: Node, ip: ir.InsertionPoint) -> list[ir.Value]:
        shardings = [self._shardings[v] for v in (*node.operands, *node.results)]
        assignment = assignment_of(node.rule, shardings)
        operands = [self._values[v] for v in node.operands]
        results = tuple(
            self._local(v) if made else None for v, made in zip(node.results, node.spec.results, strict=True)
        )
        args = fill(node.spec.args, operands)
        location = node.op.location
        if node.rule.lower is None or not assignment:
            op = self._builder.call(node.spec.target, args, results, location, ip)
            made = list(op.results)
        else:
            call = (node.spec, node.rule, assignment)
            local = MlirLocal(self._builder, self._codec, (location, ip), call, args, results)
            made = list(node.rule.lower(local))
        self._label(node, made)
        return made

    def _label(self, node: Node, made: list[ir.Value]) -> None:
        """Put the call's phase, names and shardings on the ops that make its results."""
        attributes = node.op.attributes
        owners = {value.owner.results[0]: value.owner for value in made}
        if len(owners) == 1:
            op = made[0].owner
            for name in (*KEPT, "dist.shardings"):
                if name in attributes:
                    op.attributes[name] = attributes[name]
            return
        names = _names_by_result(attributes["dist.name"].value) if "dist.name" in attributes else {}
        for op in owners.values():
            if "dist.phase" in attributes:
                op.attributes["dist.phase"] = attributes["dist.phase"]
            here = {made.index(r): i for i, r in enumerate(op.results) if r in made}
            given = {i: self._shardings[node.results[position]] for position, i in here.items()}
            whole = [Sharding.replicated(len(t.shape) if (t := read_type(r.type)) else 0) for r in op.results]
            op.attributes["dist.shardings"] = self._codec.array(
                [given.get(i, s) for i, s in enumerate(whole)]
            )
            own = [f"{name}#{i}" for position, i in here.items() for name in names.get(position, [])]
            if own:
                op.attributes["dist.name"] = ir.StringAttr.get(",".join(own), self._context)

    def _reshard(self, node: Node, ip: ir.InsertionPoint) -> ir.Value:
        source = self._shardings[node.operands[0]]
        type_ = self._program.types[node.results[0]]
        attributes = node.op.attributes
        target = self._codec.read(attributes["sharding"])
        steps = plan_steps(
            source, target, type_.shape, self._mesh, reduce_first="dist.reduce_first" in attributes
        )
        value = self._values[node.operands[0]]

        def finish(op: ir.Operation) -> None:
            for name in ("dist.phase", "dist.in_loop"):
                if name in attributes:
                    op.attributes[name] = attributes[name]

        return self._reshards.build(value, type_, steps, source, node.op.location, ip, finish)


def _names_by_result(text: str) -> dict[int, list[str]]:
    """``grad:w,grad:b#2`` as names by the number of the result that they name."""
    found: dict[int, list[str]] = {}
    for part in text.split(","):
        name, _, number = part.partition("#")
        found.setdefault(int(number or 0), []).append(name)
    return found
