"""Checks that axes and shardings are legal on a mesh. Each returns a text about the problem. No MLIR here."""

from shardc.diagnostics.text import did_you_mean
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import REDUCTIONS, Axes, Sharding


def unknown_axis(name: str, mesh: Mesh) -> str:
    """Return the message for an axis that ``mesh`` lacks; it suggests the most similar name."""
    known = [a.name for a in mesh.axes]
    return f"unknown axis {name!r}; the mesh has {', '.join(map(repr, known))}{did_you_mean(name, known)}"


def check_axis(axis: Axis, mesh: Mesh) -> str | None:
    """Return the problem of one axis, or None: the mesh lacks it, or it is no sub-axis of the mesh's axis."""
    if all(a.name != axis.name for a in mesh.axes):
        return unknown_axis(axis.name, mesh)
    total = mesh.size(axis.name)
    if axis.pre < 1 or axis.size < 1 or total % (axis.pre * axis.size):
        ways = f"{total} ways, which {axis.pre} * {axis.size} must divide"
        return f"sub-axis {axis} does not fit: axis {axis.name!r} has {ways}"
    return None


def check_axes(axes: Axes, mesh: Mesh) -> str | None:
    """Return the problem of the list of axes of one op, or None."""
    if not axes:
        return "no axes are given; at least one is needed"
    return _first_problem([(axis, "") for axis in axes], mesh)


def check_sharding(sharding: Sharding, shape: tuple[int, ...] | int, mesh: Mesh) -> str | None:
    """Return the problem of ``sharding`` for a tensor of this global shape (or rank), or None.

    Sizes need not be divisible by the number of ways: ``dist-pad`` pads them.
    """
    rank = shape if isinstance(shape, int) else len(shape)
    given = len(sharding.dims)
    if given > rank:
        return f"too many dims: the sharding has {given}, the tensor has {rank}"
    if given < rank:
        return f"too few dims: the sharding has {given}, the tensor has {rank}; a whole dim is []"
    reductions = sorted({reduction for reduction, _ in sharding.partial})
    for reduction in reductions:
        if reduction not in REDUCTIONS:
            return unknown_reduction(reduction)
    if len(reductions) > 1:
        return f"partial in {' and '.join(reductions)} at once: the order of two reductions would matter"
    places = [(axis, f"in dim {d}") for d, dim in enumerate(sharding.dims) for axis in dim]
    places += [(axis, f"in partial {reduction}") for reduction, axis in sharding.partial]
    return _first_problem(places, mesh)


def unknown_reduction(reduction: str) -> str:
    return f"unknown reduction {reduction!r}; there are {', '.join(map(repr, REDUCTIONS))}"


def _first_problem(places: list[tuple[Axis, str]], mesh: Mesh) -> str | None:
    for axis, _ in places:
        if problem := check_axis(axis, mesh):
            return problem
    for i, (axis, place) in enumerate(places):
        for earlier, earlier_place in places[:i]:
            if axis == earlier or axis.overlaps(earlier):
                return _twice(axis, earlier, place, earlier_place)
    return None


def _twice(axis: Axis, earlier: Axis, place: str, earlier_place: str) -> str:
    where = f": {earlier_place} and {place}" if place else ""
    if axis == earlier:
        return f"axis {axis.name!r} appears twice{where}"
    return f"axes {earlier} and {axis} overlap{where}"
