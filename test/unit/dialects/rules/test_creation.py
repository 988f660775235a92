"""Tensors from constants: each rank makes its block, with the values that the whole has there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import load_rules

X = sample(4, 6)
OWN = "([a,b])->([a,b])"
OTHER = "([b,c])->([a])"
F32, F64, I64, BF16 = torch.float32, torch.float64, torch.int64, torch.bfloat16

CASES: list[tuple[str, tuple[Any, ...], str]] = [
    ("aten.full", ((4, 6), 2.5), "()->([a,b])"),
    ("aten.full", ((), 2.5), "()->([])"),
    ("aten.full", ((4, 1), 7, I64), "()->([a,1])"),
    ("aten.zeros", ((4, 6), F64, 0, torch.device("cpu"), False), "()->([a,b])"),
    ("aten.ones", ((4,),), "()->([a])"),
    ("aten.new_full", (X, (8,), 3), OTHER),
    ("aten.new_zeros", (X, (8,)), OTHER),
    ("aten.new_ones", (X, (8,)), OTHER),
    ("aten.full_like", (X, 3), OWN),
    ("aten.zeros_like", (X, F32), OWN),
    ("aten.ones_like", (X,), OWN),
    ("aten.fill.Scalar", (X, 3), OWN),
    ("aten.scalar_tensor", (3.5,), "()->([])"),
    ("aten.arange", (6,), "()->([a])"),
    ("aten.arange", (6, BF16), "()->([a])"),
    ("aten.arange", (1,), "()->([1])"),
    ("aten.arange.start", (2, 8), "()->([a])"),
    ("aten.arange.start", (0.5, 6.5), "()->([a])"),
    ("aten.arange.start", (-2, 4, F64), "()->([a])"),
    ("aten.arange.start_step", (12, 0, -2), "()->([a])"),
    ("aten.arange.start_step", (0, 64, 2, F32), "()->([a])"),
    ("aten.arange.start_step", (0.0, 6.0, 1.0, I64), "()->([a])"),
    ("aten.arange.start_step", (0.5, 8.0, 1.5, I64), "()->([a])"),
    ("aten.arange.start_step", (0.25, 3.25, 0.5, F64), "()->([a])"),
    ("aten.arange.start_step", (0, 1024, 2, BF16), "()->([a])"),
    ("aten.eye", (4,), "()->([r0,r1]) replicate={r0,r1}"),
    ("aten.eye.m", (4, 6), "()->([r0,r1]) replicate={r0,r1}"),
    ("aten.linspace", (0, 1, 4), "()->([r0]) replicate={r0}"),
    ("aten.logspace", (0, 1, 4), "()->([r0]) replicate={r0}"),
    ("aten.tril_indices", (4, 4), "()->([r0,r1]) replicate={r0,r1}"),
    ("aten.triu_indices", (4, 4), "()->([r0,r1]) replicate={r0,r1}"),
    ("aten.tril", (X,), OWN),
    ("aten.tril", (sample(2, 6, 4), 1), "([a,b,c])->([a,b,c])"),
    ("aten.triu", (X, -2), OWN),
    ("aten.triu", (sample(6, 1), 1), "([a,1])->([a,1])"),
    ("aten.one_hot", (sample(4, 2, dtype=I64), 5), "([a,b])->([a,b,c]) replicate={c}"),
]
EMPTY: list[tuple[str, tuple[Any, ...], str]] = [
    ("aten.empty.memory_format", ((4, 6), BF16), "()->([a,b])"),
    ("aten.empty_strided", ((4, 6), (1, 4), F64), "()->([a,b])"),
    ("aten.new_empty", (X, (8,)), OTHER),
    ("aten.new_empty_strided", (X, (8,), (1,)), OTHER),
    ("aten.empty_like", (X,), OWN),
]


@pytest.mark.parametrize("target,args,einsum", CASES)
def test_rule_is_proved(target: str, args: tuple[Any, ...], einsum: str) -> None:
    proof = prove(target, args, ways=(2, 3))
    assert str(proof.rule) == einsum


@pytest.mark.parametrize("target,args,einsum", EMPTY)
def test_empty_tensors_have_local_shapes(target: str, args: tuple[Any, ...], einsum: str) -> None:
    assert str(prove(target, args, values=False).rule) == einsum


def test_masking_a_triangle_is_linear() -> None:
    rule = prove("aten.tril", (X,)).rule
    assert list(rule.linear) == [{0}]


def test_equal_constants_of_other_types_share_a_rule_that_serves_both() -> None:
    """Rules are cached by equality and 1 == 1.0, so a rule must not remember which it was made for."""
    prove("aten.arange.start_step", (0, 6, 1, F64))
    prove("aten.arange.start_step", (0.0, 6.0, 1.0, F64))


def test_every_operator_of_the_family_has_a_case() -> None:
    registered = {t for t, f in load_rules().items() if f.__module__.endswith(".creation")}
    assert registered == {c[0] for c in CASES} | {c[0] for c in EMPTY}
