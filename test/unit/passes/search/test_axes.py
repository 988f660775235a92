"""Axes of a search: micro-batches after the first axis, outer axes split the batch, stages split no call."""

from __future__ import annotations

import pytest

from shardc.dialects.dist.mesh import Mesh, MeshAxis
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.layout import SUM, WHOLE


def mesh(*axes: tuple[str, int], micro: int = 0) -> Mesh:
    times = (MeshAxis("micro", micro, "time"),) if micro else ()
    return Mesh((*(MeshAxis(*axis) for axis in axes), *times))


def names(axes: SearchAxes) -> list[str]:
    return [axis.name for axis in axes.axes]


def test_time_stands_behind_what_cuts_the_batch() -> None:
    two = SearchAxes.of(mesh(("data", 2), ("tensor", 4), micro=3))
    assert (names(two), two.time, two.batch) == (["data", "micro", "tensor"], (1,), ())
    four = SearchAxes.of(mesh(("a", 2), ("b", 2), ("c", 2), ("d", 2), micro=3))
    assert (names(four), four.time, four.batch) == (["a", "b", "micro", "c", "d"], (2,), (0, 1))
    assert four.space == [0, 1, 3, 4]


def test_stages_cut_no_call() -> None:
    axes = SearchAxes.of(mesh(("pipe", 4), ("data", 2), ("tensor", 2), micro=8), "pipe")
    assert (names(axes), axes.stages, axes.batch) == (["data", "micro", "tensor"], 4, ())
    assert axes.trips == 8
    assert axes.turns((WHOLE, 0, WHOLE)) == axes.turns((WHOLE, SUM, WHOLE)) == 8
    assert axes.turns((0, WHOLE, WHOLE)) == 1


def test_waiting_is_that_of_published_schedules() -> None:
    """GPipe and 1F1B: (m + p - 1) / m of the work; a stage's share is 1 / p."""
    axes = SearchAxes.of(mesh(("pipe", 4), ("data", 2), micro=8), "pipe")
    assert axes.busy(8) == pytest.approx((8 + 4 - 1) / 8 / 4)
    assert axes.busy(1) == pytest.approx(1 / 4)


def test_a_stage_holds_the_values_of_micro_batches_under_way() -> None:
    axes = SearchAxes.of(mesh(("pipe", 4), ("data", 2), micro=8), "pipe")
    assert axes.held(((WHOLE, 0), (WHOLE, WHOLE))) == pytest.approx([1.0, 1 / 4])
