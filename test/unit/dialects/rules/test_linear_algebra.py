"""Rules of factorizations, inverses and solvers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from shardc.dialects.rules.linear_algebra import SIDES
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

SQUARE = sample(6, 3, 3)
POSITIVE = SQUARE @ SQUARE.mT + torch.eye(3, dtype=SQUARE.dtype)
LU, PIVOTS = torch.linalg.lu_factor(POSITIVE)
CALLS: list[tuple[str, tuple[Any, ...], str]] = [
    ("aten.linalg_cholesky_ex", (POSITIVE,), "([a,b,c])->([a,d,e],[a]) replicate={b,c,d,e}"),
    ("aten.linalg_inv_ex", (POSITIVE,), "([a,b,c])->([a,d,e],[a]) replicate={b,c,d,e}"),
    (
        "aten.linalg_lu_factor_ex",
        (POSITIVE,),
        "([a,b,c])->([a,d,e],[a,f],[a]) replicate={b,c,d,e,f}",
    ),
    (
        "aten.linalg_lu_solve",
        (LU, PIVOTS, sample(6, 3, 2)),
        "([a,c,d],[a,e],[a,f,b])->([a,g,b]) replicate={c,d,e,f,g}",
    ),
    (
        "aten._linalg_solve_ex",
        (POSITIVE, sample(6, 3, 2)),
        "([a,c,d],[a,e,b])->([a,f,b],[a,g,h],[a,i],[a]) replicate={c,d,e,f,g,h,i}",
    ),
    (
        "aten._linalg_solve_ex",
        (POSITIVE, sample(3, 2)),
        "([a,c,d],[e,b])->([a,f,b],[a,g,h],[a,i],[a]) replicate={c,d,e,f,g,h,i}",
    ),
    (
        "aten._linalg_solve_ex",
        (POSITIVE, sample(6, 3)),
        "([a,b,c],[a,d])->([a,e],[a,f,g],[a,h],[a]) replicate={b,c,d,e,f,g,h}",
    ),
    (
        "aten._linalg_solve_ex",
        (POSITIVE[0], sample(6, 3, 2)),
        "([c,d],[a,e,b])->([a,f,b],[g,h],[i],[]) replicate={c,d,e,f,g,h,i}",
    ),
]


@pytest.mark.parametrize(("target", "arguments", "text"), CALLS)
def test_batches_are_cut_and_matrices_are_not(target: str, arguments: tuple[Any, ...], text: str) -> None:
    assert str(prove(target, arguments, ways=(2, 3)).rule) == text


def test_every_operator_has_a_case() -> None:
    assert {target for target, *_ in CALLS} == SIDES.keys()
