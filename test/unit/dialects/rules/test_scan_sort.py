"""Rules of scans, sorts and searches."""

from __future__ import annotations

import pytest
import torch

from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

X, INTEGERS = sample(4, 6, 2), sample(4, 6, dtype=torch.int64)
TABLE = sample(4, 6).sort().values
MIDDLE = "([n0,d,n2])->([n0,d,n2]) replicate={d}"
PAIR = "([n0,d,n2])->([n0,d,n2],[n0,d,n2]) replicate={d}"
CASES = {
    "cumsum": ("aten.cumsum", (X, 1), MIDDLE),
    "cumsum from the end": ("aten.cumsum", (X, -2), MIDDLE),
    "cumsum of integers": ("aten.cumsum", (INTEGERS, -1), "([n0,d])->([n0,d]) replicate={d}"),
    "cumsum of integers into floats": (
        "aten.cumsum",
        (INTEGERS, -1, torch.float64),
        "([n0,d])->([n0,d]) replicate={d}",
    ),
    "cumsum of a scalar": ("aten.cumsum", (sample(), 0), "([])->([])"),
    "cumprod": ("aten.cumprod", (X, 1), MIDDLE),
    "cummax": ("aten.cummax", (X, 1), PAIR),
    "cummin": ("aten.cummin", (X, 1), PAIR),
    "logcumsumexp": ("aten.logcumsumexp", (X, 1), MIDDLE),
    "sort": ("aten.sort", (X, 1), PAIR),
    "stable sort": ("aten.sort.stable", (INTEGERS, True, 0, True), "([d,n1])->([d,n1],[d,n1]) replicate={d}"),
    "argsort": ("aten.argsort", (X, 1), MIDDLE),
    "stable argsort": ("aten.argsort.stable", (INTEGERS, True, -1), "([n0,d])->([n0,d]) replicate={d}"),
    "topk": ("aten.topk", (X, 2, 1), "([n0,d,n2])->([n0,k,n2],[n0,k,n2]) replicate={d,k}"),
    "topk of all": ("aten.topk", (X, 6, 1), PAIR),
    "searchsorted in one row": (
        "aten.searchsorted.Tensor",
        (TABLE[0], sample(4, 2)),
        "([s],[m0,m1])->([m0,m1]) reduce={s}",
    ),
    "searchsorted row by row": (
        "aten.searchsorted.Tensor",
        (TABLE, sample(4, 2)),
        "([m0,s],[m0,m1])->([m0,m1]) reduce={s}",
    ),
    "searchsorted in a table of the values' type": (
        "aten.searchsorted.Tensor",
        (TABLE[0], sample(6)),
        "([s],[m0])->([m0]) reduce={s}",
    ),
    "searchsorted with a sorter": (
        "aten.searchsorted.Tensor",
        (sample(4, 6), sample(4, 6, seed=1), False, True, None, sample(4, 6).argsort()),
        "([m0,s],[m0,m1],[m0,s])->([m0,m1]) replicate={s}",
    ),
    "bucketize": (
        "aten.bucketize.Tensor",
        (sample(4, 2), TABLE[0]),
        "([m0,m1],[s])->([m0,m1]) reduce={s}",
    ),
}
LINEAR = {"cumsum", "cumsum from the end", "cumsum of a scalar"}


@pytest.mark.parametrize("case", CASES)
def test_scan_sort(case: str) -> None:
    target, args, einsum = CASES[case]
    proof = prove(target, args, ways=(2, 4))
    assert str(proof.rule) == einsum
    assert proof.unreached == ()
    assert list(proof.rule.linear) == ([{0}] if case in LINEAR else [])


def test_cumsum_along_a_cut_dim_is_caught() -> None:
    """What these proofs guard against: a scan's dim taken for a plain one."""
    from shardc.diagnostics.dialects.rules import UnsoundRule
    from shardc.dialects.rules.rule import Rule

    dims = (("n",), ("d",))
    with pytest.raises(UnsoundRule, match="is off by"):
        prove("aten.cumsum", (sample(4, 6), 1), rule=Rule((dims,), (dims,), {"n": 4, "d": 6}))
