"""Pointwise calls on parts as one call; others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from shardc.frontend.graph.parts import MOST_ELEMENTS, join_parts

aten = torch.ops.aten
X, Y = torch.randn(3, 6, 5), torch.randn(3, 6, 5)


def _pointwise(function: Callable[..., Any], *tensors: Tensor) -> tuple[list[str], Any]:
    """Return the pointwise calls that are left, and the result."""
    traced = make_fx(function, tracing_mode="fake")(*tensors)
    join_parts(traced.graph)
    traced.graph.lint()
    traced.recompile()
    calls = [n.target for n in traced.graph.nodes if torch.Tag.pointwise in getattr(n.target, "tags", ())]
    return [str(target) for target in calls], traced(*tensors)


def _each(x: Tensor, y: Tensor) -> Tensor:
    """A loop over time: two functions of each part of x, one of parts of both."""
    total = x.new_zeros(3, 5)
    for i in range(6):
        part = x[:, i].sigmoid().mul(2) / y[:, i].cosh()
        total = torch.add(total, part[..., None].expand(3, 5, 2).sum(2))
    return total


def test_one_call_for_all_parts() -> None:
    calls, found = _pointwise(_each, X, Y)
    ours = [c for c in calls if "add" not in c]
    assert sorted(ours) == ["aten.cosh.default", "aten.div.Tensor", "aten.mul.Tensor", "aten.sigmoid.default"]
    torch.testing.assert_close(found, _each(X, Y))


def test_parts_from_the_end_and_equal_ones_are_the_same_parts() -> None:
    def f(x: Tensor) -> Tensor:
        return sum((x.select(-2, i).exp()[None] * i for i in (-1, 5, 0, 1, 0, 2)), torch.zeros(1, 3, 5))

    calls, found = _pointwise(f, X)
    assert calls.count("aten.exp.default") == 1
    torch.testing.assert_close(found, f(X))


def test_the_gradient_of_a_loop() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(_each(x, y).sum(), x)[0]

    calls, found = _pointwise(f, X, Y)
    assert calls.count("aten.sigmoid.default") == 1
    torch.testing.assert_close(found, f(X, Y))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [x[:, i].exp() for i in range(6)],
        lambda x: sum(x[:, i].exp().view(15) for i in range(6)),
        lambda x: sum(x[:, i].exp()[None].view(15) for i in range(6)),
        lambda x: sum(x[:, i].exp()[0] for i in range(3)),
        lambda x: sum((x[:, i] + i).mean(0) for i in range(6)),
        lambda x: sum((x[:, i] + x[:, (i + 1) % 6]).mean(0) for i in range(6)),
        lambda x: sum((x[0, i] + x[i % 3, 1]).mean(0) for i in range(6)),
        lambda x: sum(x.repeat(1, 4, 1)[:, i].exp().mean(0) for i in range(4)),
    ],
)
def test_others_stay(function: Callable[[Tensor], Any]) -> None:
    wanted = [str(n.target) for n in make_fx(function, tracing_mode="fake")(X).graph.nodes]
    calls, found = _pointwise(function, X)
    assert calls == [target for target in wanted if target in calls]
    torch.testing.assert_close(found, function(X))


def test_large_parts_stay() -> None:
    x = torch.randn(4, MOST_ELEMENTS + 1)
    calls, _ = _pointwise(lambda x: sum(x[i].exp().mean(0) for i in range(4)), x)
    assert calls.count("aten.exp.default") == 4


def test_numbers_of_another_dtype() -> None:
    """The parts of a row are numbers, which promote like tensors as long as all are."""
    x = torch.arange(6)
    function = lambda x: sum((x[i] / 2)[None] for i in range(6))  # noqa: E731
    calls, found = _pointwise(function, x)
    assert calls.count("aten.div.Tensor") == 1 and found.dtype == torch.float32
    torch.testing.assert_close(found, function(x))
