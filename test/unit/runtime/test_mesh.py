"""The runtime's arithmetic of meshes is the compiler's."""

from __future__ import annotations

from itertools import permutations

import pytest

from shardc.dialects.dist.axis import Axis
from shardc.dialects.dist.mesh import Mesh as CompilerMesh
from shardc.dialects.dist.mesh import MeshAxis
from shardc.runtime.comm.mesh import Mesh, inside, ways

AXES = [
    {"name": "data", "size": 2, "kind": "space"},
    {"name": "micro", "size": 3, "kind": "time"},
    {"name": "tensor", "size": 8, "kind": "space"},
]
MESH = Mesh.read(AXES)
COMPILER = CompilerMesh(tuple(MeshAxis(a["name"], a["size"], a["kind"]) for a in AXES))
PARTS = [("data", 1, 2), ("tensor", 1, 2), ("tensor", 2, 2), ("tensor", 4, 2), ("tensor", 2, 4)]
LISTS = [axes for n in (1, 2, 3) for axes in permutations(PARTS[:4], n)] + [(PARTS[4],), (PARTS[4], PARTS[0])]


@pytest.mark.parametrize("axes", LISTS)
def test_index_and_groups(axes: tuple) -> None:
    theirs = tuple(Axis(*a) for a in axes)
    parts = MESH.partition(axes)
    assert all(MESH.peers(rank, axes) == part for part in parts for rank in part)
    assert sorted(r for part in parts for r in part) == list(range(16))
    for rank in range(MESH.world_size):
        assert MESH.index(rank, axes) == COMPILER.index(rank, theirs)
        group = next(p for p in parts if rank in p)
        assert group == COMPILER.group(rank, theirs)
        assert len(group) == ways(axes)
        assert group[MESH.index(rank, axes)] == rank


def test_kinds() -> None:
    assert MESH.world_size == 16
    assert MESH.is_time(("micro", 1, 3)) and not MESH.is_time(("data", 1, 2))
    assert MESH.describe() == "data 2 x tensor 8"


def test_finest_parts() -> None:
    assert MESH.finest([]) == (("data", 1, 2), ("tensor", 1, 8))
    assert MESH.finest([("tensor", 2, 2)]) == (
        ("data", 1, 2),
        ("tensor", 1, 2),
        ("tensor", 2, 2),
        ("tensor", 4, 2),
    )
    assert Mesh((("one", 1),)).finest([]) == (("one", 1, 1),)
    assert inside(("tensor", 2, 2), ("tensor", 1, 4)) and not inside(("tensor", 1, 4), ("tensor", 2, 2))


def test_unknown_axis() -> None:
    with pytest.raises(KeyError):
        MESH.coordinate(0, ("pipe", 1, 2))
