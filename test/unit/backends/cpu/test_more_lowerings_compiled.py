"""Activations, losses, data movement, compiled: a few of each family, the rest as in the oracle."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from test_lowered_graphs import check

sys.path.append(str(Path(__file__).parents[2] / "passes" / "fuse"))
import more_functions as more

FEW = ("elu", "softplus backward", "remainder", "log sigmoid")


@pytest.mark.parametrize("name", FEW)
def test_activations(name: str) -> None:
    check(more.ACTIVATIONS[name], more.X, more.Y, kernels=1)


@pytest.mark.parametrize("name", ["huber", "with logits"])
def test_losses(name: str) -> None:
    check(more.LOSSES[name], more.X, more.Y)


@pytest.mark.parametrize(
    "name", ["roll and windows", "pad", "reflection", "pixel unshuffle", "repeat", "index by two"]
)
def test_data_movement(name: str, threads: int) -> None:
    check(more.MOVES[name], more.PIXELS)


def test_wide_rows_of_moved_data() -> None:
    """Rows longer than a vector, and no multiple of one."""
    x = torch.randn(3, 5, 129)
    check(lambda x: torch.flip(torch.nn.functional.pad(x, (3, 2, 1, 0), mode="reflect") * 2, (-1,)), x)
