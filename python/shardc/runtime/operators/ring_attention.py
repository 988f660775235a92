"""``shardc::ring_attention`` and its backward: attention whose keys and values travel from rank to rank.

With ``ways`` > 0 it computes ``shardc::folded_attention``: causal, with all operands and results folded. With
``ways`` 0 it computes ``shardc::attention`` without a mask. Shapes are those of these ops, with Sq = Sk. (Liu
et al., "Ring Attention with Blockwise Transformers", 2023.)

In rank programs, the rule (``dialects/rules/ring_attention.py``) expands it. The ops here define the
semantics of the global program.
"""

from __future__ import annotations

from torch import Tensor

from .attention import attention, attention_backward
from .define import define
from .folded_attention import (
    BACKWARD_SCHEMA,
    SCHEMA,
    fake,
    fake_backward,
    folded_attention,
    folded_attention_backward,
)


def ring_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, ways: int) -> tuple[Tensor, Tensor]:
    """Run ``shardc::ring_attention``. Raises ValueError for operands that do not fit."""
    if ways:
        return folded_attention(q, k, v, scale, ways)
    return attention(q, k, v, None, False, scale)


def ring_attention_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    ways: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run ``shardc::ring_attention_backward``."""
    if ways:
        return folded_attention_backward(grad_out, q, k, v, out, lse, scale, ways)
    return attention_backward(grad_out, q, k, v, None, out, lse, False, scale, 0)


define("ring_attention", SCHEMA, ring_attention, fake)
define("ring_attention_backward", BACKWARD_SCHEMA, ring_attention_backward, fake_backward)
