"""``#dist.sharding``: the layout of one value on the mesh."""

from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from shardc.diagnostics.dialects.sharding import NoSuchAxis
from shardc.dialects.dist.axis import Axis, AxisAttr, merge
from shardc.dialects.dist.build import attribute, i64
from shardc.dialects.dist.dialect import Dist
from shardc.dialects.dist.mesh import MESH_SYMBOL, Mesh

REDUCTIONS = ("sum", "max", "min")
OPEN = "?"

Axes = tuple[Axis, ...]


@dataclass(frozen=True)
class Sharding:
    """A value's layout over the mesh.

    ``dims[d]`` are the axes that split dim ``d`` into equal blocks, the most major first. ``partial`` are the
    axes over which the devices hold terms that are still to be combined, each with its reduction; the tuple
    is sorted. ``open[d]`` says that propagation may add axes to dim ``d``. An axis or sub-axis occurs at most
    once in a sharding.
    """

    dims: tuple[Axes, ...]
    partial: tuple[tuple[str, Axis], ...] = ()
    open: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if len(self.open) != len(self.dims):
            object.__setattr__(self, "open", (False,) * len(self.dims))

    @staticmethod
    def replicated(rank: int) -> "Sharding":
        return Sharding(((),) * rank)

    @property
    def used(self) -> Axes:
        """Every axis of the sharding, dims first."""
        return tuple(a for dim in self.dims for a in dim) + tuple(a for _, a in self.partial)

    @property
    def is_replicated(self) -> bool:
        return not self.partial and not any(self.dims)

    def ways(self, dim: int) -> int:
        return prod(a.size for a in self.dims[dim])

    def local_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of one device's block of a tensor of global ``shape``. Quotients round up."""
        return tuple(-(-size // self.ways(d)) for d, size in enumerate(shape))

    def divides(self, shape: tuple[int, ...]) -> bool:
        return all(size % self.ways(d) == 0 for d, size in enumerate(shape))

    def closed(self) -> "Sharding":
        """Return the same layout without open dims."""
        return Sharding(self.dims, self.partial)

    def without_partial(self) -> "Sharding":
        return Sharding(self.dims, (), self.open)

    def without(self, axis: str) -> "Sharding":
        """Return the layout with dims that no part of the mesh axis ``axis`` splits."""
        dims = tuple(tuple(a for a in dim if a.name != axis) for dim in self.dims)
        return Sharding(dims, self.partial, self.open)

    def with_partial(self, partial: tuple[tuple[str, Axis], ...]) -> "Sharding":
        return Sharding(self.dims, normal_partial(partial), self.open)

    def normal(self) -> "Sharding":
        """Return the canonical form: closed, with adjacent sub-axes joined, so that equal layouts compare
        equal.
        """
        is_short = all(len(dim) < 2 and (not dim or dim[0].size > 1) for dim in self.dims)
        if is_short and not self.partial and not any(self.open):
            return self
        return Sharding(tuple(merge(d) for d in self.dims), normal_partial(self.partial))

    def __str__(self) -> str:
        pairs = zip(self.dims, self.open, strict=True)
        dims = ", ".join("{" + ", ".join([*map(str, d), *["?"] * o]) + "}" for d, o in pairs)
        terms = "".join(f" partial {r}({a})" for r, a in self.partial)
        return f"[{dims}]{terms}"


def normal_partial(partial: tuple[tuple[str, Axis], ...]) -> tuple[tuple[str, Axis], ...]:
    """Return partial terms sorted by reduction and axis, with adjacent sub-axes joined.

    Raises ValueError for an unknown reduction.
    """
    if not partial:
        return ()
    unknown = {r for r, _ in partial} - set(REDUCTIONS)
    if unknown:
        raise ValueError(f"unknown reductions {sorted(unknown)}")
    joined: list[tuple[str, Axis]] = []
    for reduction in REDUCTIONS:
        axes = tuple(sorted(a for r, a in partial if r == reduction))
        joined.extend((reduction, a) for a in merge(axes))
    return tuple(joined)


class ShardingAttr(Dist.Attribute, name="sharding"):
    """A value's layout: mesh, axes of each dim (``"?"`` last where the dim is open), partial terms.

    ``#dist.sharding<@mesh, [["data"], ["tensor", "?"]], [["sum", "micro"]]>``
    """

    mesh: ir.FlatSymbolRefAttr
    dims: ir.ArrayAttr
    partial: ir.ArrayAttr


class ShardingCodec:
    """Conversion between shardings and attributes in one module; each distinct one is converted once."""

    def __init__(self, context: ir.Context, mesh: Mesh) -> None:
        self._context = context
        self.mesh = mesh
        self._read: dict[ir.Attribute, Sharding] = {}
        self._written: dict[Sharding, ir.Attribute] = {}

    def read(self, attribute: ir.Attribute) -> Sharding:
        found = self._read.get(attribute)
        if found is None:
            found = self._read[attribute] = self._decode(ShardingAttr(attribute))
        return found

    def write(self, sharding: Sharding) -> ir.Attribute:
        found = self._written.get(sharding)
        if found is None:
            found = self._written[sharding] = self._encode(sharding)
        return found

    def array(self, shardings: list[Sharding]) -> ir.ArrayAttr:
        return ir.ArrayAttr.get([self.write(s) for s in shardings], self._context)

    def axes(self, axes: Axes) -> ir.ArrayAttr:
        """Return a list of axes as an attribute."""
        return ir.ArrayAttr.get(list(map(self._axis, axes)), self._context)

    def read_axes(self, attribute: ir.Attribute) -> Axes:
        return tuple(self._read_axis(a) for a in ir.ArrayAttr(attribute))

    def _decode(self, attribute: ShardingAttr) -> Sharding:
        dims, opened = [], []
        for dim in ir.ArrayAttr(attribute.params[1]):
            parts = list(ir.ArrayAttr(dim))
            is_open = bool(parts) and isinstance(parts[-1], ir.StringAttr) and parts[-1].value == OPEN
            dims.append(tuple(self._read_axis(p) for p in parts[: len(parts) - is_open]))
            opened.append(is_open)
        partial = []
        for term in ir.ArrayAttr(attribute.params[2]):
            reduction, *axes = ir.ArrayAttr(term)
            partial.extend((reduction.value, self._read_axis(a)) for a in axes)
        return Sharding(tuple(dims), normal_partial(tuple(partial)), tuple(opened))

    def _read_axis(self, attribute: ir.Attribute) -> Axis:
        if isinstance(attribute, ir.StringAttr):
            name = attribute.value
            if all(a.name != name for a in self.mesh.axes):
                raise NoSuchAxis(axis=name, known=", ".join(a.name for a in self.mesh.axes))
            return self.mesh.whole(name)
        name, pre, size = AxisAttr(attribute).params
        return Axis(ir.StringAttr(name).value, ir.IntegerAttr(pre).value, ir.IntegerAttr(size).value)

    def _axis(self, axis: Axis) -> ir.Attribute:
        name = ir.StringAttr.get(axis.name, self._context)
        if axis.pre == 1 and axis.size == self.mesh.size(axis.name):
            return name
        numbers = (i64(number, self._context) for number in (axis.pre, axis.size))
        return AxisAttr.get(name, *numbers, context=self._context)

    def _encode(self, sharding: Sharding) -> ir.Attribute:
        pairs = zip(sharding.dims, sharding.open, strict=True)
        dims = [[*map(self._axis, dim), *[OPEN] * opened] for dim, opened in pairs]
        terms = {r: [a for reduction, a in sharding.partial if reduction == r] for r in REDUCTIONS}
        partial = [[r, *map(self._axis, axes)] for r, axes in terms.items() if axes]
        mesh = ir.FlatSymbolRefAttr.get(MESH_SYMBOL, self._context)
        parts = (attribute(part, self._context) for part in (dims, partial))
        return ShardingAttr.get(mesh, *parts, context=self._context)
