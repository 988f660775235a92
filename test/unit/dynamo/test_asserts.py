"""Assertions of a model on its values are kept in compiled code, without a fallback."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

WEIGHT = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))


def embed(classes: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.one_hot(classes, 10).to(weight.dtype) @ weight


def compiled(options: dict[str, object] | None = None) -> object:
    torch._dynamo.reset()
    return torch.compile(embed, backend="shardc", options=options)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_one_hot_compiles_and_trains() -> None:
    function, classes = compiled(), torch.randint(0, 10, (7,))
    results = []
    for run in (embed, function):
        weight = WEIGHT.clone().requires_grad_()
        value = run(classes, weight)
        value.square().sum().backward()
        results.append((value, weight.grad))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("options", [None, {"fuse": False}])
@pytest.mark.parametrize(("wrong", "message"), [(10, "smaller than num_classes"), (-1, "non-negative")])
def test_a_wrong_class_is_told(
    is_trained: bool, options: dict[str, object] | None, wrong: int, message: str
) -> None:
    function, weight = compiled(options), WEIGHT.clone().requires_grad_(is_trained)
    good, bad = torch.tensor([1, 2, 3]), torch.tensor([1, wrong, 3])
    torch.testing.assert_close(function(good, weight), embed(good, weight))
    with pytest.raises(RuntimeError, match=message):
        function(bad, weight)
    torch.testing.assert_close(function(good, weight), embed(good, weight))


@pytest.mark.filterwarnings("ignore::shardc.diagnostics.dynamo.ShardcFallbackWarning")
def test_what_falls_back_asserts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("made to fail")

    monkeypatch.setattr("shardc.dynamo.compile_graph.compile_graph", broken)
    function = compiled()
    good = torch.tensor([1, 2, 3])
    torch.testing.assert_close(function(good, WEIGHT), embed(good, WEIGHT))
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        function(torch.tensor([1, 10]), WEIGHT)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", [torch.linalg.cholesky, torch.linalg.inv])
def test_what_linear_algebra_checks_is_checked_after_the_program(function: Callable) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return function(x) * 2

    torch._dynamo.reset()
    run = torch.compile(scaled, backend="shardc")
    good = torch.eye(4) + 0.1
    torch.testing.assert_close(run(good), scaled(good))
    bad = torch.full((4, 4), -1.0)
    with pytest.raises(RuntimeError) as told:
        scaled(bad)
    with pytest.raises(type(told.value), match="linalg"):
        run(bad)
    torch.testing.assert_close(run(good), scaled(good))
