"""Softmax and logsumexp as maxima and sums, which may be partial: devices send one number a row, not rows.

So a loss over a split vocabulary never sends logits: this is the vocabulary-parallel cross entropy of Shoeybi
et al., "Megatron-LM", 2019, section 3.
"""

from __future__ import annotations

from torch_mlir import ir

from shardc.passes.propagate.split.writer import SplitWriter


def log_softmax(w: SplitWriter, x: ir.Value, dim: int, half_to_float: bool) -> tuple[ir.Value]:
    dim = w.dim(x, dim)
    shifted = w.sub(x, w.largest(x, dim))
    return (w.sub(shifted, w.log(w.sum(w.exp(shifted), dim))),)


def softmax(w: SplitWriter, x: ir.Value, dim: int, half_to_float: bool) -> tuple[ir.Value]:
    dim = w.dim(x, dim)
    raised = w.exp(w.sub(x, w.largest(x, dim)))
    return (w.call("aten.div.Tensor", raised, w.sum(raised, dim)),)


def log_softmax_backward(
    w: SplitWriter, grad: ir.Value, output: ir.Value, dim: int, input_dtype: object
) -> tuple[ir.Value]:
    return (w.sub(grad, w.mul(w.exp(output), w.sum(grad, w.dim(grad, dim)))),)


def softmax_backward(
    w: SplitWriter, grad: ir.Value, output: ir.Value, dim: int, input_dtype: object
) -> tuple[ir.Value]:
    weighted = w.mul(grad, output)
    return (w.sub(weighted, w.mul(output, w.sum(weighted, w.dim(grad, dim)))),)


def logsumexp(w: SplitWriter, x: ir.Value, dim: tuple[int, ...], keepdim: bool) -> tuple[ir.Value]:
    """Write logsumexp. As in PyTorch, an infinite maximum is not subtracted, because inf - inf is NaN."""
    dims = sorted({w.dim(x, d) for d in dim})
    top = w.largest(x, *dims)
    shift = w.call("aten.masked_fill.Scalar", top, w.call("aten.isinf", top), 0)
    found = w.add(w.log(w.sum(w.exp(w.sub(x, shift)), *dims)), shift)
    return (found if keepdim else w.without(found, *dims),)
