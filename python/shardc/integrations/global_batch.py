"""Joins the micro-batches of an update to one global batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shardc.diagnostics.integrations import BatchesDiffer


def joined(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate the rows of all ``batches``. Values that are not tensors come from the first.

    Raises BatchesDiffer if names, or shapes apart from the rows, differ.
    """
    first, *others = batches
    for other in others:
        if other.keys() != first.keys():
            raise BatchesDiffer(problem=f"one has {sorted(first)}, another {sorted(other)}")
    return {name: _rows(name, [batch[name] for batch in batches]) for name in first}


def _rows(name: str, values: Sequence[Any]) -> Any:
    first = values[0]
    if not isinstance(first, Tensor):
        return first
    shapes = sorted({tuple(value.shape[1:]) for value in values})
    if len(shapes) > 1 or not first.dim():
        raise BatchesDiffer(problem=f"{name} has rows of shapes {', '.join(map(str, shapes))}")
    return torch.cat([*values]) if len(values) > 1 else first
