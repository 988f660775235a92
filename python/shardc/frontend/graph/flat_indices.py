"""Decomposes sums at several computed indices into sums at one, which have a kernel.

Gradients of indexing by several tensors are such sums, and so are those of interpolation: each adds a tensor
to rows and columns of an image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

import shardc.runtime.operators.flat_index  # noqa: F401, defines the operator
from shardc.frontend.operators import Table

aten = torch.ops.aten
_INTEGERS = (torch.int64, torch.int32)


def flat_index_table() -> Table:
    """Return the decompositions of sums at indices of several dims."""
    return {aten._unsafe_index_put.default: _flat_index_put, aten.index_put.default: _flat_index_put}


def _flat_index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Sum at one index, if several neighbouring dims of known size are indexed by integers."""
    given = {dim: index for dim, index in enumerate(indices) if index is not None}
    if len(given) < 2:
        return NotImplemented
    first, last = min(given), max(given)
    neighbours = list(given) == list(range(first, last + 1))
    integers = all(index.dtype in _INTEGERS for index in given.values())
    sizes = (*x.shape, *(n for index in given.values() for n in index.shape))
    if not (accumulate and neighbours and integers and all(isinstance(n, int) and n for n in sizes)):
        return NotImplemented
    before, indexed, after = x.shape[:first], x.shape[first : last + 1], x.shape[last + 1 :]
    flat = torch.ops.shardc.flat_index(list(given.values()), indexed, first)
    common, count = flat.shape, flat.numel()
    values = values.expand(*before, *common, *after).reshape(*before, count, *after)
    places = [*[None] * first, flat.reshape(count)]
    total = aten.index_put(x.reshape(*before, math.prod(indexed), *after), places, values, True)
    return total.reshape(x.shape)
