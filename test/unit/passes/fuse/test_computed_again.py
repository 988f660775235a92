"""Values that a second kernel computes again instead of reading them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from .conftest import assert_near


def _made(text: str) -> list[list[str]]:
    """Return the shapes of each kernel's results."""
    lines = [line for line in text.splitlines() if "torch.prim.TupleUnpack" in line]
    return [re.findall(r"vtensor<\[([0-9,]*)\]", line.split("->")[1]) for line in lines]


def gradient(g: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
    """Gradient of a norm over the middle dim: sums along rows, and along all other dims."""
    scaled = g * 2 * torch.where(x > 0, x, 0.2)
    along = (scaled * x).mean(1, keepdim=True)
    into = scaled * w[:, None] - x * along
    return [into * w[:, None], (into * x).sum((0, 2))]


def test_a_chain_from_tensors_that_are_read_anyway(fuse: Any) -> None:
    tensors = torch.randn(4, 40, 300), torch.randn(4, 40, 300), torch.randn(40)
    done = fuse(gradient, *tensors)
    for found, exact in zip(done.results, gradient(*(t.double() for t in tensors)), strict=True):
        assert_near(found, exact.float())
    assert len(done.kernels) == 2
    sums, results = _made(str(done.module))  # the second kernel multiplies again, with the first one's sums
    assert sums == ["4,1,300", "4,40,300"] and results == ["40"]


@pytest.mark.parametrize("heavy", [False, True])
def test_expensive_values_are_read(fuse: Any, heavy: bool) -> None:
    def f(g: Tensor, x: Tensor) -> Tensor:
        scaled = g.exp() if heavy else g * 2
        along = (scaled * x).mean(1, keepdim=True)
        return ((scaled - x * along) * x).sum((0, 2))

    g, x = torch.randn(4, 40, 300), torch.randn(4, 40, 300)
    done = fuse(f, g, x)
    assert_near(done.results[0], f(g.double(), x.double()).float())
    assert any("4,40,300" in shapes for shapes in _made(str(done.module))) == heavy


def test_a_result_of_the_graph_is_read(fuse: Any) -> None:
    def f(x: Tensor) -> list[Tensor]:
        y = x * 2 + 1
        rows = (y * y).sum(1, keepdim=True)
        return [y, (y * rows).sum(0)]

    x = torch.randn(200, 300)
    done = fuse(f, x)
    for found, exact in zip(done.results, f(x.double()), strict=True):
        assert_near(found, exact.float())


def test_two_kernels_compute_a_value_again_or_none_does(fuse: Any) -> None:
    def f(g: Tensor, x: Tensor) -> list[Tensor]:
        scaled = g * 2
        along = (scaled * x).mean(1, keepdim=True)
        return [((scaled - x * along) * x).sum((0, 2)), (scaled * along).amax(2)]

    g, x = torch.randn(4, 40, 300), torch.randn(4, 40, 300)
    done = fuse(f, g, x)
    for found, exact in zip(done.results, f(g.double(), x.double()), strict=True):
        assert_near(found, exact.float())
    assert len(done.kernels) == 3
    assert not any("4,40,300" in shapes for shapes in _made(str(done.module)))
