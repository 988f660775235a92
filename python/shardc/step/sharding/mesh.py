"""Meshes of devices and of time that options name."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.dialects.dist.axis import share_name
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.options.parallelism import MICRO, Parallelism, check_mesh


def make_mesh(
    spec: Mapping[str, int], micro_batches: int = 1, shares: Mapping[str, tuple[int, ...]] | None = None
) -> Mesh:
    """Return the mesh of a spec such as ``{"data": 2, "tensor": 2}``.

    ``micro_batches`` above 1 adds the time axis ``micro``. ``shares`` of an axis (see ``Parallelism``) add a
    time axis instead, with one iteration for each share and micro-batch. Raises BadMeshSpec.
    """
    check_mesh(spec, micro_batches)
    axes = [MeshAxis(name, size) for name, size in spec.items()]
    if not shares:
        times = [MeshAxis(MICRO, micro_batches, "time")] if micro_batches != 1 else []
        return Mesh((*axes, *times))
    trips = {name: tuple(n * micro_batches for n in weights) for name, weights in shares.items()}
    return Mesh((*axes, *(MeshAxis(share_name(name), sum(n), "time", n) for name, n in trips.items())))


def mesh_of(options: Parallelism) -> Mesh:
    """Return the mesh of the options, with time axes for micro-batches and unequal shares."""
    return make_mesh(options.mesh, options.micro_batches, options.shares)
