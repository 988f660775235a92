"""Rules of slices: parts stay whole, every other element does not."""

from __future__ import annotations

from typing import Any

import pytest

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import load_rules

X, END = sample(4, 6, 2), 2**63 - 1
PART, ALL = "([a,b,c])->([a,d,c]) replicate={b,d}", "([a,b,c])->([a,b,c])"
CASES: list[tuple[str, tuple[Any, ...], str]] = [
    ("slice.Tensor", (X, 1, 2, 5), PART),
    ("slice.Tensor", (X, 1, 0, END), ALL),
    ("slice.Tensor", (X, -2, -9, 6), ALL),
    ("slice.Tensor", (X, 1, 0, 5), PART),
    ("slice.Tensor", (X, 1, 0, None, 2), "([a,(b d),c])->([a,b,c]) replicate={d}"),
    ("slice.Tensor", (X, 1, 1, END, 2), "([a,(b d),c])->([a,b,c]) replicate={d}"),
    ("slice.Tensor", (X, 1, 3, END, 3), "([a,b,c])->([a,1,c]) replicate={b}"),
    ("slice.Tensor", (X, 1, 3, END, 2), PART),
    ("slice_backward", (sample(4, 3, 2), (4, 6, 2), 1, 2, 5, 1), PART),
    ("slice_backward", (sample(4, 3, 2), (4, 6, 2), 1, 0, 3, 1), PART),
    ("slice_backward", (sample(4, 3, 2), (4, 6, 2), 1, 1, END, 2), "([a,b,c])->([a,(b d),c]) replicate={d}"),
    ("slice_backward", (X, (4, 6, 2), 1, 0, END, 1), ALL),
]


@pytest.mark.parametrize(("target", "args", "einsum"), CASES)
def test_slice(target: str, args: tuple[Any, ...], einsum: str) -> None:
    proof = prove(f"aten.{target}", args)
    assert str(proof.rule) == einsum
    assert proof.unreached == ()
    assert list(proof.rule.linear) == [{0}]


def test_the_first_elements_may_be_padded() -> None:
    """With what follows them; of the gradient, with zeros."""
    assert prove("aten.slice.Tensor", (X, 1, 0, 4)).rule.neutral == {"d": (None,)}
    back = prove("aten.slice_backward", (sample(4, 4, 2), (4, 6, 2), 1, 0, 4, 1)).rule
    assert back.neutral == {"b": (0.0,)}
    assert prove("aten.slice.Tensor", (X, 1, 1, 4)).rule.neutral == {}


def test_scatter() -> None:
    part = prove("aten.slice_scatter", (X, sample(4, 3, 2), 1, 2, 5))
    assert str(part.rule) == "([a,b,c],[a,d,c])->([a,e,c]) replicate={b,d,e}"
    whole = prove("aten.slice_scatter", (X, sample(4, 6, 2, seed=1), 1, 0, 6))
    assert str(whole.rule) == "([a,b,c],[a,b,c])->([a,b,c])"
    assert list(part.rule.linear) == [{0, 1}]


def test_every_operator_has_a_case() -> None:
    registered = {t for t, f in load_rules().items() if f.__module__.endswith(".slices")}
    assert registered == {f"aten.{c[0]}" for c in CASES} | {"aten.slice_scatter"}
