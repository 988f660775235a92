"""``kern.linear_cross_entropy`` and its backward on real tensors, with all logits in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.dialects.kern.linear_cross_entropy import LinearCrossEntropyOp
from shardc.dialects.kern.linear_cross_entropy_backward import LinearCrossEntropyBackwardOp, given_roles
from shardc.runtime.kernels.kernel_call import FINE


@handles(LinearCrossEntropyOp, LinearCrossEntropyBackwardOp)
def run_linear_cross_entropy(op: ir.Operation, operands: Sequence[Tensor], widen: bool) -> list[Tensor]:
    """Return the results of either op. ``widen``: compute in f64."""
    dtype = torch.float64 if widen else torch.float32
    if op.name == LinearCrossEntropyOp.OPERATION_NAME:
        rows, weight, index, *bias = operands
        logits = _logits(rows, weight, bias[0] if bias else None, dtype)
        lse, hit = logits.logsumexp(1), _hit(index, weight)
        wrong = index[~hit.any(1)]
        logp = torch.where(hit, logits, 0).sum(1) - lse
        largest = wrong.max().long() if len(wrong) else torch.tensor(FINE)
        return [logp, lse, largest, logits.sum(1) - len(weight) * lse, logits.amax(1)]
    given = dict(zip(given_roles(op), operands, strict=True))
    rows, weight = given["rows"], given["weight"]
    share = (_logits(rows, weight, given.get("bias"), dtype) - given["lse"][:, None].to(dtype)).exp()
    grad = ir.FloatAttr(op.attributes["scale"]).value * given["grad"][:, None].to(dtype)
    spread = given["spread"][:, None].to(dtype) if "spread" in given else torch.zeros_like(grad)
    sums = given["sums"][:, None].to(dtype) if "sums" in given else grad + len(weight) * spread
    dlogits = grad * _hit(given["index"], weight).to(dtype) + spread - sums * share
    dlogits = dlogits.to(rows.dtype).to(dtype)
    made = dlogits @ given.get("weight_again", weight).to(dtype), dlogits.T @ rows.to(dtype), dlogits.sum(0)
    return [value.to(rows.dtype) for value in made]


def _logits(rows: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    product = rows.to(dtype) @ weight.to(dtype).T
    return product if bias is None else product + bias.to(dtype)


def _hit(index: Tensor, weight: Tensor) -> Tensor:
    """Return [rows, classes]: True for each row's class."""
    return index[:, None] == torch.arange(len(weight))
