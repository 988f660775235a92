"""Loops over time, written out: one kernel, which reads the steps' parts of a tensor in place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from .conftest import assert_near


def filtered(x: Tensor) -> Tensor:
    """A recursive filter of second order over rows."""
    before, last, made = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
    for n in range(x.shape[0]):
        last, before = 0.2 * x[n] + 1.2 * last - 0.5 * before, last
        made.append(last)
    return torch.stack(made)


def gradient(x: Tensor) -> Tensor:
    """Gradient of a sum over the results of :func:`filtered`, from the last step to the first."""
    before, last, made = torch.zeros_like(x[0]), torch.zeros_like(x[0]), []
    for n in reversed(range(x.shape[0])):
        last, before = x[n] * x[n] + 1.2 * last - 0.5 * before, last
        made.append(0.2 * last)
    return torch.stack(made[::-1])


@pytest.mark.parametrize("f", [filtered, gradient])
@pytest.mark.parametrize("steps", [7, 24, 32])
def test_one_kernel_reads_the_whole_tensor(fuse: Any, f: Any, steps: int) -> None:
    x = torch.randn(steps, 300)
    done = fuse(f, x)
    assert_near(done.results[0], f(x.double()).float())
    assert len(done.kernels) == 1 and not done.stayed, (done.kernels, done.stayed)


def test_more_steps_are_several_kernels(fuse: Any) -> None:
    x = torch.randn(80, 30)
    done = fuse(lambda x: filtered(x).sum(0), x)
    assert_near(done.results[0], filtered(x.double()).sum(0).float())
    assert len(done.kernels) > 1


def test_few_parts_stay_tensors_of_their_own(fuse: Any) -> None:
    """Three rows of many: the same ops on other rows are the same kernel."""
    x = torch.randn(40, 300)
    done = fuse(lambda x: (x[3] * x[4]).exp() + x[5], x)
    assert_near(done.results[0], ((x[3] * x[4]).exp() + x[5]))
    assert len(done.kernels) == 1 and done.stayed


def test_parts_of_parts_and_a_part_along_another_dim(fuse: Any) -> None:
    def f(x: Tensor) -> Tensor:
        total = x[0, 1]
        for n in range(6):
            total = (total * x[1, n]).sin() + x[0, n] * x[1, n, :1]
        return total

    x = torch.randn(2, 6, 70)
    done = fuse(f, x)
    assert_near(done.results[0], f(x.double()).float())
    assert len(done.kernels) == 1


def test_steps_that_read_neighbours_are_not_computed_again_and_again(fuse: Any) -> None:
    """Each step reads the one before at two places: in one kernel, 2 ** steps elements for each element."""

    def f(x: Tensor) -> Tensor:
        total = x[0]
        for n in range(1, x.shape[0]):
            left, right = total * 0.5, total + 1
            total = x[n] + (F.pad(left, (1, 0)) + F.pad(right, (0, 1)))[:, :-1]
        return total

    x = torch.randn(12, 4, 300)
    done = fuse(f, x)
    assert_near(done.results[0], f(x.double()).float())
    assert len(done.kernels) > 1
