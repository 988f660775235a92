"""``kern.scan`` on real tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.dialects.kern.scan import ScanOp, scan_of

_SCANS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda x, dim: torch.cumsum(x, dim, dtype=x.dtype),
    "product": lambda x, dim: torch.cumprod(x, dim, dtype=x.dtype),
    "max": lambda x, dim: torch.cummax(x, dim).values,
    "min": lambda x, dim: torch.cummin(x, dim).values,
}


@handles(ScanOp)
def run_scan(op: ir.Operation, operands: Sequence[Tensor], widen: bool) -> Tensor:
    """Return the result of the op; floats are always computed in f64."""
    spec, (x,) = scan_of(op), operands
    x = x.double() if x.is_floating_point() else x
    out = _SCANS[spec.kind](x.flip(-1) if spec.reverse else x, -1)
    return (out.flip(-1) if spec.reverse else out).to(operands[0].dtype)
