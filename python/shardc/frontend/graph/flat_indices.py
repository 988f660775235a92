"""Decomposes sums at several computed indices into sums at one, which have a kernel.

Gradients of interpolation are such sums: each adds a tensor to rows and columns of an image. A sum at one
index of rows times columns needs no call of ATen for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shardc.frontend.operators import Table

aten = torch.ops.aten
_INTEGERS = (torch.int64, torch.int32)


def flat_index_table() -> Table:
    """Return the decomposition of ``_unsafe_index_put``, whose indices need no check for each dim."""
    return {aten._unsafe_index_put.default: _flat_index_put}


def _flat_index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Sum at one index, if several neighbouring dims of known size are indexed by integers."""
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    first, last = min(given), max(given)
    neighbours = len(given) > 1 and list(given) == list(range(first, last + 1))
    integers = all(index.dtype in _INTEGERS for index in given.values())
    sizes = (*x.shape, *(n for index in given.values() for n in index.shape))
    if not (accumulate and neighbours and integers and all(isinstance(n, int) for n in sizes)):
        return NotImplemented
    before, after = x.shape[:first], x.shape[last + 1 :]
    common = torch.broadcast_shapes(*(index.shape for index in given.values()))
    flat: Tensor | int = 0
    for dim, index in given.items():
        size = x.shape[dim]
        flat = flat * size + torch.where(index < 0, index + size, index)
    assert isinstance(flat, Tensor)
    rows, count = math.prod(x.shape[first : last + 1]), math.prod(common)
    values = values.expand(*before, *common, *after).reshape(*before, count, *after)
    places = [*[None] * first, flat.expand(common).reshape(count)]
    return aten.index_put(x.reshape(*before, rows, *after), places, values, True).reshape(x.shape)
