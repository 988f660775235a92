"""``shardc::ring_attention`` on one device is attention: folded and causal, or in order and unmasked."""

from __future__ import annotations

import pytest
import torch

import shardc.runtime.operators.ring_attention  # noqa: F401  (defines the operators)


@pytest.mark.parametrize("ways", [0, 2])
def test_is_attention(ways: int) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(2, h, 8, 4, generator=generator) for h in (4, 2, 2, 4))
    ours = torch.ops.shardc.ring_attention(q, k, v, 0.3, ways)
    if ways:
        theirs = torch.ops.shardc.folded_attention(q, k, v, 0.3, ways)
        gradients = torch.ops.shardc.folded_attention_backward(grad, q, k, v, *theirs, 0.3, ways)
    else:
        theirs = torch.ops.shardc.attention(q, k, v, None, False, 0.3, 0)
        gradients = torch.ops.shardc.attention_backward(grad, q, k, v, None, *theirs, False, 0.3, 0)
    torch.testing.assert_close(ours, theirs)
    made = torch.ops.shardc.ring_attention_backward(grad, q, k, v, *ours, 0.3, ways)
    torch.testing.assert_close(made, gradients)
