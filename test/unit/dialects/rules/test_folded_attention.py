"""Rules of causal attention on folded sequences, proved by running ranks' parts."""

from __future__ import annotations

import pytest
import torch

import shardc.runtime.operators.folded_attention  # noqa: F401  (defines the operators)
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

SCALE = 0.4
Q, K, V = sample(2, 4, 12, 8), sample(2, 2, 12, 8), sample(2, 2, 12, 4)


@pytest.mark.parametrize("ways", [2, 3, 6])
def test_pairs_of_blocks_may_be_cut(ways: int) -> None:
    """Also into fewer parts than there are pairs."""
    proof = prove("shardc.folded_attention", (Q, K, V, SCALE, ways), ways=(2, 3))
    assert str(proof.rule) == (
        "([b,(h g),(n r),d],[b,h,k,d],[b,h,k,e])->([b,(h g),(n r),e],[b,(h g),(n r)]) replicate={d,k,e,r}"
    )
    assert {f for cut in proof.cuts for f in cut} == {"b", "h", "g", "n"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ways", [2, 3, 6])
def test_gradients_of_columns_are_sums_over_pairs(ways: int) -> None:
    out, lse = torch.ops.shardc.folded_attention(Q, K, V, SCALE, ways)
    args = (sample(*out.shape, seed=7), Q, K, V, out, lse, SCALE, ways)
    proof = prove("shardc.folded_attention_backward", args, ways=(2, 3))
    assert str(proof.rule).endswith("reduce={g,n} replicate={d,k,e,r}")
    assert {f for cut in proof.cuts for f in cut} == {"b", "h", "g", "n"}
    assert proof.rule.linear == (frozenset({0}),)
