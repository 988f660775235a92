"""``dist-partition``: lowers global shapes and reshards (level 2) to the program of a rank (level 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.mapping import Placement
from shardc.cost.links import UNIFORM, LinkModel
from shardc.diagnostics.dialects.levels import LevelBroken
from shardc.dialects.aten.build import CallBuilder
from shardc.dialects.aten.call import fill
from shardc.dialects.aten.types import TensorType, read_type, write_type
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Sharding, ShardingCodec
from shardc.dialects.location import source_line
from shardc.dialects.rules.rule import assignment_of
from shardc.passes.ingest.torch_share import TorchShare, is_apart
from shardc.passes.manager.attributes import attributes_of, copy_attributes, observed
from shardc.passes.manager.program import Node, Program, new_function
from shardc.passes.manager.reading import Reading, ReadingPass
from shardc.passes.manager.sum_place import REDUCE
from shardc.passes.partition.form_loops import form_loops
from shardc.passes.partition.local_call import MlirLocal
from shardc.passes.partition.reshard_lower import ReshardLowering, plan_steps


@dataclass(frozen=True)
class DistPartition(ReadingPass):
    """Rebuilds the step on local shapes: calls by their rules, reshards as the cheapest chains of
    collectives.

    Values that are split over a time axis are computed in a ``dist.loop``; sums over iterations are its
    carried values. ``cluster`` has the links by which chains are priced; without it the price is the bytes
    that devices send.
    """

    name: ClassVar[str] = "dist-partition"
    cluster: Cluster | None = None

    def apply(self, reading: Reading) -> bool:
        module = reading.module
        mesh, program = reading.sharded(level=2)
        apart = any(is_apart(node.op) for node in program.nodes)
        padded = any(program.attribute(i, "dist.padded") is not None for i in range(len(program.arguments)))
        with module.context, ir.Location.unknown():
            _Partitioner(program, ShardingCodec(module.context, mesh), mesh, self._links(mesh)).run()
        if padded or apart:
            # Masks and positions are merged only after their layouts are known.
            TorchShare().run(module)
        return True

    def _links(self, mesh: Mesh) -> LinkModel:
        """Return the links along the mesh's axes. Raises MeshDoesNotFit."""
        if self.cluster is None:
            return UNIFORM
        return LinkModel(Placement.of(self.cluster, {axis.name: axis.size for axis in mesh.space}))


class _Partitioner:
    def __init__(self, program: Program, codec: ShardingCodec, mesh: Mesh, links: LinkModel) -> None:
        self._program, self._codec, self._mesh, self._links = program, codec, mesh, links
        self._context = program.module.context
        self._shardings = [program.annotated(i, codec) for i in range(len(program.arguments))]
        for node in program.nodes:
            if "dist.shardings" not in node.op.attributes:
                problem = f"{node.spec.target} has no dist.shardings"
                raise LevelBroken(level=2, problem=problem, where=source_line(node.op.location))
            self._shardings += map(codec.read, node.op.attributes["dist.shardings"])
        inputs, outputs = (
            [write_type(self._local(v), self._context) for v in values]
            for values in (program.arguments, program.returns)
        )
        self._block = new_function(program, inputs, outputs)
        self._builder = CallBuilder(self._block)
        self._ip = ir.InsertionPoint(self._block)
        self._reshards = ReshardLowering(self._builder, codec, self._context)
        self._values: list[ir.Value] = list(self._block.arguments)

    def run(self) -> None:
        for node in self._program.nodes:
            if node.op.name == "dist.reshard":
                self._values.append(self._reshard(node))
            elif node.op.name == "dist.constraint":
                self._values.append(self._values[node.operands[0]])
            else:
                self._values.extend(self._call(node))
        returned = [self._values[v] for v in self._program.returns]
        location = self._program.terminator.location
        ir.Operation.create("func.return", [], returned, loc=location, ip=self._ip)
        self._program.function.erase()
        form_loops(self._block, self._codec, self._mesh)

    def _local(self, value: int) -> TensorType:
        type_ = self._program.types[value]
        return type_.with_shape(self._shardings[value].local_shape(type_.shape))

    def _call(self, node: Node) -> Sequence[ir.Value]:
        assignment = assignment_of(node.rule, [self._shardings[v] for v in node.values])
        args = fill(node.spec.args, [self._values[v] for v in node.operands])
        pairs = zip(node.results, node.spec.results, strict=True)
        results = tuple(self._local(v) if made else None for v, made in pairs)
        place = (node.op.location, self._ip)
        made: Sequence[ir.Value]
        if node.rule.lower is None or not assignment:
            made = self._builder.call(node.spec.target, args, results, *place).results
        else:
            call = (node.spec, node.rule, args, results, assignment)
            # Other lowered ops have no phase, so that masks and positions are shared among phases.
            phase = attributes_of(node.op, "dist.phase") if node.rule.traded else {}
            made = node.rule.lower(MlirLocal(self._builder, self._codec, *place, *call, phase))
        self._label(node, list(made))
        return made

    def _label(self, node: Node, made: list[ir.Value]) -> None:
        """Copy the call's phase, names and shardings to the ops that compute its results."""
        owners = {value.owner.results[0]: value.owner for value in made}
        if len(owners) == 1:
            copy_attributes(node.op, made[0].owner, "dist.phase", "dist.name", "dist.shardings", REDUCE)
            return
        names = observed(node.op)
        for op in owners.values():
            copy_attributes(node.op, op, "dist.phase")
            here = {i: made.index(r) for i, r in enumerate(op.results) if r in made}
            said = {_shape(op.results[i]): self._shardings[node.results[at]] for i, at in here.items()}
            # Results that only the rule's lowering reads have the layout of a result with their shape.
            lie = [said.get(_shape(r)) or Sharding.replicated(len(_shape(r))) for r in op.results]
            for i, at in here.items():
                lie[i] = self._shardings[node.results[at]]
            op.attributes["dist.shardings"] = self._codec.array(lie)
            own = [f"{name}#{i}" for i, at in here.items() for name, number in names if number == at]
            if own:
                op.attributes["dist.name"] = ir.StringAttr.get(",".join(own), self._context)

    def _reshard(self, node: Node) -> ir.Value:
        source, type_ = self._shardings[node.operands[0]], self._program.types[node.results[0]]
        target = self._codec.read(node.op.attributes["sharding"])
        reduce_first = "dist.reduce_first" in node.op.attributes
        over = {"links": self._links, "element_bytes": type_.dtype.itemsize}
        steps = plan_steps(source, target, type_.shape, self._mesh, reduce_first=reduce_first, **over)
        kept = attributes_of(node.op, "dist.phase", "dist.in_loop")
        value = self._values[node.operands[0]]
        return self._reshards.build(value, type_, steps, source, node.op.location, self._ip, kept)


def _shape(value: ir.Value) -> tuple[int, ...]:
    type_ = read_type(value.type)
    return () if type_ is None else type_.shape
