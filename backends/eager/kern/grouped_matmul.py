"""``kern.grouped_matmul`` on real tensors: one matmul for each group."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.dialects.kern.grouped_matmul import TURNED, GroupedMatmulOp, grouped_matmul_of


@handles(GroupedMatmulOp)
def run_grouped_matmul(op: ir.Operation, operands: Sequence[Tensor], widen: bool) -> Tensor:
    """Return the result of the op. ``widen``: compute in f64."""
    spec, dtype = grouped_matmul_of(op), torch.float64 if widen else torch.float32
    left, right, ends = operands
    left, right = (
        (t.mT if name in op.attributes else t).to(dtype)
        for t, name in zip((left, right), TURNED.values(), strict=True)
    )
    out = torch.zeros([spec.sizes[dim] for dim in spec.out], dtype=dtype)
    start = 0
    for group, end in enumerate(ends.tolist()):
        if spec.shared == "m":
            out[start:end] = left[start:end] @ right[group]
        elif spec.shared == "n":
            out[:, start:end] = left[group] @ right[:, start:end]
        else:
            out[group] = left[:, start:end] @ right[start:end]
        start = end
    return out.to(operands[0].dtype)
