"""Layouts of values that loops over micro-batches split, between axes of devices."""

from __future__ import annotations

import pytest

from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.dialects.dist.sharding import Sharding
from shardc.dialects.dist.time_part import exchanged, time_heads

MESH = Mesh((*(MeshAxis(name, 2) for name in ("data", "outer", "inner")), MeshAxis("micro", 2, "time")))
DATA, OUTER, INNER, MICRO = (MESH.whole(name) for name in ("data", "outer", "inner", "micro"))
BEFORE = Sharding(((DATA, MICRO, OUTER), (INNER,), ()))


def test_axes_inside_of_a_loop_change_places() -> None:
    """The loop's axis stays between the axis of the batch and what splits a micro-batch."""
    assert time_heads(BEFORE, MESH) == {0: (DATA, MICRO)}
    found = exchanged(Sharding(((DATA, INNER), (OUTER,), ())), BEFORE, MESH)
    assert found == Sharding(((DATA, MICRO, INNER), (OUTER,), ()))


def test_axes_outside_of_a_loop_stay() -> None:
    with pytest.raises(ValueError, match="outside of a loop"):
        exchanged(Sharding(((INNER, DATA), (OUTER,), ())), BEFORE, MESH)


def test_terms_of_a_loop_stay() -> None:
    before = Sharding(((OUTER,), (INNER,)), (("sum", MICRO),))
    found = exchanged(Sharding(((INNER,), (OUTER,))), before, MESH)
    assert found == Sharding(((INNER,), (OUTER,)), (("sum", MICRO),))
