"""Decomposes batched products of small matrices or of vectors, such as rotations, into what kernels compute.

A library's call takes longer to start on each matrix than to multiply it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shardc.frontend.operators import Table

aten = torch.ops.aten
MAX_ELEMENTS = 64
"""Most elements of a small matrix."""
MIN_BATCH = 256
"""Least number of products for which the decomposition is made."""


def small_product_table() -> Table:
    """Return the decompositions of ``bmm`` and ``linalg_cross``."""
    return {aten.bmm.default: _bmm, aten.linalg_cross.default: _cross}


def _bmm(x: Tensor, y: Tensor) -> Tensor:
    """Sum products of f32 or f64; 16-bit products would be rounded before the sum."""
    (batch, m, k), n = x.shape, y.shape[2]
    known = all(isinstance(size, int) for size in (batch, m, k, n))
    wide = x.dtype in (torch.float32, torch.float64) and x.dtype == y.dtype
    if not (known and wide and batch >= MIN_BATCH and max(m * k, k * n, m * n) <= MAX_ELEMENTS):
        return NotImplemented
    return (x[:, :, :, None] * y[:, None]).sum(2)


def _cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Return the products of vectors of three, each coordinate from those of both."""
    x, y = torch.broadcast_tensors(x, y)
    (a, b, c), (d, e, f) = ([aten.select.int(t, dim, n) for n in range(3)] for t in (x, y))
    return torch.stack([b * f - c * e, c * d - a * f, a * e - b * d], dim)
