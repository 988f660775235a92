"""Effects of functions besides their results: writes to inputs, views, random draws, graph breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from .conftest import assert_identical

Wrap = Callable[..., Any]


def test_no_grad_and_inference_mode(compiled: Wrap) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
    run, x = compiled(model), torch.randn(3, 4)
    with torch.no_grad():
        assert not run(x).requires_grad
        assert_identical(run(x), model(x))
    with torch.inference_mode():
        assert_identical(run(x), model(x))


def test_gradients_of_inputs(compiled: Wrap) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x.sin() @ y).relu() / (1 + x.sum())

    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    found = torch.autograd.grad(compiled(f)(x, y).sum(), (x, y))
    assert_identical(found, torch.autograd.grad(f(x, y).sum(), (x, y)))


def test_graph_breaks(compiled: Wrap) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x.cumsum(0) if x.sum() > 0 else x - 1

    run = compiled(f)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_identical(run(x), f(x))


def test_writes_to_inputs(compiled: Wrap) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y[1:].mul_(x[0])
        return x * y.sum()

    x, y = torch.randn(3), torch.randn(4)
    x2, y2 = x.clone(), y.clone()
    found = compiled(f)(x, y)
    assert_identical((found, x, y), (f(x2, y2), x2, y2))


def test_writes_to_a_leaf_without_gradient_and_training_through_it(compiled: Wrap) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.layer(x) * self.calls

    model = Counter()
    run = compiled(model)
    for _ in range(3):
        run(torch.ones(2, 3)).sum().backward()
    assert model.calls.item() == 3
    assert_identical(model.layer.bias.grad, torch.full((3,), 12.0))  # 2 rows, times 1 + 2 + 3


def test_views_of_inputs_and_of_results(compiled: Wrap) -> None:
    """A view that is returned still is one: writing to it shows in what it is a view of."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return x.t(), x[1:], y, y.view(-1), y.transpose(0, 1)

    x = torch.arange(6.0).reshape(2, 3)
    found, expected = compiled(f)(x), f(x)
    assert_identical(found, expected)
    found[3][0] = 7
    assert found[2][0, 0] == 7 and found[4][0, 0] == 7
    found[1][0, 0] = -1
    assert x[1, 0] == -1 and found[0][0, 1] == -1


def test_equal_results_stay_two_tensors(compiled: Wrap) -> None:
    """They are computed alike, but whoever writes to one does not write to the other."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.exp(),
            x.exp(),
            x.clone(),
            x.clone(),
            torch.zeros(2),
            torch.zeros(2),
            x.sum(0),
            x.sum(0)[None],
        )

    x = torch.randn(3, requires_grad=True)
    found = compiled(f)(x)
    assert_identical(found, f(x))
    assert len({t.untyped_storage().data_ptr() for t in found}) == len(found)


def test_equal_calls_inside_become_one(compiled: Wrap, programs: list[str]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.exp().sum() + x.exp().amax()

    x = torch.randn(3)
    assert_identical(compiled(f)(x), f(x))
    assert programs[0].count("= exp(") == 1


def test_equal_random_calls_stay_apart(compiled: Wrap) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        drop = torch.nn.functional.dropout
        a, b = torch.rand(4), torch.rand(4)
        return (
            drop(x, 0.5),
            drop(x, 0.5),
            a + b,
            torch.bernoulli(x.sigmoid()),
            torch.randn_like(x),
            torch.randperm(5),
        )

    x = torch.randn(40)
    torch.manual_seed(3)
    found = compiled(f, random="torch")(x)
    torch.manual_seed(3)
    assert_identical(found, f(x))
    for a, b, *_ in (found, compiled(f)(x)):
        assert not torch.equal(a, b)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "x",
    [
        torch.arange(24.0).reshape(2, 3, 4).transpose(0, 2),
        torch.arange(24.0).reshape(2, 3, 4)[:, ::2],
        torch.arange(4.0).expand(2, 3, 4),
        torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "expanded", "channels_last"],
)
def test_strides_are_those_of_eager(compiled: Wrap, x: torch.Tensor) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        dense = x.clone(memory_format=torch.contiguous_format)
        return (
            y,
            torch.zeros_like(x),
            x.clone(),
            dense,
            y.reshape(-1) * 2,
            x.double(),
            torch.empty_like(x).fill_(2),
        )

    assert_identical(compiled(f)(x), f(x))


def test_integers_and_booleans(compiled: Wrap) -> None:
    def f(ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        full = torch.full((3,), True)
        return (
            ids // 2,
            ids.float() / 3,
            ids[:, None] == ids,
            mask & full,
            ids.masked_fill(mask, -1),
            ~mask | full,
        )

    ids, mask = torch.tensor([5, -3, 8]), torch.tensor([True, False, True])
    assert_identical(compiled(f)(ids, mask), f(ids, mask))


def test_results_that_are_no_tensors(compiled: Wrap) -> None:
    def f(x: torch.Tensor) -> tuple[Any, ...]:
        return x + 1, None, {"three": 3, "x": x}, x.shape[0], "name"

    x = torch.ones(2)
    assert_identical(compiled(f)(x), f(x))


def test_constants_and_captured_tensors(compiled: Wrap) -> None:
    table = torch.randn(5)

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.5, 2.5]) + table[:2] - torch.tensor(3) + float("inf") * (x > 100)

    x = torch.randn(2)
    assert_identical(compiled(f)(x), f(x))


def test_double_backward_through_a_function_is_refused_as_by_aot_autograd(compiled: Wrap) -> None:
    x = torch.randn(3, requires_grad=True)
    (grad,) = torch.autograd.grad(compiled(lambda x: x.sin().sum())(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        grad.sum().backward()


def test_retained_graph(compiled: Wrap) -> None:
    x = torch.randn(3, requires_grad=True)
    y = compiled(lambda x: x.sin().exp())(x).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    assert_identical(torch.autograd.grad(y, x), first)


def test_activations_are_freed_during_the_backward(compiled: Wrap, programs: list[str]) -> None:
    """A backward that held all activations to its end would need twice the memory of eager's."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(3)])
    compiled(model)(torch.randn(64, 64)).sum().backward()
    lines = programs[1].splitlines()
    saved = (
        next(line for line in lines if line.endswith("= inputs"))
        .strip()
        .removesuffix(" = inputs")
        .split(", ")
    )
    freed = {
        name for line in lines if line.strip().startswith("del ") for name in line.strip()[4:].split(", ")
    }
    assert "inputs.clear()" in programs[1]
    large = [name for name in saved if not name.startswith("tangents")]
    assert len(large) >= 6 and freed.issuperset(large)
