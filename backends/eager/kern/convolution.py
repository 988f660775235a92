"""``kern.convolution`` on real tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_mlir import ir

from shardc.backends.body.handlers import handles
from shardc.dialects.kern.convolution import ConvolutionOp, convolution_of


@handles(ConvolutionOp)
def run_convolution(op: ir.Operation, operands: Sequence[Tensor], widen: bool = False) -> list[Tensor]:
    """Return out. ``widen``: compute in f64."""
    spec = convolution_of(op)
    dtype = torch.float64 if widen else torch.float32
    x, weight, *bias = (operand.to(dtype) for operand in operands)
    extra = [0] * len(spec.stride)
    if spec.transposed:
        pixels = x.shape[2:], spec.out.shape[2:]
        sizes = zip(*pixels, spec.window, spec.stride, spec.padding, spec.dilation, strict=True)
        extra = [made - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for n, made, k, s, p, d in sizes]
    numbers = (spec.stride, spec.padding, spec.dilation, spec.transposed, extra, spec.groups)
    made = torch.ops.aten.convolution(x, weight, bias[0] if bias else None, *numbers)
    return [made]
