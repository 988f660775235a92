"""``shardc::flat_index``: indices of several dims as one index of their product."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .define import define

SCHEMA = "(Tensor[] indices, int[] sizes, int first) -> Tensor"


def flat_index(indices: Sequence[Tensor], sizes: Sequence[int], first: int) -> Tensor:
    """Return row-major numbers of elements, int64, of the indices' common shape.

    Args:
        indices: Integers, one tensor for each dim; they are broadcast. Negative ones count from the end.
        sizes: Sizes of these dims.
        first: Number of the first of these dims in the indexed tensor, for messages.

    Raises IndexError, as indexing does, if an index is out of bounds.
    """
    flat = torch.zeros((), dtype=torch.int64, device=indices[0].device)
    for number, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        index = index.long()
        outside = (index < -size) | (index >= size)
        if outside.any():
            message = f"index {int(index[outside][0])} is out of bounds for dimension {first + number}"
            raise IndexError(f"{message} with size {size}")
        flat = flat * size + torch.where(index < 0, index + size, index)
    return flat


def _fake(indices: Sequence[Tensor], sizes: Sequence[int], first: int) -> Tensor:
    shape = torch.broadcast_shapes(*(index.shape for index in indices))
    return indices[0].new_empty(shape, dtype=torch.int64)


define("flat_index", SCHEMA, flat_index, _fake)
