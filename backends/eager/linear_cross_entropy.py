"""``kern.linear_cross_entropy`` and its backward on real tensors, which hold all logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir

from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropyOp
from shardc.runtime.kernel_call import FINE

Tensor = torch.Tensor


def run_linear_cross_entropy(op: ir.Operation, operands: Sequence[Tensor], widen: bool) -> list[Tensor]:
    """The results of either op. ``widen``: every floating type stands for f64."""
    dtype = torch.float64 if widen else torch.float32
    if op.name == LinearCrossEntropyOp.OPERATION_NAME:
        rows, weight, index = operands
        logits = rows.to(dtype) @ weight.to(dtype).T
        lse, hit = logits.logsumexp(1), _hit(index, weight)
        wrong = index[~hit.any(1)]
        logp = torch.where(hit, logits, 0).sum(1) - lse
        return [logp, lse, wrong.max().long() if len(wrong) else torch.tensor(FINE)]
    grad, rows, weight, index, lse, *again = operands
    logits = rows.to(dtype) @ weight.to(dtype).T
    slope = _hit(index, weight).to(dtype) - (logits - lse[:, None].to(dtype)).exp()
    dlogits = (ir.FloatAttr(op.attributes["scale"]).value * grad[:, None].to(dtype) * slope).to(rows.dtype)
    factor = again[0] if again else weight
    made = dlogits.to(dtype) @ factor.to(dtype), dlogits.T.to(dtype) @ rows.to(dtype)
    return [value.to(rows.dtype) for value in made]


def _hit(index: Tensor, weight: Tensor) -> Tensor:
    """[rows, classes]: whether the class is that of the row."""
    return index[:, None] == torch.arange(len(weight))
