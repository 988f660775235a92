"""``kern.scan`` on real tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.dialects.kern.scan import ScanOp, scan_of


@handles(ScanOp)
def run_scan(op: ir.Operation, operands: Sequence[Tensor], widen: bool) -> Tensor:
    """Return the result of the op, always computed in f64."""
    spec, (x,) = scan_of(op), operands
    x = x.double().flip(-1) if spec.reverse else x.double()
    out = torch.cumsum(x, -1) if spec.kind == "sum" else torch.cumprod(x, -1)
    return (out.flip(-1) if spec.reverse else out).to(operands[0].dtype)
