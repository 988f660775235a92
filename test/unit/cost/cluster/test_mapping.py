"""A mesh on a cluster: which links each axis has, and who shares them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from shardc.cost.cluster.cluster import Cluster, Library
from shardc.cost.cluster.device import Device, Peaks
from shardc.cost.cluster.level import Level
from shardc.cost.cluster.mapping import Links, Placement
from shardc.cost.cluster.names import find_cluster
from shardc.diagnostics.cluster import MeshDoesNotFit

CHIP = Device("chip", 1e9, flop_s=Peaks(f32=1e12), memory_bytes_s=1e11, launch_s=0.0)


def cluster(*levels: Level) -> Cluster:
    return Cluster("lab", (CHIP,), levels, Library("nccl", 0.0))


def spans(links: Links) -> list[tuple[str, int, int, int]]:
    return [(span.level.name, span.ways, span.inside, span.groups) for span in links.spans]


def test_the_last_axis_is_the_innermost() -> None:
    placed = Placement.of(find_cluster("h100-8x64"), {"data": 64, "tensor": 8})
    assert spans(placed.links(["tensor"])) == [("nvlink", 8, 1, 1)]
    assert spans(placed.links(["data"])) == [("infiniband", 64, 1, 8)]
    assert spans(placed.links(["data", "tensor"])) == [("nvlink", 8, 1, 1), ("infiniband", 64, 8, 1)]
    assert placed.links(["tensor", "data"]) == placed.links(["data", "tensor"])


def test_an_axis_over_two_levels() -> None:
    placed = Placement.of(find_cluster("h100-8x4"), {"data": 2, "tensor": 16})
    assert spans(placed.links(["tensor"])) == [("nvlink", 8, 1, 1), ("infiniband", 2, 8, 1)]
    assert spans(placed.links(["data"])) == [("infiniband", 2, 1, 8)]
    minor, major = ("tensor", 8, 2), ("tensor", 1, 8)
    assert spans(placed.links([minor])) == [("nvlink", 2, 1, 1)]
    assert spans(placed.links([major])) == [("nvlink", 4, 1, 1), ("infiniband", 2, 4, 2)]


def test_a_group_of_one_has_no_links() -> None:
    placed = Placement.of(find_cluster("h100"), {"data": 1, "tensor": 8})
    assert placed.links(["data"]).ways == 1 and not placed.links([]).spans


def brute(shape: tuple[int, ...], axes: tuple[int, ...], levels: tuple[int, ...]) -> list[tuple[int, int]]:
    """Ways and members inside at each level, of the group of rank 0, counted."""
    strides = [1] * len(shape)
    for i in reversed(range(len(shape) - 1)):
        strides[i] = strides[i + 1] * shape[i + 1]
    members = [
        sum(i * s for i, s in zip(at, strides, strict=True))
        for at in product(*(range(n) if k in axes else (0,) for k, n in enumerate(shape)))
    ]
    found, size = [], 1
    for ways in levels:
        inner = len({m // size for m in members})
        outer = len({m // (size * ways) for m in members})
        found.append((inner // outer, len(members) // inner))
        size *= ways
    return [one for one in found if one[0] > 1]


@pytest.mark.parametrize("levels", [(8, 8), (4, 4, 4), (2, 16, 2)])
@pytest.mark.parametrize("shape", [(64,), (8, 8), (2, 4, 8), (4, 4, 4), (16, 4), (2, 2, 4, 2, 2)])
def test_ways_as_counted(levels: tuple[int, ...], shape: tuple[int, ...]) -> None:
    lab = cluster(*(Level(f"level{i}", n, 1.0, 0.0) for i, n in enumerate(levels)))
    placed = Placement.of(lab, {f"a{i}": n for i, n in enumerate(shape)})
    for mask in range(1, 1 << len(shape)):
        axes = tuple(i for i in range(len(shape)) if mask >> i & 1)
        found = placed.links([f"a{i}" for i in axes])
        assert [(s.ways, s.inside) for s in found.spans] == brute(shape, axes, levels)


def test_axes_that_share_an_adapter_share_its_rate() -> None:
    """8 devices a node on 4 adapters: two groups of data share each; a group of all uses all."""
    node, rail = Level("node", 8, 300.0, 0.0), Level("rail", 4, 25.0, 0.0, sharers=2)
    placed = Placement.of(cluster(node, rail), {"data": 4, "tensor": 8})
    (data,), (_, whole) = placed.links(["data"]).spans, placed.links(["data", "tensor"]).spans
    assert (data.sharing, data.member_bytes_s) == (2, 12.5)
    assert (whole.sharing, whole.member_bytes_s * whole.inside) == (1, 100.0)
    alone = Placement.of(cluster(node, replace(rail, sharers=1)), {"data": 4, "tensor": 8})
    assert alone.links(["data"]).spans[0].member_bytes_s == 2 * data.member_bytes_s


def test_oversubscribed_switches() -> None:
    rail = Level("rail", 4, 25.0, 0.0, "tree", oversubscription=4.0)
    placed = Placement.of(cluster(Level("node", 8, 300.0, 0.0), rail), {"data": 4, "tensor": 8})
    assert placed.links(["data"]).spans[0].member_bytes_s == 25.0 / 4


def test_a_bus_is_shared_by_all() -> None:
    placed = Placement.of(cluster(Level("bus", 4, 12.0, 0.0, "bus")), {"data": 2, "tensor": 2})
    assert placed.links(["tensor"]).spans[0].member_bytes_s == 3.0
    assert placed.links(["tensor"]).spans[0].sharing == 2
    assert placed.links(["data", "tensor"]).spans[0].member_bytes_s == 3.0


def test_a_ring_and_its_parts() -> None:
    """Round the ring both directions carry; every second device shares its links with the others."""
    ring = cluster(Level("ring", 8, 10.0, 0.0, "ring"))
    whole = Placement.of(ring, {"x": 8}).links(["x"]).spans[0]
    assert (whole.is_closed, whole.member_bytes_s) == (True, 20.0)
    placed = Placement.of(ring, {"y": 4, "x": 2})
    near, far = placed.links(["x"]).spans[0], placed.links(["y"]).spans[0]
    assert (near.is_closed, near.member_bytes_s) == (False, 10.0)
    assert (far.is_closed, far.sharing, far.member_bytes_s) == (True, 2, 10.0)


def test_a_torus_is_a_ring_in_each_dim() -> None:
    torus = cluster(Level("ici", 32, 10.0, 0.0, "torus", dims=(8, 4)))
    placed = Placement.of(torus, {"y": 4, "x": 8})
    assert spans(placed.links(["x"])) == [("ici x", 8, 1, 1)]
    assert spans(placed.links(["y"])) == [("ici y", 4, 1, 8)]
    assert [s.member_bytes_s for s in placed.links(["x", "y"]).spans] == [20.0, 20.0]


def test_a_cube_mesh_by_its_wiring() -> None:
    """DGX-1: four devices of a quad have four links among them, all eight have six, a pair has one."""
    v100 = find_cluster("v100").levels[0]
    for ways, count in ((2, 1), (4, 4), (8, 6)):
        placed = Placement.of(find_cluster("v100"), {"data": 8 // ways, "tensor": ways})
        rate = placed.links(["tensor"]).spans[0].member_bytes_s
        assert rate == pytest.approx(count * v100.efficiency * 25e9)
    far = Placement.of(find_cluster("v100"), {"data": 2, "tensor": 4}).links(["data"]).spans[0]
    assert far.member_bytes_s == pytest.approx(v100.efficiency * 25e9)  # 0 and 4 have two, 2 and 6 have one


def test_a_mesh_that_is_too_large() -> None:
    with pytest.raises(MeshDoesNotFit) as caught:
        Placement.of(find_cluster("h100-8x2"), {"data": 4, "tensor": 8})
    assert "data=4, tensor=8 has 32 devices, but cluster 'h100-8x2' has 16" in str(caught.value)
    assert "such as h100-8x4" in str(caught.value)
    for name in ("h100", "h100-4"):
        with pytest.raises(MeshDoesNotFit, match="such as h100-8x4"):
            Placement.of(find_cluster(name), {"data": 4, "tensor": 8})
    with pytest.raises(MeshDoesNotFit, match=r"or a larger cluster$"):
        Placement.of(cluster(Level("bus", 2, 1.0, 0.0)), {"data": 4})
    with pytest.raises(KeyError):
        Placement.of(find_cluster("h100"), {"data": 8}).links(["tensor"])


def test_an_axis_that_does_not_divide_a_node() -> None:
    """Of groups of 6 on nodes of 8 some lie on two nodes, and these are what is costed."""
    placed = Placement.of(find_cluster("h100-8x3"), {"data": 4, "tensor": 6})
    assert [(s.level.name, s.ways) for s in placed.links(["tensor"]).spans] == [
        ("nvlink", 3),
        ("infiniband", 2),
    ]
