"""The parts of a sharding over devices (space) and over iterations of a loop (time)."""

from __future__ import annotations

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, Sharding


def space_part(sharding: Sharding, mesh: Mesh) -> Sharding:
    """``sharding`` without its time axes."""
    dims = tuple(tuple(a for a in dim if not mesh.is_time(a)) for dim in sharding.dims)
    return Sharding(dims, tuple(t for t in sharding.partial if not mesh.is_time(t[1])))


def time_dims(sharding: Sharding, mesh: Mesh) -> dict[int, Axes]:
    """Dim -> its time axes, for the dims that have some."""
    cut = {d: tuple(a for a in axes if mesh.is_time(a)) for d, axes in enumerate(sharding.dims)}
    return {d: axes for d, axes in cut.items() if axes}


def time_terms(sharding: Sharding, mesh: Mesh) -> tuple[tuple[str, Axis], ...]:
    """The time axes over which iterations hold terms, each with its reduction."""
    return tuple(t for t in sharding.partial if mesh.is_time(t[1]))


def sharers(axes: Axes, mesh: Mesh) -> Axes:
    """The axes of devices whose ranks share out the iterations of the time axes ``axes``."""
    return tuple(axis for each in axes if (axis := mesh.sharers(each)) is not None)


def join_time(space: Sharding, like: Sharding, mesh: Mesh) -> Sharding:
    """``space`` with the time axes of ``like``."""
    cut = time_dims(like, mesh)
    dims = tuple((*axes, *cut.get(d, ())) for d, axes in enumerate(space.dims))
    return Sharding(dims, (*space.partial, *time_terms(like, mesh)))
