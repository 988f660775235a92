"""The space part of a sharding (axes over devices) and its time part (axes over iterations)."""

from __future__ import annotations

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh
from shardc.dialects.dist.sharding import Axes, Sharding


def space_part(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Return ``sharding`` without its time axes."""
    dims = tuple(tuple(a for a in dim if not mesh.is_time(a)) for dim in sharding.dims)
    return Sharding(dims, tuple(t for t in sharding.partial if not mesh.is_time(t[1])))


def time_dims(sharding: Sharding, mesh: Mesh) -> dict[int, Axes]:
    """Map each dim that has time axes to them."""
    cut = {d: tuple(a for a in axes if mesh.is_time(a)) for d, axes in enumerate(sharding.dims)}
    return {d: axes for d, axes in cut.items() if axes}


def time_terms(sharding: Sharding, mesh: Mesh) -> tuple[tuple[str, Axis], ...]:
    """Return the partial terms over time axes, each with its reduction."""
    return tuple(t for t in sharding.partial if mesh.is_time(t[1]))


def sharers(axes: Axes, mesh: Mesh) -> Axes:
    """Return the space axes whose ranks divide the iterations of the time axes ``axes`` among themselves."""
    return tuple(axis for each in axes if (axis := mesh.sharers(each)) is not None)


def join_time(space: Sharding, like: Sharding, mesh: Mesh) -> Sharding:
    """Return ``space`` with the time axes of ``like`` added."""
    cut = time_dims(like, mesh)
    dims = tuple((*axes, *cut.get(d, ())) for d, axes in enumerate(space.dims))
    return Sharding(dims, (*space.partial, *time_terms(like, mesh)))


def time_heads(sharding: Sharding, mesh: Mesh) -> dict[int, Axes]:
    """Map each dim that time axes split to its axes up to the last time axis."""
    times = time_dims(sharding, mesh)
    return {d: sharding.dims[d][: sharding.dims[d].index(axes[-1]) + 1] for d, axes in times.items()}


def exchanged(space: Sharding, before: Sharding, mesh: Mesh) -> Sharding:
    """Return the layout of a value ``before``, once devices exchanged blocks within an iteration.

    ``space``: its space part after that. Raises ValueError if axes outside of a time axis moved.
    """
    dims = list(space.dims)
    for d, head in time_heads(before, mesh).items():
        outer = [axis for axis in head if not mesh.is_time(axis)]
        if list(dims[d][: len(outer)]) != outer:
            raise ValueError("outside of a loop's axis nothing moves in the loop")
        dims[d] = (*head, *dims[d][len(outer) :])
    return Sharding(tuple(dims), (*space.partial, *time_terms(before, mesh)))
