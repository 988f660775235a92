"""Rules of ring attention, proved by running the ranks' parts in ring order."""

from __future__ import annotations

import pytest
import torch

import shardc.runtime.operators.ring_attention  # noqa: F401  (defines the operators)
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

SCALE = 0.4
Q, K, V = sample(2, 4, 12, 8), sample(2, 2, 12, 8), sample(2, 2, 12, 4)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ways", [0, 2, 3, 6])
def test_rows_and_columns_are_cut_together(ways: int) -> None:
    proof = prove("shardc.ring_attention", (Q, K, V, SCALE, ways), ways=(2, 3))
    rows = "(n r)" if ways else "n"
    assert str(proof.rule).startswith(f"([b,(h g),{rows},d],[b,h,{rows},d],[b,h,{rows},e])->")
    assert "n" in {f for cut in proof.cuts for f in cut}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("ways", [0, 2, 3, 6])
def test_gradients_travel_back(ways: int) -> None:
    out, lse = torch.ops.shardc.ring_attention(Q, K, V, SCALE, ways)
    args = (sample(*out.shape, seed=7), Q, K, V, out, lse, SCALE, ways)
    proof = prove("shardc.ring_attention_backward", args, ways=(2, 3))
    assert "n" in {f for cut in proof.cuts for f in cut}
    assert proof.rule.linear == (frozenset({0}),)
