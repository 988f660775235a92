"""Decomposes batched products of small matrices or of vectors, such as rotations, into what kernels compute.

A library's call takes longer to start on each matrix than to multiply it, and reads one that is multiplied by
a vector at a fraction of memory's rate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shardc.frontend.operators import Table

aten = torch.ops.aten
MAX_ELEMENTS = 64
"""Most elements of a small matrix."""
MIN_BATCH = 256
"""Least number of products of small matrices for which the decomposition is made."""
MIN_RESULTS = 256
"""Least number of elements of a product with vectors for which it is made."""


def small_product_table() -> Table:
    """Return the decompositions of ``bmm`` and ``linalg_cross``."""
    return {aten.bmm.default: _bmm, aten.linalg_cross.default: _cross}


def _bmm(x: Tensor, y: Tensor) -> Tensor:
    """Sum products of f32 or f64; 16-bit products would be rounded before the sum, unless there is one."""
    (batch, m, k), n = x.shape, y.shape[2]
    known = all(isinstance(size, int) for size in (batch, m, k, n))
    wide = x.dtype in (torch.float32, torch.float64) and x.dtype == y.dtype
    if isinstance(k, int) and k == 1 and x.dtype == y.dtype:
        return (x * y).contiguous()
    if not (known and wide):
        return NotImplemented
    if batch * m * n >= MIN_RESULTS and k > 0:
        if n == 1:
            return (x * y.transpose(1, 2)).sum(2, keepdim=True)
        if m == 1:
            return (x.transpose(1, 2) * y).sum(1, keepdim=True)
    if batch >= MIN_BATCH and max(m * k, k * n, m * n) <= MAX_ELEMENTS:
        return (x[:, :, :, None] * y[:, None]).sum(2)
    return NotImplemented


def _cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Return the products of vectors of three, each coordinate from those of both."""
    x, y = torch.broadcast_tensors(x, y)
    (a, b, c), (d, e, f) = ([aten.select.int(t, dim, n) for n in range(3)] for t in (x, y))
    return torch.stack([b * f - c * e, c * d - a * f, a * e - b * d], dim)
