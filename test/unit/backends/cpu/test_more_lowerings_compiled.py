"""Activations, losses, data movement, compiled: a few of each family, the rest as in the oracle."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from test_lowered_graphs import check

sys.path.append(str(Path(__file__).parents[2] / "passes" / "fuse"))
import more_functions as more

FEW = ("elu", "softplus backward", "xlogy", "log sigmoid")


@pytest.mark.parametrize("name", FEW)
def test_activations(name: str) -> None:
    check(more.ACTIVATIONS[name], more.X, more.Y, kernels=1)


@pytest.mark.parametrize("name", ["huber", "with logits"])
def test_losses(name: str) -> None:
    check(more.LOSSES[name], more.X, more.Y)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name", ["roll and windows", "pad", "reflection", "pixel unshuffle", "repeat", "index by two"]
)
def test_data_movement(name: str, threads: int) -> None:
    check(more.MOVES[name], more.PIXELS)


@pytest.mark.parametrize("name", list(more.POOLS)[1:2])
def test_pools(name: str, threads: int) -> None:
    check(more.POOLS[name], more.PIXELS)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["argmax", "any and all", "logsumexp", "norm"])
def test_reductions(name: str) -> None:
    check(more.REDUCTIONS[name], more.X, more.Y)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
def test_narrow_integers(dtype: torch.dtype) -> None:
    bounds = torch.iinfo(dtype)
    a, b = (torch.randint(bounds.min, bounds.max, (7, 129), dtype=dtype) for _ in range(2))
    for name in ("arithmetic", "order", "reductions"):
        check(more.NARROW[name], a, b)
    check(more.QUANTISED["quantised"], more.X, more.Y)


@pytest.mark.parametrize("shape", [(300, 1000), (200_000,), (131_072, 3)])
def test_sums_of_many_elements_to_one(shape: tuple[int, ...], threads: int) -> None:
    check(torch.nn.functional.mse_loss, torch.randn(shape), torch.randn(shape), kernels=1)


def test_wide_rows_of_moved_data() -> None:
    """Rows longer than a vector, and no multiple of one."""
    x = torch.randn(3, 5, 129)
    check(lambda x: torch.flip(torch.nn.functional.pad(x, (3, 2, 1, 0), mode="reflect") * 2, (-1,)), x)


@pytest.mark.parametrize("name", more.PRODUCTS)
def test_products_by_a_vector(name: str) -> None:
    check(more.PRODUCTS[name], more.X, more.Y, kernels=1)
