"""Rules of ``shardc::attention`` and its backward, proved on plain, grouped, masked and causal attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import shardc.runtime.operators.attention  # noqa: F401  (defines the operators)
from shardc.dialects.rules.proving.execution import sample
from shardc.dialects.rules.proving.proof import prove

SCALE = 0.4
Q, K, V = sample(2, 4, 6, 8), sample(2, 2, 6, 8), sample(2, 2, 6, 4)
HEADS = sample(2, 4, 6, 8, seed=1), sample(2, 4, 6, 4, seed=2)
ADDED = sample(2, 1, 6, 6)
KEPT = sample(1, 4, 1, 6, dtype=torch.bool) | torch.eye(1, 6, dtype=torch.bool)

FORWARD = "([b,(h g),q,d],[b,h,k,d],[b,h,k,e]{mask})->([b,(h g),q,e],[b,(h g),q]) replicate={{d,k,e}}"
BACKWARD = (
    "([b,(h g),q,e],[b,(h g),q,d],[b,h,k,d],[b,h,k,e]{mask},[b,(h g),q,e],[b,(h g),q])"
    "->([b,(h g),q,d],[b,h,k,d],[b,h,k,e]) reduce={{g,q}} replicate={{d,k,e}}"
)
# id: (q, k, v, mask, causal, q_offset), the mask as the rule prints it, factors that a cut can reach
CASES = {
    "plain": ((Q, *HEADS, None, False, 0), "", {"b", "h", "q"}),
    "causal": ((Q, *HEADS, None, True, 0), "", {"b", "h", "q"}),
    "grouped": ((Q, K, V, None, False, 0), "", {"b", "h", "g", "q"}),
    "grouped causal": ((Q, K, V, None, True, 0), "", {"b", "h", "g", "q"}),
    "one key head": ((Q, K[:, :1], V[:, :1], None, True, 0), "", {"b", "g", "q"}),
    "causal rows of a longer sequence": ((Q[:, :, 2:4], K, V, None, True, 2), "", {"b", "h", "g", "q"}),
    "added mask": ((Q, K, V, ADDED, False, 0), ",[b,1,q,k]", {"b", "h", "g", "q"}),
    "bool mask by head": ((Q, K, V, KEPT, False, 0), ",[1,(h g),1,k]", {"b", "h", "g", "q"}),
    "causal and a mask": ((Q, K, V, ADDED[:, :, :1], True, 0), ",[b,1,1,k]", {"b", "h", "g", "q"}),
}
TABLE = pytest.mark.parametrize(("args", "mask", "reached"), CASES.values(), ids=CASES)
Arguments = tuple[Any, ...]


@TABLE
def test_attention(args: Arguments, mask: str, reached: set[str]) -> None:
    q, k, v, mask_tensor, causal, q_offset = args
    proof = prove("shardc.attention", (q, k, v, mask_tensor, causal, SCALE, q_offset), ways=(2, 3))
    assert str(proof.rule) == FORWARD.format(mask=mask)
    assert {f for cut in proof.cuts for f in cut} == reached
    assert proof.rule.linear == ()


@pytest.mark.sampled(1)
@TABLE
def test_attention_backward(args: Arguments, mask: str, reached: set[str]) -> None:
    q, k, v, mask_tensor, causal, q_offset = args
    out, lse = torch.ops.shardc.attention(q, k, v, mask_tensor, causal, SCALE, q_offset)
    grad = sample(*out.shape, seed=7)
    proof = prove(
        "shardc.attention_backward",
        (grad, q, k, v, mask_tensor, out, lse, causal, SCALE, q_offset),
        ways=(2, 3),
    )
    assert str(proof.rule) == BACKWARD.format(mask=mask)
    assert {f for cut in proof.cuts for f in cut} == reached
    assert proof.rule.linear == (frozenset({0}),)
