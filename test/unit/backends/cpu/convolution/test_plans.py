"""Plans of convolutions: register tiles, images that are read in place, and flat ones."""

from __future__ import annotations

import pytest
import torch

from shardc.backends.cpu.convolution.plan import CROWDED, SPARE, Plan, is_planned
from shardc.backends.cpu.host import vector_lanes, vector_registers
from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.convolution import Convolution


def planned(shape: tuple[int, ...], weight: tuple[int, ...], stride: int = 1, padding: int = 0) -> Plan:
    rank = len(shape) - 2
    numbers = [(n,) * rank for n in (stride, padding, 1)]
    pixels = [(n + 2 * padding - k) // stride + 1 for n, k in zip(shape[2:], weight[2:], strict=True)]
    out = (shape[0], weight[0], *pixels)
    types = [TensorType(each, torch.float32) for each in (shape, weight, out)]
    return Plan.of(Convolution(*types, False, *numbers, False, shape[1] // weight[1]))


@pytest.mark.parametrize("made", [1, 2, 3, 5, 16, 24, 37, 64])
def test_tiles_fit_into_registers(made: int) -> None:
    plan = planned((1, 3, 40, 40), (made, 3, 3, 3))
    sums, columns = plan.rows * plan.vectors, plan.vectors
    assert sums + columns + SPARE < vector_registers()
    assert plan.rows <= made


def test_images_are_read_in_place_unless_windows_leave_them() -> None:
    assert planned((1, 3, 40, 40), (16, 3, 3, 3)).lies
    assert not planned((1, 3, 40, 40), (16, 3, 3, 3), padding=1).lies
    assert not planned((1, 3, 40, 41), (16, 3, 3, 3), stride=2).lies


def test_channels_a_page_apart_are_copied() -> None:
    """Rows of all channels would share one set of the first cache."""
    plan = planned((1, 64, 32, 32), (16, 64, 3, 3))
    assert not plan.lies
    assert plan._crowded(plan.row, plan.plane, plan.apart) <= 3 * CROWDED
    assert plan._crowded(32, 32 * 32, 32 * 32) == 64


def test_narrow_images_are_flat() -> None:
    lanes = vector_lanes()
    plan = planned((2, 4, 16, 2 * lanes), (64, 4, 3, lanes - 2))  # what a tile reads stays in the first cache
    assert plan.is_flat and plan.count == -(-14 * (lanes + 3) // lanes)
    assert not planned((2, 8, 16, 2 * lanes + 2), (64, 8, 3, 3)).is_flat


def test_points_are_one_row() -> None:
    z, y, x = planned((2, 8, 6, 5), (16, 8, 1, 1)).lines
    assert (z.count, y.count, x.count) == (1, 1, 30)


def test_wide_windows_and_large_images_have_no_code() -> None:
    types = [TensorType(each, torch.float32) for each in ((1, 2, 90), (3, 2, 33), (1, 3, 58))]
    assert not is_planned(Convolution(*types, False, (1,), (0,), (1,), False, 1))
    assert is_planned(planned((1, 3, 40, 40), (16, 3, 3, 3), padding=1).spec)
    assert not is_planned(planned((1, 64, 600, 600), (16, 64, 3, 3), padding=1).spec)
