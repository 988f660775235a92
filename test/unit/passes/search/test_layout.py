"""Layouts, and the cost of changing from one to another."""

from __future__ import annotations

import itertools

import pytest

from shardc.cost.collective import KINDS
from shardc.cost.links import UNIFORM
from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.passes.partition.reshard_plan import plan_reshard
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.distances import Distances
from shardc.passes.search.layout import SUM, WHOLE, layouts_of, local_shape, parts, sharding_of

MESH = Mesh((MeshAxis("data", 2), MeshAxis("tensor", 4)))
AXES = tuple(MESH.whole(axis.name) for axis in MESH.space)
SIZES = (2, 4)


def test_layouts_cut_into_equal_blocks() -> None:
    assert set(layouts_of((6, 4), SIZES)) == {
        (-1, -1), (0, -1), (1, -1), (-1, 1), (0, 1),
    }  # fmt: skip
    assert layouts_of((), SIZES) == ((-1, -1),)
    assert local_shape((0, 1), (6, 4), SIZES) == (3, 1)
    assert parts((0, 1), SIZES) == 8


def test_a_dim_that_two_axes_cut_has_them_in_the_meshs_order() -> None:
    sharding = sharding_of((0, 0), 2, AXES)
    assert [axis.name for axis in sharding.dims[0]] == ["data", "tensor"]
    assert sharding_of((SUM, WHOLE), 1, AXES).partial == (("sum", MESH.whole("data")),)


@pytest.mark.parametrize("terms", [(), (SUM,)])
def test_reshards_cost_where_the_partitioner_sends(terms: tuple[int, ...]) -> None:
    shape = (16, 8)
    made = (*layouts_of(shape, SIZES), *((*terms, d) for d in (WHOLE, 0, 1) if terms))
    needed = layouts_of(shape, SIZES)
    seconds = Distances(SearchAxes(AXES), UNIFORM, 1.0).between(shape, 4, made, needed)
    for (row, source), (column, target) in itertools.product(enumerate(made), enumerate(needed)):
        steps = plan_reshard(
            sharding_of(source, 2, AXES), sharding_of(target, 2, AXES), shape, MESH, element_bytes=4
        )
        if not steps:
            assert seconds[row, column] == 0.0
        assert (seconds[row, column] > 1e-6) == any(KINDS.get(type(step)) for step in steps)
