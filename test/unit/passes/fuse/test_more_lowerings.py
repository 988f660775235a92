"""Activations, losses, data movement: each in kernels, against eager and in f64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from .conftest import assert_near
from .more_functions import (
    ACTIVATIONS,
    JOINED,
    LOSSES,
    MOVES,
    NARROW,
    PIXELS,
    PLANE,
    POOLS,
    QUANTISED,
    REDUCTIONS,
    Functions,
    X,
    Y,
)

FLOATS = [torch.float32, torch.bfloat16]
aten = torch.ops.aten
VIEWS = {"aten.select.int", "aten.permute", "aten.view"}


def _check(fuse: Any, functions: Functions, *tensors: Tensor) -> None:
    """Every function is a kernel, with the values of eager; a failure names it."""
    failed = {}
    for name, function in functions.items():
        try:
            done = fuse(function, *tensors, rounding="eager", lone=True)
            assert done.kernels and set(done.stayed) <= VIEWS, done.stayed
            made = function(*tensors)
            for found, wanted in zip(done.results, made if isinstance(made, tuple) else (made,), strict=True):
                assert_near(found, wanted)
        except AssertionError as error:
            failed[name] = str(error)
    assert not failed


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_activations(fuse: Any, dtype: torch.dtype) -> None:
    _check(fuse, ACTIVATIONS, X.to(dtype), Y.to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_losses(fuse: Any, dtype: torch.dtype) -> None:
    _check(fuse, LOSSES, X.to(dtype), Y.to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions_of_rows(fuse: Any, dtype: torch.dtype) -> None:
    _check(fuse, REDUCTIONS, X.to(dtype), Y.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16], ids=str)
def test_narrow_integers(fuse: Any, dtype: torch.dtype) -> None:
    a, b = (t.to(torch.int64).to(dtype) for t in (X * 14, Y * 9))
    _check(fuse, NARROW, a, b)


def test_quantisation(fuse: Any) -> None:
    _check(fuse, QUANTISED, X, Y)


def test_data_movement(fuse: Any) -> None:
    _check(fuse, MOVES, PIXELS)


@pytest.mark.slow
def test_pools(fuse: Any) -> None:
    x = PIXELS.clone()
    x[0, 1, 2, 3], x[1, 0, :3] = float("nan"), -float("inf")
    _check(fuse, POOLS, PIXELS.round(decimals=1))
    _check(fuse, {"special": lambda x: aten.max_pool2d_with_indices(x, [3, 3], [1, 1], [1, 1])}, x)


def test_activations_of_infinities_and_nans(fuse: Any) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 3e38, -3e38, 1e-40])
    _check(fuse, {n: f for n, f in ACTIVATIONS.items() if "backward" not in n}, x[None], x[None].flip(1))


@pytest.mark.parametrize("name", JOINED)
def test_what_is_read_at_computed_indices_is_made_in_the_same_kernel(fuse: Any, name: str) -> None:
    done = fuse(JOINED[name], PLANE, rounding="eager", lone=True)
    assert len(done.kernels) == 1
    assert_near(done.results[0], JOINED[name](PLANE))


def test_what_is_a_result_too_is_made_in_a_kernel_of_its_own(fuse: Any) -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x.exp()
        return made, torch.nn.functional.pad(made, (1, 2)) * 3

    done = fuse(both, PLANE, rounding="eager", lone=True)
    assert len(done.kernels) == 2
    for found, wanted in zip(done.results, both(PLANE), strict=True):
        assert_near(found, wanted)


def test_sums_are_not_read_at_computed_indices_of_other_dims(fuse: Any) -> None:
    def shares(x: Tensor) -> Tensor:
        return torch.roll(x / x.sum(1, keepdim=True), 3, 1)

    done = fuse(shares, PLANE, rounding="eager", lone=True)
    assert_near(done.results[0], shares(PLANE))
