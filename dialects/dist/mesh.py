"""``dist.mesh``: the named axes that a program is sharded over."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from math import prod

from torch_mlir import ir

from shardc.dialects.dist.axis import Axis, refine
from shardc.dialects.dist.build import attribute, string
from shardc.dialects.dist.dialect import Dist

MESH_SYMBOL = "mesh"


@dataclass(frozen=True)
class MeshAxis:
    """An axis of ``size`` ways: over devices (``kind`` "space") or over iterations of a loop ("time")."""

    name: str
    size: int
    kind: str = "space"


@dataclass(frozen=True)
class Mesh:
    """Named axes, the most major first. Ranks number the space axes row-major; time axes have no rank."""

    axes: tuple[MeshAxis, ...]

    @property
    def space(self) -> tuple[MeshAxis, ...]:
        return tuple(a for a in self.axes if a.kind == "space")

    @property
    def world_size(self) -> int:
        return prod(a.size for a in self.space)

    def size(self, name: str) -> int:
        """The ways of an axis. Raises KeyError."""
        return {axis.name: axis.size for axis in self.axes}[name]

    def is_time(self, axis: Axis) -> bool:
        return any(a.name == axis.name and a.kind == "time" for a in self.axes)

    def whole(self, name: str) -> Axis:
        return Axis(name, 1, self.size(name))

    def coordinate(self, rank: int, axis: Axis) -> int:
        """Where ``rank`` stands on a (sub-)axis of space."""
        stride = 1
        for a in reversed(self.space):
            if a.name == axis.name:
                return rank // stride % a.size // (a.size // (axis.pre * axis.size)) % axis.size
            stride *= a.size
        raise KeyError(axis.name)

    def index(self, rank: int, axes: tuple[Axis, ...]) -> int:
        """The rank's place in the product of ``axes``, the first the most major."""
        return reduce(lambda place, axis: place * axis.size + self.coordinate(rank, axis), axes, 0)

    def group(self, rank: int, axes: tuple[Axis, ...]) -> tuple[int, ...]:
        """The ranks that differ from ``rank`` on ``axes`` alone, ordered by their index over ``axes``."""
        members = [r for r in range(self.world_size) if self._outside(r, axes) == self._outside(rank, axes)]
        return tuple(sorted(members, key=lambda r: self.index(r, axes)))

    def _outside(self, rank: int, axes: tuple[Axis, ...]) -> tuple[int, ...]:
        parts = refine(tuple(self.whole(a.name) for a in self.space), set(axes))
        return tuple(self.coordinate(rank, p) for p in parts if not any(p.overlaps(x) for x in axes))


class MeshOp(Dist.Operation, name="mesh"):
    """The mesh of a module.

    ``"dist.mesh"() {sym_name = "mesh", axes = [["data", 2, "space"], ["micro", 4, "time"]]} : () -> ()``
    """

    sym_name: ir.StringAttr
    axes: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        problem = mesh_problem(self.operation)
        first = find_mesh(self.operation)
        if problem is None and first is not None and first != self.operation:
            problem = "a module has one mesh; this is its second"
        if problem:
            self.location.emit_error(problem)
        return problem is None


def mesh_problem(op: ir.Operation) -> str | None:
    """What is wrong with a mesh's name or axes, None if nothing is (or MLIR itself says so)."""
    name = op.attributes.get("sym_name", None)
    if isinstance(name, ir.StringAttr) and name.value != MESH_SYMBOL:
        return f"the mesh of a module is named {MESH_SYMBOL!r}, not {name.value!r}"
    if "axes" not in op.attributes or not isinstance(op.attributes["axes"], ir.ArrayAttr):
        return None
    seen: set[str] = set()
    for axis in op.attributes["axes"]:
        parts = list(axis) if isinstance(axis, ir.ArrayAttr) else []
        if [type(p) for p in parts] != [ir.StringAttr, ir.IntegerAttr, ir.StringAttr]:
            return f'a mesh axis is ["name", size, "space" or "time"], not {axis}'
        name, size, kind = (p.value for p in parts)
        if name in seen:
            return f"mesh axis {name!r} is named twice"
        if size < 1:
            return f"mesh axis {name!r} has size {size}; at least 1 is needed"
        if kind not in ("space", "time"):
            return f"mesh axis {name!r} is of kind {kind!r}; it must be 'space' or 'time'"
        seen.add(name)
    return "mesh has no axes" if not seen else None


def read_mesh(module: ir.Module) -> Mesh | None:
    """The mesh of a module, None if it has none."""
    op = find_mesh(module.operation)
    return None if op is None else read_mesh_op(op)


def read_mesh_op(op: ir.Operation) -> Mesh:
    axes = [[p.value for p in axis] for axis in op.attributes["axes"]]
    return Mesh(tuple(MeshAxis(*axis) for axis in axes))


def find_mesh(op: ir.Operation) -> ir.Operation | None:
    """The ``dist.mesh`` of the module that ``op`` stands in or is, None if there is none."""
    return next((found for found in beside(op) if found.name == "dist.mesh"), None)


def beside(op: ir.Operation) -> Iterator[ir.Operation]:
    """The ops of the module that ``op`` stands in or is.

    Also of those around that: one parsed from text stands for a moment in another, and is verified there.
    """
    scope: ir.Operation | None = op
    while scope is not None:
        if scope.name == "builtin.module":
            yield from (inner.operation for inner in scope.regions[0].blocks[0].operations)
        scope = scope.parent


def write_mesh(module: ir.Module, mesh: Mesh) -> None:
    """Put ``mesh`` at the head of a module that has none."""
    with module.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(module.body):
        context = module.context
        axes = [(a.name, a.size, a.kind) for a in mesh.axes]
        MeshOp(string(MESH_SYMBOL, context), attribute(axes, context))
