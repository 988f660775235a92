"""Matrix products: rows, columns and batches are plain, the contracted dim leaves partial sums,
a bias is added once.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove
from shardc.dialects.rules.rule import load_rules

A, B = sample(4, 6), sample(6, 2)
EACH = [{0}, {1}]
BIASED = [{0, 1}, {0, 2}]
MM = "([a,b],[b,c])->([a,c]) reduce={b}"

CASES: list[tuple[str, tuple[Any, ...], str, list[set[int]]]] = [
    ("aten.mm", (A, B), MM, EACH),
    ("aten.mm", (sample(4, 1), sample(1, 2)), "([a,1],[1,b])->([a,b])", EACH),
    ("aten.mm", (sample(1, 6), B), "([1,a],[a,b])->([1,b]) reduce={a}", EACH),
    ("aten.mm", (sample(4, 6, dtype=torch.int64), sample(6, 2, dtype=torch.int64)), MM, []),
    ("aten.bmm", (sample(2, 4, 6), sample(2, 6, 3)), "([a,b,c],[a,c,d])->([a,b,d]) reduce={c}", EACH),
    ("aten.mv", (A, sample(6)), "([a,b],[b])->([a]) reduce={b}", EACH),
    ("aten.dot", (sample(6), sample(6, seed=1)), "([a],[a])->([]) reduce={a}", EACH),
    (
        "aten.vdot",
        (sample(6, dtype=torch.complex128), sample(6, dtype=torch.complex128, seed=1)),
        "([a],[a])->([]) reduce={a}",
        EACH,
    ),
    ("aten.outer", (sample(4), sample(6)), "([a],[b])->([a,b])", EACH),
    ("aten.ger", (sample(4), sample(6)), "([a],[b])->([a,b])", EACH),
    ("aten.matmul", (sample(2, 3, 4, 6), B), "([a,b,c,d],[d,e])->([a,b,c,e]) reduce={d}", EACH),
    (
        "aten.matmul",
        (sample(2, 1, 4, 6), sample(3, 6, 2)),
        "([a,1,c,d],[b,d,e])->([a,b,c,e]) reduce={d}",
        EACH,
    ),
    ("aten.matmul", (sample(6), sample(2, 6, 3)), "([b],[a,b,c])->([a,c]) reduce={b}", EACH),
    ("aten.matmul", (sample(2, 4, 6), sample(6)), "([a,b,c],[c])->([a,b]) reduce={c}", EACH),
    ("aten.matmul", (sample(6), sample(6, seed=1)), "([a],[a])->([]) reduce={a}", EACH),
    ("aten.addmm", (sample(2), A, B), "([c],[a,b],[b,c])->([a,c]) reduce={b}", BIASED),
    ("aten.addmm", (sample(4, 2), A, B, 0.5, 2), "([a,c],[a,b],[b,c])->([a,c]) reduce={b}", BIASED),
    ("aten.addmm", (sample(4, 1), A, B), "([a,1],[a,b],[b,c])->([a,c]) reduce={b}", BIASED),
    ("aten.addmm", (sample(2), sample(4, 1), sample(1, 2)), "([b],[a,1],[1,b])->([a,b])", BIASED),
    (
        "aten.baddbmm",
        (sample(4, 3), sample(2, 4, 6), sample(2, 6, 3), 2),
        "([b,d],[a,b,c],[a,c,d])->([a,b,d]) reduce={c}",
        BIASED,
    ),
    ("aten.addmv", (sample(4), A, sample(6)), "([a],[a,b],[b])->([a]) reduce={b}", BIASED),
    ("aten.linear", (sample(2, 4, 6), sample(3, 6)), "([a,b,c],[d,c])->([a,b,d]) reduce={c}", EACH),
    (
        "aten.linear",
        (sample(6), sample(3, 6), sample(3)),
        "([a],[b,a],[b])->([b]) reduce={a}",
        [{0, 2}, {1, 2}],
    ),
    (
        "aten.linalg_solve_triangular",
        (sample(2, 4, 4), sample(2, 4, 6), True, True, True),
        "([a,d,e],[a,b,c])->([a,b,c]) replicate={b,d,e}",
        [{1}],
    ),
    (
        "aten.linalg_solve_triangular",
        (sample(4, 4), sample(2, 6, 4), False, False, True),
        "([d,e],[a,b,c])->([a,b,c]) replicate={c,d,e}",
        [{1}],
    ),
    ("aten.linear", (A, sample(2, 6), sample(2)), "([a,b],[c,b],[c])->([a,c]) reduce={b}", [{0, 2}, {1, 2}]),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target,args,einsum,linear", CASES)
def test_rule_is_proved(target: str, args: tuple[Any, ...], einsum: str, linear: list[set[int]]) -> None:
    proof = prove(target, args, ways=(2, 3))
    assert str(proof.rule) == einsum
    assert list(proof.rule.linear) == linear


def test_bias_that_is_not_finite_is_added_once() -> None:
    bias = torch.tensor([torch.inf, torch.nan], dtype=torch.float64)
    prove("aten.addmm", (bias, A, B))


def test_every_operator_of_the_family_has_a_case() -> None:
    registered = {t for t, f in load_rules().items() if f.__module__.endswith(".matmul")}
    assert registered == {c[0] for c in CASES}
