"""``shardc::linear_cross_entropy`` and its backward: a linear layer and its log_softmax at one class a row.

Shapes: rows [m, k], weight [n, k], bias [n] or None, of one dtype; index [m] of i64. With
``logits = rows weight^T + bias``: logp [m] is log_softmax(logits)[m, index[m]], lse [m] the logarithm of each
row's sum of exponentials, total [m] the sum of log_softmax(logits) over the classes, top [m] the largest
logit; all in float32 (float64 for float64). Backward takes the gradients of logp (``scale * grad``) and of
total (``spread``, or None) and gives those of rows, weight and bias (of zeros, where there was none).
If the weight has only a part of the classes, ``sums`` are the sums of each row's gradients over all classes,
and lse is that of all classes; otherwise ``sums`` is None. ``weight_again`` is the weight, if it was gathered
again.

Programs contain these ops only where a kernel replaces them. The code here, which works on chunks of rows,
runs if the kernel does not compile. An index that is no class raises IndexError.

The ops are defined when this module is imported.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .define import define, wide

Three = tuple[Tensor, Tensor, Tensor]
Four = tuple[Tensor, Tensor, Tensor, Tensor]

SCHEMA = (
    "(Tensor rows, Tensor weight, Tensor index, Tensor? bias=None) "
    "-> (Tensor logp, Tensor lse, Tensor total, Tensor top)"
)
BACKWARD_SCHEMA = (
    "(Tensor grad, Tensor rows, Tensor weight, Tensor index, Tensor lse, Tensor? weight_again=None, "
    "Tensor? bias=None, Tensor? spread=None, Tensor? sums=None, float scale=1.0) "
    "-> (Tensor drows, Tensor dweight, Tensor dbias)"
)
CHUNK_LOGITS = 1 << 26
"""Maximum number of logits in memory at a time."""


def _chunks(rows: Tensor, weight: Tensor) -> Iterator[slice]:
    step = max(1, CHUNK_LOGITS // max(1, len(weight)))
    return (slice(start, start + step) for start in range(0, len(rows), step))


def _logits(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.nn.functional.linear(rows, weight, bias).to(wide(rows.dtype))


def linear_cross_entropy(rows: Tensor, weight: Tensor, index: Tensor, bias: Tensor | None = None) -> Four:
    """Return logp, lse, total and top. Raises IndexError for an index that is no class."""
    wrong = index[(index < 0) | (index >= len(weight))]
    if len(wrong):
        raise IndexError(f"Target {int(wrong.max())} is out of bounds.")
    logp, lse, total, top = _fake(rows, weight, index)
    for part in _chunks(rows, weight):
        logits = _logits(rows[part], weight, bias)
        lse[part] = logits.logsumexp(1)
        logp[part] = logits.gather(1, index[part, None]).squeeze(1) - lse[part]
        total[part] = logits.sum(1) - len(weight) * lse[part]
        top[part] = logits.amax(1)
    return logp, lse, total, top


def linear_cross_entropy_backward(
    grad: Tensor,
    rows: Tensor,
    weight: Tensor,
    index: Tensor,
    lse: Tensor,
    weight_again: Tensor | None = None,
    bias: Tensor | None = None,
    spread: Tensor | None = None,
    sums: Tensor | None = None,
    scale: float = 1.0,
) -> Three:
    """Return drows, dweight and dbias, contiguous, in the dtype of rows."""
    drows, dtype, grad = rows.new_empty(rows.shape), wide(rows.dtype), scale * grad
    dweight, dbias = weight.new_zeros(weight.shape, dtype=dtype), weight.new_zeros(len(weight), dtype=dtype)
    if sums is None:
        sums = grad if spread is None else grad + len(weight) * spread
    for part in _chunks(rows, weight):
        slopes = (_logits(rows[part], weight, bias) - lse[part, None]).exp_() * -sums[part, None]
        if spread is not None:
            slopes += spread[part, None]
        slopes.scatter_add_(1, index[part, None], grad[part, None])
        slopes = slopes.to(rows.dtype)
        drows[part] = slopes @ (weight if weight_again is None else weight_again)
        dweight += slopes.T @ rows[part]
        dbias += slopes.sum(0, dtype=dtype)
    return drows, dweight.to(rows.dtype), dbias.to(rows.dtype)


def _fake(rows: Tensor, weight: Tensor, index: Tensor, bias: Tensor | None = None) -> Four:
    logp, lse, total, top = (rows.new_empty(rows.shape[0], dtype=wide(rows.dtype)) for _ in range(4))
    return logp, lse, total, top


def _fake_backward(grad: Tensor, rows: Tensor, weight: Tensor, *_: object, **__: object) -> Three:
    return rows.new_empty(rows.shape), weight.new_empty(weight.shape), weight.new_empty(weight.shape[0])


define("linear_cross_entropy", SCHEMA, linear_cross_entropy, _fake)
define("linear_cross_entropy_backward", BACKWARD_SCHEMA, linear_cross_entropy_backward, _fake_backward)
