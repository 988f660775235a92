"""Tiles by closed forms: vectors, units, long rows, and overrides by ``#kern.config``."""

from __future__ import annotations

import pytest

from shardc.backends.triton.config import Extent, tile_of
from shardc.cost.machine import GPUS, Gpu

TARGET = pytest.mark.parametrize("target", GPUS.values(), ids=GPUS)


@TARGET
@pytest.mark.parametrize("item_bytes", [1, 2, 4, 8])
def test_each_thread_has_vectors(target: Gpu, item_bytes: int) -> None:
    for count in (1, 1 << 12, 1 << 26):
        tile = tile_of(Extent(count, 0, item_bytes), target, {})
        assert tile.columns >= tile.warps * target.warp_size * (16 // item_bytes)


@TARGET
def test_few_elements_are_spread_over_the_units(target: Gpu) -> None:
    count = 2048 * target.units
    assert count // tile_of(Extent(count, 0, 4), target, {}).columns >= 2 * target.units


@TARGET
def test_rows(target: Gpu) -> None:
    """Short ones share a program, as long as there are programs for all units; long ones are looped over."""
    short, few, long = (
        tile_of(Extent(*size, 4), target, {}) for size in ((1 << 20, 64), (8, 64), (64, 50304))
    )
    assert short.rows > 1 and short.rows * short.columns == 2048
    assert few.rows == 1 and few.columns == 64
    assert long.columns < 50304 and long.rows == 1
    assert long.warps * target.warp_size <= 1024


@TARGET
def test_sums_over_rows_fill_the_units_once_or_twice(target: Gpu) -> None:
    many, few = (Extent(rows, 1024, 4, sums=2, whole=True) for rows in (1 << 16, 4))
    tile = tile_of(many, target, {})
    assert target.units <= tile.programs <= 512
    assert tile_of(few, target, {}).programs == 1


def test_what_the_attribute_says_comes_first() -> None:
    target = GPUS["sm_90"]
    tile = tile_of(Extent(4096, 1000, 4), target, {"rows": 4, "warps": 2, "columns": 256})
    assert (tile.rows, tile.columns, tile.warps) == (4, 256, 2)


def test_elements_of_eight_bytes_have_more_threads() -> None:
    """Each takes two registers."""
    target = GPUS["sm_90"]
    sums = (Extent(1 << 13, 1, 1, sums=1, widest_bytes=n) for n in (4, 8))
    narrow, wide = (tile_of(e, target, {}) for e in sums)
    assert wide.warps == 2 * narrow.warps and wide.rows == narrow.rows
