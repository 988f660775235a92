"""``kern.scatter_add`` on real tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.dialects.kern.scatter_add import ScatterAddOp, scatter_add_of
from shardc.runtime.kernels.kernel_call import FINE

_SUMS = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


@handles(ScatterAddOp)
def run_scatter_add(op: ir.Operation, operands: Sequence[Tensor], widen: bool = False) -> list[Tensor]:
    """Return out and wrong, in the updates' dtype. ``widen`` has no effect."""
    spec = scatter_add_of(op)
    index, updates, *init = operands
    count, rows = index.numel(), init[0].shape[spec.dim] if init else spec.rows
    assert isinstance(rows, int), "a symbolic size comes with init"
    before, after = updates.shape[: spec.dim], updates.shape[spec.dim + index.ndim :]
    outer, inner = prod(before), prod(after)
    at = index.reshape(count).long()
    counted = torch.ones_like(at, dtype=torch.bool) if spec.ignored is None else at != spec.ignored
    inside = (at >= (-rows if spec.wraps else 0)) & (at < rows)
    wrong = at[counted & ~inside]
    used = counted & inside
    at = torch.where(at < 0, at + rows, at)[used]
    dtype = _SUMS.get(updates.dtype, updates.dtype)
    terms = updates.reshape(outer, count, inner)[:, used].to(dtype)
    shape = (outer, rows, inner)
    start = init[0].reshape(shape).to(dtype) if init else torch.zeros(shape, dtype=dtype)
    out = start.index_add(1, at, terms).reshape(*before, rows, *after)
    return [out.to(updates.dtype), wrong.max() if len(wrong) else torch.tensor(FINE)]
