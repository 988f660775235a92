"""Higher-order operators that Dynamo hands over, functional transforms and custom autograd functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

from shardc.diagnostics.dynamo import ShardcFallbackWarning

from .conftest import assert_identical

Wrap = Callable[..., Any]


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))


def _while_loop(x: torch.Tensor) -> torch.Tensor:
    def more(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return i < 3

    return torch.while_loop(more, lambda i, x: (i + 1, x * 2 + i), (torch.tensor(0), x))[1]


def _scan(x: torch.Tensor) -> torch.Tensor:
    return torch._higher_order_ops.scan(lambda c, y: (c + y, c * y), torch.zeros(()), x)[1]


def _flex(x: torch.Tensor) -> torch.Tensor:
    q = x.reshape(1, 1, 4, 4)
    return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s - (i - j).abs())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("f", [_cond, _while_loop, _scan, _flex])
def test_operators_with_bodies_run_through_aten_with_one_diagnostic_each(f: Callable[..., Any]) -> None:
    run = torch.compile(f, backend="shardc")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in (torch.rand(16), -torch.rand(16)):
            assert_identical(run(x), f(x))
    (said,) = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
    assert "higher-order" in said and __file__ in said


def test_gradients_through_a_branch() -> None:
    x = torch.tensor([1.0, -3.0], requires_grad=True)
    with pytest.warns(ShardcFallbackWarning, match="higher-order"):
        found = torch.autograd.grad(torch.compile(_cond, backend="shardc")(x).sum(), x)
    assert_identical(found, torch.autograd.grad(_cond(x).sum(), x))


@pytest.mark.slow
def test_functional_transforms_compile(compiled: Wrap) -> None:
    """vmap and grad are gone by the time AOTAutograd has traced them."""
    model = nn.Linear(3, 2)

    def loss(params: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, params, (row,)).square().sum()

    def f(x: torch.Tensor) -> tuple[Any, ...]:
        params = dict(model.named_parameters())
        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(params, x)
        value_and_tangent = torch.func.jvp(torch.tanh, (x,), (x * 2,))
        return each, *value_and_tangent, torch.func.hessian(lambda row: row.exp().sum())(x[0])

    x = torch.randn(4, 3)
    found, expected = compiled(f)(x), f(x)
    assert_identical(found[1:], expected[1:])
    torch.testing.assert_close(found[0], expected[0])


class _Scaled(torch.autograd.Function):
    """A gradient that is not the derivative, so that only its own backward can have made it."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, y: torch.Tensor, factor: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * y.exp(), x.sign()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        return grad * ctx.factor, (grad * x).relu(), None


class _WritesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 5


def test_custom_autograd_functions_compile(compiled: Wrap, programs: list[str]) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scaled, sign = _Scaled.apply(x, y, 0.25)
        return scaled.sin() + sign

    _assert_gradients_alike(compiled(f), f, torch.randn(5), torch.randn(5))
    assert len(programs) == 2


def test_a_custom_autograd_function_that_writes_to_its_input(compiled: Wrap) -> None:
    """Dynamo leaves its call to eager; what is before and after it compiles."""
    f = lambda x: _WritesInPlace.apply(x.sin() * 3).cos()  # noqa: E731
    _assert_gradients_alike(compiled(f), f, torch.randn(5))


def _assert_gradients_alike(run: Callable[..., Any], f: Callable[..., Any], *args: torch.Tensor) -> None:
    inputs = [x.requires_grad_() for x in args]
    found, expected = run(*inputs), f(*inputs)
    assert_identical(found, expected)
    assert_identical(torch.autograd.grad(found.sum(), inputs), torch.autograd.grad(expected.sum(), inputs))
