"""Rules of reductions: factors that become partial, factors that stay whole, and a proof of each operator."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import load_rules

X = sample(4, 6, 2)
B = sample(4, 6, dtype=torch.bool)
LINEAR = [{0}]

CASES: list[tuple[str, tuple[Any, ...], str, list[set[int]]]] = [
    ("aten.sum", (X,), "([a,b,c])->([]) reduce={a,b,c}", LINEAR),
    ("aten.sum", (X, torch.float32), "([a,b,c])->([]) reduce={a,b,c}", LINEAR),
    ("aten.sum", (B,), "([a,b])->([]) reduce={a,b}", []),
    ("aten.sum.dim_IntList", (X, (1,)), "([a,b,c])->([a,c]) reduce={b}", LINEAR),
    ("aten.sum.dim_IntList", (X, (0, -1), True), "([a,b,c])->([1,b,1]) reduce={a,c}", LINEAR),
    ("aten.sum.dim_IntList", (X, None), "([a,b,c])->([]) reduce={a,b,c}", LINEAR),
    ("aten.sum.dim_IntList", (X, (), True), "([a,b,c])->([1,1,1]) reduce={a,b,c}", LINEAR),
    ("aten.sum.dim_IntList", (sample(4, 1), (1,)), "([a,1])->([a])", LINEAR),
    ("aten.sum.dim_IntList", (sample(), (0,)), "([])->([])", LINEAR),
    ("aten.nansum", (X, (1,)), "([a,b,c])->([a,c]) reduce={b}", []),
    ("aten.count_nonzero", (B, None), "([a,b])->([]) reduce={a,b}", []),
    ("aten.count_nonzero.dim_IntList", (B, (0,)), "([a,b])->([b]) reduce={a}", []),
    ("aten.mean", (X,), "([a,b,c])->([]) reduce={a,b,c}", LINEAR),
    ("aten.mean.dim", (X, (-2,)), "([a,b,c])->([a,c]) reduce={b}", LINEAR),
    ("aten.mean.dim", (X, (0, 1), True), "([a,b,c])->([1,1,c]) reduce={a,b}", LINEAR),
    ("aten.mean.dim", (X, None, False, torch.float32), "([a,b,c])->([]) reduce={a,b,c}", LINEAR),
    ("aten.amax", (X, (1,)), "([a,b,c])->([a,c]) reduce_max={b}", []),
    ("aten.amax", (X,), "([a,b,c])->([]) reduce_max={a,b,c}", []),
    ("aten.amin", (X, (-1,), True), "([a,b,c])->([a,b,1]) reduce_min={c}", []),
    ("aten.max", (X,), "([a,b,c])->([]) reduce_max={a,b,c}", []),
    ("aten.min", (X,), "([a,b,c])->([]) reduce_min={a,b,c}", []),
    ("aten.any", (B,), "([a,b])->([]) reduce_max={a,b}", []),
    ("aten.any.dim", (X, 1), "([a,b,c])->([a,c]) reduce_max={b}", []),
    ("aten.any.dims", (B, (0, 1), True), "([a,b])->([1,1]) reduce_max={a,b}", []),
    ("aten.any.dims", (B,), "([a,b])->([]) reduce_max={a,b}", []),
    ("aten.all", (B,), "([a,b])->([]) reduce_min={a,b}", []),
    ("aten.all.dim", (sample(4, 6, dtype=torch.uint8), 0, True), "([a,b])->([1,b]) reduce_min={a}", []),
    ("aten.all.dims", (B, (1,)), "([a,b])->([a]) reduce_min={b}", []),
    ("aten.linalg_vector_norm", (X,), "([a,b,c])->([]) replicate={a,b,c}", []),
    ("aten.linalg_vector_norm", (X, inf, (1,)), "([a,b,c])->([a,c]) reduce_max={b}", []),
    ("aten.linalg_vector_norm", (X, -inf, (1,), True), "([a,b,c])->([a,1,c]) reduce_min={b}", []),
    ("aten.linalg_vector_norm", (X, 1.0), "([a,b,c])->([]) reduce={a,b,c}", []),
    ("aten.linalg_vector_norm", (X, 0, (0,)), "([a,b,c])->([b,c]) reduce={a}", []),
    ("aten.linalg_vector_norm", (X, 3.0, (0,)), "([a,b,c])->([b,c]) replicate={a}", []),
    ("aten.norm.Scalar", (X,), "([a,b,c])->([]) replicate={a,b,c}", []),
    ("aten.norm.ScalarOpt_dim", (X, None, (1,)), "([a,b,c])->([a,c]) replicate={b}", []),
    ("aten.norm.ScalarOpt_dim", (X, 1, (1,), True), "([a,b,c])->([a,1,c]) reduce={b}", []),
    (
        "aten.norm.ScalarOpt_dim_dtype",
        (X, inf, (1,), False, torch.float64),
        "([a,b,c])->([a,c]) reduce_max={b}",
        [],
    ),
    ("aten._foreach_norm.Scalar", ((sample(4), X),), "([a],[b,c,d])->([],[]) replicate={a,b,c,d}", []),
    (
        "aten._foreach_norm.Scalar",
        ((sample(4), sample(6, 2)), inf),
        "([a],[b,c])->([],[]) reduce_max={a,b,c}",
        [],
    ),
    ("aten.max.dim", (X, 1), "([a,b,c])->([a,c],[a,c]) replicate={b}", []),
    ("aten.min.dim", (X, -1, True), "([a,b,c])->([a,b,1],[a,b,1]) replicate={c}", []),
    ("aten.median.dim", (X, 1), "([a,b,c])->([a,c],[a,c]) replicate={b}", []),
    ("aten.mode", (X, 1), "([a,b,c])->([a,c],[a,c]) replicate={b}", []),
    ("aten.aminmax", (X, 1), "([a,b,c])->([a,c],[a,c]) replicate={b}", []),
    ("aten.argmax", (X, -1), "([a,b,c])->([a,b]) replicate={c}", []),
    ("aten.argmax", (X,), "([a,b,c])->([]) replicate={a,b,c}", []),
    ("aten.argmin", (X, 0, True), "([a,b,c])->([1,b,c]) replicate={a}", []),
    ("aten.logsumexp", (X, (1, 2)), "([a,b,c])->([a]) replicate={b,c}", []),
    ("aten.prod", (X,), "([a,b,c])->([]) replicate={a,b,c}", []),
    ("aten.prod.dim_int", (X, 1), "([a,b,c])->([a,c]) replicate={b}", []),
    ("aten.var.correction", (X, (1,)), "([a,b,c])->([a,c]) replicate={b}", []),
    ("aten.std.correction", (X,), "([a,b,c])->([]) replicate={a,b,c}", []),
    ("aten.var_mean.correction", (X, (1,)), "([a,b,c])->([a,c],[a,c]) replicate={b}", []),
    ("aten.std_mean.correction", (X, (1,)), "([a,b,c])->([a,c],[a,c]) replicate={b}", []),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target,args,einsum,linear", CASES)
def test_rule_is_proved(target: str, args: tuple[Any, ...], einsum: str, linear: list[set[int]]) -> None:
    proof = prove(target, args, ways=(2, 3))
    assert str(proof.rule) == einsum
    assert list(proof.rule.linear) == linear


def test_half_precision_means_do_not_overflow() -> None:
    """The sum of these 4096 elements is above float16's range, on a rank as well."""
    prove("aten.mean.dim", (torch.full((2, 4096), 60.0, dtype=torch.float16), (1,)))


def test_extrema_carry_nan() -> None:
    x = sample(4, 6)
    x[1, 2] = torch.nan
    prove("aten.amax", (x, (1,)))
    prove("aten.amin", (x, (0, 1)))


def test_every_operator_of_the_family_has_a_case() -> None:
    registered = {t for t, f in load_rules().items() if f.__module__.endswith(".reduction")}
    assert registered == {c[0] for c in CASES}
