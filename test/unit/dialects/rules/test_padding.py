"""The proof of padding: it runs with the cuts of each rule, and finds planted errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from shardc.diagnostics.dialects.rules import UnsoundRule
from shardc.dialects.rules.proving.execution import call_of, sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import find_rule

X, LABELS = sample(4, 6), torch.randint(0, 6, (4, 1))


@pytest.mark.parametrize(
    ("target", "args", "padded"),
    [
        ("aten.mm", (X, sample(6, 2)), ("a", "b", "c")),
        ("aten.mean.dim", (X, (1,)), ("a", "b")),
        ("aten.amax", (X, (1,)), ("a", "b")),
        ("aten._log_softmax", (X, 1, False), ("n0", "n1")),
        ("aten.gather", (X, 1, LABELS), ("n0", "s1")),
        ("aten.view", (sample(4, 6), (24,)), ("a", "b")),
        ("aten.arange", (6,), ("a",)),
        ("aten.slice.Tensor", (X, 1, 0, 6), ("a", "b")),
        ("aten.slice.Tensor", (X, 1, 0, 5), ("a",)),
        ("aten.cumsum", (X, 1), ("n0",)),
    ],
)
def test_padded_factors(target: str, args: tuple[object, ...], padded: tuple[str, ...]) -> None:
    assert prove(target, args).padded == padded


@pytest.mark.parametrize(
    ("target", "x", "dim"),
    [
        ("aten.amax", -X.abs() - 1, (1,)),
        ("aten.amin", X.abs() + 1, (1,)),
        ("aten.any.dim", torch.zeros(4, 6, dtype=torch.bool), 1),
        ("aten.all.dim", torch.ones(4, 6, dtype=torch.bool), 1),
    ],
)
def test_padding_of_an_extremum_is_never_the_extremum(
    target: str, x: torch.Tensor, dim: int | tuple[int, ...]
) -> None:
    """All numbers are on the far side of 0, or all truth values the same: another padding would win."""
    assert prove(target, (x, dim)).padded == ("a", "b")


@pytest.mark.parametrize("number", [None, 0.0])
def test_a_wrong_number_is_found(number: float | None) -> None:
    """A maximum of what is below zero sees zeros, and NaN."""
    below = -X.abs() - 1
    rule = find_rule(call_of("aten.amax", (below, (1,)))[0])
    assert rule is not None
    with pytest.raises(UnsoundRule, match="with b padded"):
        prove("aten.amax", (below, (1,)), rule=replace(rule, neutral={"b": (number,)}))
