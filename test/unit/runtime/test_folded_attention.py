"""Causal attention on folded sequences, compared with attention in order."""

from __future__ import annotations

import pytest
import torch

import shardc.runtime.operators.folded_attention  # noqa: F401  (defines the operators)
from shardc.dialects.dist.interleaving import Parts
from shardc.runtime.operators.folded_attention import folded, in_order

Q, K, V = (torch.randn(2, h, 24, 8, dtype=torch.float64) for h in (4, 2, 2))


@pytest.mark.parametrize("ways", [1, 2, 3, 4])
def test_forward_and_backward_are_those_in_order(ways: int) -> None:
    out, lse = torch.ops.shardc.attention(Q, K, V, None, True, 0.3)
    q, k, v = (folded(x, ways) for x in (Q, K, V))
    ours = torch.ops.shardc.folded_attention(q, k, v, 0.3, ways)
    torch.testing.assert_close(in_order(ours[0], ways), out)
    torch.testing.assert_close(in_order(ours[1], ways), lse)
    grad = torch.randn_like(out)
    wanted = torch.ops.shardc.attention_backward(grad, Q, K, V, None, out, lse, True, 0.3, 0)
    made = torch.ops.shardc.folded_attention_backward(folded(grad, ways), q, k, v, *ours, 0.3, ways)
    for x, y in zip(made, wanted, strict=True):
        torch.testing.assert_close(in_order(x, ways), y)


@pytest.mark.parametrize("ways", [1, 2, 3, 4])
def test_each_part_sees_as_many_columns(ways: int) -> None:
    order = [place for run in Parts(ways, (24,), folded=True).runs() for place in run]
    rows = torch.arange(24).double().view(1, 1, 24, 1)
    assert folded(rows, ways).flatten().long().tolist() == order
    seen = [sum(place + 1 for place in order[w * 24 // ways : (w + 1) * 24 // ways]) for w in range(ways)]
    assert len(set(seen)) == 1
