"""Pools over large windows, computed dim by dim: values and gradients of eager."""

from __future__ import annotations

from collections.abc import Callable
from math import nan

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import shardc
from shardc.frontend.graph.large_windows import _covering

MAXIMA = {
    "nine by nine": lambda x: F.max_pool2d(x, 9, 1, 4),
    "three by seven": lambda x: F.max_pool2d(x, (3, 7), (2, 3), (1, 2)),
    "with holes": lambda x: F.max_pool2d(x, 4, 2, 1, 3),
    "beyond the edge": lambda x: F.max_pool2d(x, 5, 3, 2, ceil_mode=True),
    "of 37 columns": lambda x: F.max_pool2d(x, (1, 37), 1, (0, 18)),
    "of 34 columns, with holes": lambda x: F.max_pool2d(
        x.repeat(1, 1, 1, 3), (3, 34), (2, 1), (1, 17), (1, 2)
    ),
    "blocks of 40": lambda x: F.max_pool2d(x.repeat(1, 1, 2, 2), 40),
    "of all": lambda x: F.max_pool2d(x, x.shape[-2:]),
    "adaptive": lambda x: F.adaptive_max_pool2d(x, (2, 4)),
    "adaptive, unequal": lambda x: F.adaptive_max_pool2d(x, 5),
    "of a volume": lambda x: F.max_pool3d(x[:, None], (2, 5, 5), 1, (1, 2, 2)),
    "of a line": lambda x: F.max_pool1d(x[0], 11, 1, 5),
}
MEANS = {
    "seven by seven": lambda x: F.avg_pool2d(x, 7, 1, 3),
    "without padding": lambda x: F.avg_pool2d(x, (6, 7), (2, 3), (3, 2), count_include_pad=False),
    "beyond the edge": lambda x: F.avg_pool2d(x, 7, 3, 2, ceil_mode=True),
    "beyond the edge, without padding": lambda x: F.avg_pool2d(x, 7, 3, 2, True, False),
    "a divisor": lambda x: F.avg_pool2d(x, 7, 2, divisor_override=3),
    "of a volume": lambda x: F.avg_pool3d(x[:, None], (2, 5, 5), (1, 2, 1), (1, 2, 0)),
}


@pytest.mark.parametrize("name", MAXIMA)
def test_maxima(name: str) -> None:
    x = _pictures()
    _compare(MAXIMA[name], x)
    _compare(MAXIMA[name], x.to(memory_format=torch.channels_last))


@pytest.mark.parametrize("name", MEANS)
def test_means(name: str) -> None:
    x = _pictures()
    _compare(MEANS[name], x)
    _compare(MEANS[name], x.to(memory_format=torch.channels_last))


def test_a_maximum_of_nan_is_nan() -> None:
    x = _pictures()
    x[0, 1, 7, 8] = nan
    _compare(MAXIMA["nine by nine"], x)
    _compare(MAXIMA["of 37 columns"], x)


def test_equal_elements_have_the_first_index() -> None:
    x = torch.randint(3, (2, 3, 20, 24)).float()
    _compare(MAXIMA["adaptive"], x)


def test_no_large_window_stays_a_call() -> None:
    with torch.no_grad():
        report = str(shardc.explain_fusion(MAXIMA["nine by nine"], torch.randn(4, 8, 64, 64)))
    assert "has windows of more than" not in report


def test_a_pool_computes_what_it_reads() -> None:
    """The indices, which nothing reads, would keep the ReLU outside."""
    with torch.no_grad():
        report = str(
            shardc.explain_fusion(lambda x: F.max_pool2d(F.relu(x), 3, 2, 1), torch.randn(8, 64, 56, 56))
        )
    assert "1 kernels replace" in report and "calls outside" not in report


@pytest.mark.parametrize("stride", [1, 3])
def test_windows_are_covered(stride: int) -> None:
    """Each window above 32 elements is one of two shorter ones, up to 32 times 32."""
    for window in (33, 37, 61, 64, 97, 113, 509, 1024):
        pools = _covering((window, stride, window // 2, 2), False)
        assert pools is not None
        pad, (a, one, _, holes), (b, by, _, step) = pools
        assert (pad[2], one, by, holes) == (window // 2, 1, stride, 2)
        assert step <= 2 * a and a + (b - 1) * step // 2 == window and max(a, b) <= 32


def _pictures() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 3, 20, 24)


def _compare(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    compiled = torch.compile(function, backend="shardc", dynamic=False)
    with torch.no_grad():
        got, other = compiled(x), function(x)
    strides = [[n for n, size in zip(t.stride(), t.shape, strict=True) if size > 1] for t in (got, other)]
    assert strides[0] == strides[1]
    torch.testing.assert_close(got, other, equal_nan=True)
    torch.manual_seed(1)
    seed, found = torch.randn(other.shape), []
    for call in (compiled, function):
        leaf = x.detach().requires_grad_()
        made = call(leaf)
        found.append([made.detach(), *torch.autograd.grad(made, leaf, seed)])
    torch.testing.assert_close(*found, equal_nan=True)
