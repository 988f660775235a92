"""Messages for shardings that are not legal on a mesh."""

from __future__ import annotations

import pytest

from shardc.dialects.dist.axis import Axis, merge
from shardc.dialects.dist.check import check_axes, check_sharding
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.dialects.dist.sharding import Sharding

MESH = Mesh((MeshAxis("data", 6), MeshAxis("tensor", 4)))
DATA, TENSOR = MESH.whole("data"), MESH.whole("tensor")


@pytest.mark.parametrize(
    ("sharding", "problem"),
    [
        (
            Sharding(((Axis("tensr", 1, 4),), ())),
            "unknown axis 'tensr'; the mesh has 'data', 'tensor'; did you mean 'tensor'?",
        ),
        (Sharding(((Axis("tensor", 2, 4),), ())), "sub-axis tensor:(2)4 does not fit"),
        (Sharding(((TENSOR,), (TENSOR,))), "axis 'tensor' appears twice: in dim 0 and in dim 1"),
        (Sharding(((TENSOR,), (Axis("tensor", 2, 2),))), "axes tensor:(1)4 and tensor:(2)2 overlap"),
        (Sharding(((Axis("data", 1, 2),), (Axis("data", 1, 3),))), "axes data:(1)2 and data:(1)3 overlap"),
        (Sharding(((Axis("data", 1, 2),), (Axis("data", 3, 2),))), "axes data:(1)2 and data:(3)2 overlap"),
        (Sharding(((DATA,), ()), (("sum", DATA),)), "axis 'data' appears twice: in dim 0 and in partial sum"),
        (Sharding(((DATA,), (), ())), "too many dims: the sharding has 3, the tensor has 2"),
        (Sharding(((DATA,),)), "too few dims: the sharding has 1, the tensor has 2"),
        (Sharding(((), ()), (("mean", DATA),)), "unknown reduction 'mean'"),
        (Sharding(((), ()), (("sum", DATA), ("max", TENSOR))), "partial in max and sum at once"),
    ],
    ids=str,
)
def test_illegal(sharding: Sharding, problem: str) -> None:
    assert problem in (check_sharding(sharding, (12, 12), MESH) or "")
    assert problem in (check_sharding(sharding, 2, MESH) or "")


@pytest.mark.parametrize(
    "sharding",
    [
        Sharding(((DATA,), (TENSOR,))),
        Sharding(((Axis("data", 1, 2), TENSOR), (Axis("data", 2, 3),))),
        Sharding(((Axis("data", 1, 2),), ()), (("sum", TENSOR), ("sum", Axis("data", 2, 3)))),
    ],
    ids=str,
)
def test_legal(sharding: Sharding) -> None:
    assert check_sharding(sharding, (5, 7), MESH) is None


def test_axes_of_an_op() -> None:
    assert check_axes((DATA, TENSOR), MESH) is None
    assert "no axes are given" in (check_axes((), MESH) or "")
    assert "appears twice" in (check_axes((DATA, DATA), MESH) or "")


def test_parts_of_one_way_change_nothing() -> None:
    assert merge((Axis("tensor", 1, 2), Axis("data", 2, 1), Axis("tensor", 2, 2))) == (TENSOR,)
