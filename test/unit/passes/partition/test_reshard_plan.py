"""Reshard plans: the chains and bytes of the well-known cases."""

from __future__ import annotations

from math import prod

import pytest

from shardc.cost.cluster.cluster import Cluster, Library
from shardc.cost.cluster.device import Device, Peaks
from shardc.cost.cluster.level import Level
from shardc.cost.cluster.mapping import Placement
from shardc.cost.collective import KINDS, sent_bytes
from shardc.cost.links import LinkModel
from shardc.diagnostics.dialects.sharding import IndivisibleDim
from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.dialects.dist.reshard_steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    ToPartial,
)
from shardc.dialects.dist.sharding import Sharding
from shardc.passes.partition.reshard_plan import plan_reshard

SQUARE = Mesh((MeshAxis("x", 2), MeshAxis("y", 2)))
OBLONG = Mesh((MeshAxis("x", 4), MeshAxis("y", 2)))
X, Y = (SQUARE.whole(name) for name in "xy")
HALVES = (Axis("x", 1, 2), Axis("x", 2, 2))


def _on(*dims: tuple[Axis, ...], partial: tuple[Axis, ...] = (), reduction: str = "sum") -> Sharding:
    return Sharding(dims).with_partial(tuple((reduction, a) for a in partial))


WELL_KNOWN = [
    (_on((), (), partial=(X,)), _on((), ()), (AllReduce((X,), "sum"),), 64),
    (_on((), (), partial=(X, Y)), _on((), ()), (AllReduce((X, Y), "sum"),), 96),
    (_on((), (), partial=(X,), reduction="max"), _on((), ()), (AllReduce((X,), "max"),), 64),
    (_on((), (), partial=(X,)), _on((X,), ()), (ReduceScatter(0, (X,), "sum"),), 32),
    (_on((), (), partial=(X, Y)), _on((), (X, Y)), (ReduceScatter(1, (X, Y), "sum"),), 48),
    (_on((), (), partial=(X, Y)), _on((X,), ()), (ReduceScatter(0, (X,), "sum"), AllReduce((Y,), "sum")), 64),
    (_on((), (), partial=(X,)), _on((Y,), ()), (Slice(0, (Y,)), AllReduce((X,), "sum")), 32),
    (_on((X,), ()), _on((), ()), (AllGather(0, (X,)),), 32),
    (_on((X, Y), ()), _on((), ()), (AllGather(0, (X, Y)),), 48),
    (_on((X, Y), ()), _on((X,), ()), (AllGather(0, (Y,)),), 16),
    (_on((X,), ()), _on((), (X,)), (AllToAll(1, 0, (X,)),), 16),
    (_on((X, Y), ()), _on((), (X, Y)), (AllToAll(1, 0, (X, Y)),), 12),
    (_on((X,), (Y,)), _on((Y,), (X,)), None, 16),
    (_on((X, Y), ()), _on((Y, X), ()), (Permute(_on((X, Y), ()), _on((Y, X), ())),), 16),
    (_on((X,), ()), _on((Y,), ()), (Permute(_on((X,), ()), _on((Y,), ())),), 32),
    (_on((), ()), _on((X,), (Y,)), None, 0),
    (_on((), ()), _on((), (), partial=(X,)), (ToPartial((X,)),), 0),
    (_on((X,), ()), _on((X,), ()), (), 0),
]


def _sent_bytes(steps: tuple[Step, ...], sharding: Sharding) -> float:
    """What each device sends in a chain, for an 8 x 8 tensor of one byte an element."""
    total = 0.0
    for step in steps:
        if type(step) in KINDS:
            ways = prod(axis.size for axis in step.axes)
            total += sent_bytes(KINDS[type(step)], ways, prod(sharding.local_shape((8, 8))))
        sharding = step.apply(sharding)
    return total


@pytest.mark.parametrize(("source", "target", "steps", "size_bytes"), WELL_KNOWN, ids=str)
def test_well_known_chain(
    source: Sharding, target: Sharding, steps: tuple[Step, ...] | None, size_bytes: int
) -> None:
    """The chain, and the bytes that each device sends of an 8 x 8 tensor of one byte an element."""
    found = plan_reshard(source, target, (8, 8), SQUARE)
    assert steps is None or found == steps
    assert _sent_bytes(found, source) == size_bytes


def test_sub_axes_are_joined_in_one_collective() -> None:
    source = Sharding(((HALVES[0],), (HALVES[1],)))
    assert plan_reshard(Sharding((HALVES, ())), _on((), ()), (8, 8), OBLONG) == (
        AllGather(0, (Axis("x", 1, 4),)),
    )
    assert plan_reshard(source, Sharding(((Axis("x", 1, 4),), ())), (8, 8), OBLONG) == (
        AllToAll(0, 1, (HALVES[1],)),
    )


def _links(outer_bytes_s: float, launch_s: float = 0.0) -> LinkModel:
    """A 2 x 2 mesh whose ``y`` is within nodes, at 100 bytes/s, and whose ``x`` is between them."""
    chip = Device("chip", 1.0, flop_s=Peaks(f32=1.0), memory_bytes_s=1.0, launch_s=0.0)
    levels = Level("near", 2, 100.0, 0.0), Level("far", 2, outer_bytes_s, 0.0)
    library = Library("nccl", launch_s, ("ring", "pairwise", "point-to-point"))
    return LinkModel(Placement.of(Cluster("lab", (chip,), levels, library), {"x": 2, "y": 2}))


def test_slow_links_carry_less() -> None:
    """Where y is much faster than x, y's devices divide the work over x among them."""
    fast_y = _links(1.0)
    partial, whole = _on((), (), partial=(X, Y)), _on((), ())
    assert plan_reshard(partial, whole, (8, 8), SQUARE) == (AllReduce((X, Y), "sum"),)
    steps = plan_reshard(partial, whole, (8, 8), SQUARE, links=fast_y)
    assert steps == (ReduceScatter(0, (Y,), "sum"), AllReduce((X,), "sum"), AllGather(0, (Y,)))
    gathered = plan_reshard(_on((X, Y), ()), whole, (8, 8), SQUARE, links=fast_y)
    assert gathered == (AllToAll(1, 0, (Y,)), AllGather(0, (X,)), AllGather(1, (Y,)))


def test_latency_favours_fewer_steps() -> None:
    """Two all-to-alls move 8 + 12 bytes a device, gather and slice 48: dear only where bytes are."""
    source, target = _on((X, Y), ()), _on((Y,), (X,))
    near = plan_reshard(source, target, (8, 8), SQUARE)
    far = plan_reshard(source, target, (8, 8), SQUARE, links=_links(100.0, launch_s=1e6))
    assert _sent_bytes(near, source) == 20
    assert sum(not isinstance(step, Slice) for step in far) == 1


def test_dim_that_does_not_divide_is_named() -> None:
    with pytest.raises(IndivisibleDim, match=r"dim 1 of size 3 .* 2 equal blocks") as caught:
        plan_reshard(_on((), ()), _on((), (X,)), (8, 3), SQUARE, where="model.py:7")
    assert "model.py:7" in str(caught.value)


def test_time_axes_are_refused() -> None:
    mesh = Mesh((MeshAxis("x", 2), MeshAxis("micro", 4, "time")))
    with pytest.raises(ValueError, match="time axis"):
        plan_reshard(_on((), ()), _on((mesh.whole("micro"),), ()), (8, 8), mesh)
