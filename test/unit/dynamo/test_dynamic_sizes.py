"""Sizes that change between calls: traced once for all of them, compiled once, and right for each."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from shardc.diagnostics.dynamo import ShardcFallbackWarning

from .conftest import assert_identical

Wrap = Callable[..., Any]


def _trains_alike(run: Callable[..., Any], f: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> None:
    """Results and gradients of the floating-point arguments, bit for bit."""
    seen = []
    for function in (run, f):
        given = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        out = function(*given)
        seen.append((out.detach(), torch.autograd.grad(out.sum(), [a for a in given if a.requires_grad])))
    assert_identical(*seen)


def test_batch_sizes_are_compiled_once(compiled: Wrap, programs: list[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    run = compiled(model)
    for n in (4, 6):
        _trains_alike(run, model, (torch.randn(n, 4),))
    assert len(programs) == 4  # forward and backward, for the first size, then for all
    for n in (2, 5, 9, 17):
        _trains_alike(run, model, (torch.randn(n, 4),))
    assert len(programs) == 4


@pytest.mark.slow
def test_batch_and_sequence_sizes_are_compiled_once(compiled: Wrap, programs: list[str]) -> None:
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10)

    def f(x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        x = x + embedding(tokens)
        x = functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return functional.cross_entropy(head(x).flatten(0, 1), tokens.flatten())

    run = compiled(f, dynamic=True)
    for batch, length in ((2, 3), (2, 7), (5, 4), (3, 9)):
        _trains_alike(run, f, (torch.randn(batch, length, 4), torch.randint(0, 10, (batch, length))))
    assert len(programs) == 2


def test_equal_sizes_that_no_symbol_tells_keep_the_other_kernels(compiled: Wrap, programs: list[str]) -> None:
    def f(x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy((x * x.sigmoid()).flatten(0, 1), tokens.flatten())

    run = compiled(f, fuse=True, dynamic=True)
    for batch, length, rows, columns in ((4, 6, 8, 3), (5, 4, 2, 10)):
        x, tokens = torch.randn(batch, length, 10), torch.randint(0, 10, (rows, columns))
        losses, gradients = zip(*(_differentiated(g, x, tokens) for g in (run, f)), strict=True)
        torch.testing.assert_close(*losses)
        torch.testing.assert_close(*gradients)
    assert len(programs) == 2 and all("kernel(" in text for text in programs)


def _differentiated(
    f: Callable[..., Any], x: torch.Tensor, tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    loss = f(x, tokens)
    return loss.detach(), torch.autograd.grad(loss, x)[0]


SCALES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "square root": lambda x: (x / math.sqrt(x.shape[-1])).softmax(-1),
    "power": lambda x: x * x.shape[-1] ** -0.5 - 2 ** (x.shape[0] / 3.0) + x.shape[0] ** 2,
    "smallest and largest": lambda x: x * min(x.shape[0], 4) + max(x.shape[1], 3),
    "quotient": lambda x: x * (x.shape[0] / x.shape[1]) + x.shape[0] / 3,
    "whole part": lambda x: (
        x[: math.floor(x.shape[0] / 2.0)] * math.ceil(x.shape[1] / 1.5) + int(x.shape[0] * 1.5)
    ),
    "sum of many": lambda x: torch.cat([x, x, x * 2, x.new_ones(x.shape[0] + 1, x.shape[1])]).sum(0),
    "number of a new tensor": lambda x: torch.full((3,), x.shape[0] / 7) * x.sum(),
}


def _with_gradient(f: Callable[..., torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    out = f(x)
    return out.detach(), *torch.autograd.grad(out.sum(), x)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCALES)
def test_numbers_computed_from_sizes(compiled: Wrap, programs: list[str], name: str) -> None:
    run = compiled(SCALES[name], fuse=True, dynamic=True)
    for shape in ((6, 8), (7, 5), (9, 4)):
        x = torch.randn(shape, dtype=torch.float64)
        found, expected = (_with_gradient(f, x.clone().requires_grad_()) for f in (run, SCALES[name]))
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    assert len(programs) == 2


def test_arithmetic_on_sizes(compiled: Wrap, programs: list[str]) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, m = x.shape
        halves = x[: n // 2 * 2].reshape(n // 2, 2 * m)
        return (
            halves,
            x.new_zeros(n + m, n % 3 + 2),
            x[n - 2 :] * n,
            x[-(n // 2) :] * -n,
            x.flatten() / x.numel(),
            torch.arange(n) - m,
        )

    run = compiled(f, dynamic=True)
    for n, m in ((4, 3), (7, 5), (9, 2)):
        x = torch.randn(n, m)
        assert_identical(run(x), f(x))
    assert len(programs) == 1
    assert ".size(" in programs[0] or " // 2" in programs[0]


def test_an_integer_argument_that_changes(compiled: Wrap, programs: list[str]) -> None:
    def f(x: torch.Tensor, n: int) -> tuple[torch.Tensor, int]:
        return x * n + n, n * 3

    run, x = compiled(f), torch.randn(3)
    for n in (5, 6, 7, 8):
        assert_identical(run(x, n), f(x, n))
    assert len(programs) <= 2


def test_views_of_inputs_and_writes_to_them(compiled: Wrap, programs: list[str]) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x[1:].add_(x.shape[0])
        return x.t(), x.flatten()[::2], x * 2

    run = compiled(f, dynamic=True)
    for n in (3, 4, 6):
        x = torch.randn(n, 2)
        twin = x.clone()
        found = run(x)
        assert_identical((found, x), (f(twin), twin))
        found[0].zero_()
        assert not x.any()
    assert len(programs) == 1


def test_activations_of_unknown_size_are_freed(compiled: Wrap, programs: list[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4), nn.Tanh())
    compiled(model, dynamic=True)(torch.randn(6, 4)).sum().backward()
    assert "    del " in programs[0] and "    del " in programs[1]


def first_rows(x: torch.Tensor) -> torch.Tensor:
    count = (x > 0).sum().item()
    torch._check(count <= x.shape[0])
    return x[:count] * 2 + 1


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x: x * (x.shape[0] & 6), "computes with Python numbers"),
        (lambda x: x[x > 0].exp(), "aten.index.Tensor: it makes a size that depends on values"),
        (
            lambda x: torch.repeat_interleave(x, (x > 0).long() + 1) * 2,
            "aten.repeat_interleave.Tensor: it makes a size that",
        ),
        (first_rows, "aten._local_scalar_dense.default: it makes a size that depends on values"),
    ],
    ids=["bits of a size", "as many elements as are positive", "each as often as a value says", "a count"],
)
def test_what_is_not_imported_runs_through_aten_with_one_diagnostic(f: Callable[..., Any], why: str) -> None:
    run = torch.compile(f, backend="shardc", dynamic=True)
    with (
        warnings.catch_warnings(record=True) as caught,
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True),
    ):
        warnings.simplefilter("always")
        for n in (4, 5, 6):
            x = torch.randn(n)
            assert_identical(run(x), f(x))
    (said,) = [str(w.message) for w in caught if issubclass(w.category, ShardcFallbackWarning)]
    assert why in said and __file__ in said


def test_gradients_through_sizes_that_depend_on_values() -> None:
    f = lambda x, w: torch.softmax(x[x[:, 0] > 0] @ w, -1).square().sum()  # noqa: E731
    run, w = torch.compile(f, backend="shardc", dynamic=True), torch.randn(4, 4, requires_grad=True)
    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        pytest.warns(ShardcFallbackWarning),
    ):
        for n in (5, 8, 9):
            x = torch.randn(n, 4)
            (found,), (expected,) = (torch.autograd.grad(g(x, w), w) for g in (run, f))
            torch.testing.assert_close(found, expected)
