"""Decomposes batched products of small matrices, such as rotations, into sums that kernels compute.

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
    """Return the decomposition of ``bmm``."""
    return {aten.bmm.default: _bmm}


def _bmm(x: Tensor, y: Tensor) -> Tensor:
    """Sum products of f32 or f64; 16-bit products would be rounded before the sum."""
    (batch, m, k), n = x.shape, y.shape[2]
    known = all(isinstance(size, int) for size in (batch, m, k, n))
    wide = x.dtype in (torch.float32, torch.float64) and x.dtype == y.dtype
    if not (known and wide and batch >= MIN_BATCH and max(m * k, k * n, m * n) <= MAX_ELEMENTS):
        return NotImplemented
    return (x[:, :, :, None] * y[:, None]).sum(2)
