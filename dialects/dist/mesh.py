"""``dist.mesh``: the named axes that a program is sharded over."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate
from math import prod

from torch_mlir import ir

from shardc.dialects.dist.axis import Axis, refine, share_name, shared_axis
from shardc.dialects.dist.build import attribute, string
from shardc.dialects.dist.dialect import Dist

MESH_SYMBOL = "mesh"


@dataclass(frozen=True)
class MeshAxis:
    """An axis of ``size`` ways: over devices (``kind`` "space") or over iterations of a loop ("time").

    ``trips`` is set only on the time axis :func:`share_name` of a space axis: the number of iterations that
    the rank at each coordinate of that space axis runs, in order of coordinates. Together they are ``size``.
    """

    name: str
    size: int
    kind: str = "space"
    trips: tuple[int, ...] = ()

    @property
    def row(self) -> list[str | int | list[int]]:
        """The axis as plain data, the form in ``dist.mesh`` and saved plans."""
        return [self.name, self.size, self.kind, *([list(self.trips)] if self.trips else [])]

    def runner(self, iteration: int) -> int:
        """Return the coordinate, along the space axis, of the rank that runs an iteration."""
        return next(place for place, end in enumerate(accumulate(self.trips)) if iteration < end)

    @staticmethod
    def of_row(name: str, size: int, kind: str, trips: Iterable[int] = ()) -> "MeshAxis":
        return MeshAxis(name, size, kind, tuple(trips))


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
        """Return the number of ways of an axis. Raises KeyError."""
        return {axis.name: axis.size for axis in self.axes}[name]

    def is_time(self, axis: Axis) -> bool:
        return any(a.name == axis.name and a.kind == "time" for a in self.axes)

    def whole(self, name: str) -> Axis:
        return Axis(name, 1, self.size(name))

    @cached_property
    def shares(self) -> dict[str, MeshAxis]:
        """Time axes whose iterations are divided among the ranks along a space axis, by name."""
        return {a.name: a for a in self.axes if a.trips}

    @property
    def shared_names(self) -> list[str]:
        """Space axes with unequal shares."""
        return [shared_axis(name) for name in self.shares]

    def sharers(self, axis: Axis) -> Axis | None:
        """Return the space axis whose ranks divide the iterations of ``axis``; None if each rank runs all."""
        return self.whole(shared_axis(axis.name)) if axis.name in self.shares else None

    def turns(self, axis: Axis) -> int:
        """Return how many iterations of ``axis`` a rank runs: the largest share if shares are unequal."""
        return max(self.shares[axis.name].trips) if axis.name in self.shares else axis.size

    def by_place(self) -> "list[Mesh]":
        """Return, for each coordinate along an axis of unequal shares, the mesh with the ``turns`` of that
        rank.

        Without such an axis the list holds the mesh itself.
        """
        share = next(iter(self.shares.values()), None)
        if share is None:
            return [self]
        return [
            Mesh(tuple(replace(a, trips=(n,)) if a == share else a for a in self.axes)) for n in share.trips
        ]

    def coordinate(self, rank: int, axis: Axis) -> int:
        """Return the coordinate of ``rank`` on a space axis or sub-axis. Raises KeyError."""
        stride = 1
        for a in reversed(self.space):
            if a.name == axis.name:
                return rank // stride % a.size // (a.size // (axis.pre * axis.size)) % axis.size
            stride *= a.size
        raise KeyError(axis.name)

    def index(self, rank: int, axes: tuple[Axis, ...]) -> int:
        """Return the rank's index in the product of ``axes``, the first axis the most major."""
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

    Unequal shares of an axis: ``[["data", 2, "space"], ["data/share", 4, "time", [3, 1]]]``.
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
    """Return the problem of a mesh's name or axes, or None (also where MLIR itself reports the problem)."""
    name = op.attributes.get("sym_name", None)
    if isinstance(name, ir.StringAttr) and name.value != MESH_SYMBOL:
        return f"the mesh of a module is named {MESH_SYMBOL!r}, not {name.value!r}"
    if "axes" not in op.attributes or not isinstance(op.attributes["axes"], ir.ArrayAttr):
        return None
    seen: dict[str, int] = {}
    for axis in op.attributes["axes"]:
        parts = list(axis) if isinstance(axis, ir.ArrayAttr) else []
        if [type(p) for p in parts[:3]] != [ir.StringAttr, ir.IntegerAttr, ir.StringAttr]:
            return f'a mesh axis is ["name", size, "space" or "time"], not {axis}'
        name, size, kind = (p.value for p in parts[:3])
        if name in seen:
            return f"mesh axis {name!r} is named twice"
        if size < 1:
            return f"mesh axis {name!r} has size {size}; at least 1 is needed"
        if kind not in ("space", "time"):
            return f"mesh axis {name!r} is of kind {kind!r}; it must be 'space' or 'time'"
        if parts[3:] and (problem := _shares_problem(parts, seen)):
            return problem
        seen[name] = size
    return "mesh has no axes" if not seen else None


def _shares_problem(parts: list[ir.Attribute], seen: Mapping[str, int]) -> str | None:
    """Return the problem of an axis's trips, the entry after its name, size and kind, or None."""
    name, size, kind = (p.value for p in parts[:3])
    if len(parts) > 4 or not isinstance(parts[3], ir.ArrayAttr):
        return f"mesh axis {name!r} has more than a name, a size, a kind and the trips of each rank"
    trips = [t.value for t in parts[3] if isinstance(t, ir.IntegerAttr)]
    places = seen.get(shared_axis(name))
    if kind != "time" or name != share_name(shared_axis(name)) or places is None:
        return f"mesh axis {name!r} has trips of ranks: it must be the time axis 'AXIS/share' behind an AXIS"
    if len(trips) != places or min(trips) < 1 or sum(trips) != size:
        return f"mesh axis {name!r} has trips {trips}: they must be {places} from 1, and {size} together"
    return None


def read_mesh(module: ir.Module) -> Mesh | None:
    """Return the mesh of a module, or None."""
    op = find_mesh(module.operation)
    return None if op is None else read_mesh_op(op)


def read_mesh_op(op: ir.Operation) -> Mesh:
    rows = [list(axis) for axis in op.attributes["axes"]]
    axes = [([p.value for p in row[:3]], [t.value for trips in row[3:] for t in trips]) for row in rows]
    return Mesh(tuple(MeshAxis.of_row(*row, trips) for row, trips in axes))


def find_mesh(op: ir.Operation) -> ir.Operation | None:
    """Return the ``dist.mesh`` op of the module that contains ``op``, or is ``op``; None if it has none."""
    return next((found for found in beside(op) if found.name == "dist.mesh"), None)


def beside(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yield the top-level ops of the module that contains ``op``, or is ``op``, and of enclosing modules.

    While text is parsed, its module is for a moment nested in another one, and is verified there.
    """
    scope: ir.Operation | None = op
    while scope is not None:
        if scope.name == "builtin.module":
            yield from (inner.operation for inner in scope.regions[0].blocks[0].operations)
        scope = scope.parent


def write_mesh(module: ir.Module, mesh: Mesh) -> None:
    """Insert ``mesh`` at the head of a module, in place of the one that it has."""
    old = find_mesh(module.operation)
    if old is not None:
        old.erase()
    with module.context, ir.Location.unknown(), ir.InsertionPoint.at_block_begin(module.body):
        context = module.context
        axes = [a.row for a in mesh.axes]
        MeshOp(string(MESH_SYMBOL, context), attribute(axes, context))
