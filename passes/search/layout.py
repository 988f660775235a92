"""Layouts in the search: the dim that each mesh axis splits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from shardc.dialects.dist.sharding import REDUCTIONS, Axes, Sharding
from shardc.dialects.rules.rule import Dims

Layout = tuple[int, ...]
"""For each mesh axis, the dim that it splits, ``WHOLE``, or the mark of a reduction (``TERMS``)."""
WHOLE = -1
TERMS = {reduction: -2 - number for number, reduction in enumerate(REDUCTIONS)}
"""Reduction -> the mark of an axis over which devices hold terms."""
SUM = TERMS["sum"]
_REDUCTION = {mark: reduction for reduction, mark in TERMS.items()}


@lru_cache(maxsize=4096)
def layouts_of(
    shape: tuple[int, ...], sizes: tuple[int, ...], marks: tuple[tuple[int, ...], ...] | None = None
) -> tuple[Layout, ...]:
    """Return all layouts that split a tensor of ``shape`` into equal blocks on axes of ``sizes``.

    ``marks`` are the allowed marks of each axis; default: any dim, or whole.
    """
    dims = (WHOLE, *range(len(shape)))
    every = itertools.product(*(marks or (dims,) * len(sizes)))
    return tuple(layout for layout in every if divides(layout, shape, sizes))


@lru_cache(maxsize=1 << 16)
def divides(layout: Layout, shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether the layout's blocks are equal and not empty."""
    found = ways(layout, len(shape), sizes)
    return all(size % n == 0 and (size or n == 1) for size, n in zip(shape, found, strict=True))


def ways(layout: Layout, rank: int, sizes: Sequence[int]) -> list[int]:
    """Return the number of blocks of each dim."""
    found = [1] * rank
    for dim, size in zip(layout, sizes, strict=True):
        if dim >= 0:
            found[dim] *= size
    return found


def local_shape(layout: Layout, shape: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a device's block."""
    return tuple(size // n for size, n in zip(shape, ways(layout, len(shape), sizes), strict=True))


def parts(layout: Layout, sizes: Sequence[int]) -> int:
    """Return the number of blocks of the tensor."""
    return prod(size for dim, size in zip(layout, sizes, strict=True) if dim >= 0)


def marks_array(layouts: Sequence[Layout], axes: int) -> np.ndarray:
    """Return the marks of layouts on so many mesh axes, [layout, axis]."""
    return np.array(layouts, int).reshape(len(layouts), axes)


@lru_cache(maxsize=4096)
def parts_of(layouts: tuple[Layout, ...], sizes: tuple[int, ...]) -> np.ndarray:
    """Return the number of blocks of a tensor in each of ``layouts``."""
    return np.where(marks_array(layouts, len(sizes)) >= 0, np.array(sizes, int), 1).prod(axis=1)


def sharding_of(layout: Layout, rank: int, axes: Axes) -> Sharding:
    """Return the layout as a sharding; axes of one dim are in the order of ``axes``."""
    marked = list(zip(layout, axes, strict=True))
    dims = tuple(tuple(axis for at, axis in marked if at == dim) for dim in range(rank))
    terms = tuple((_REDUCTION[mark], axis) for mark, axis in marked if mark in _REDUCTION)
    return Sharding(dims).with_partial(terms)


def in_order(dims: Dims, places: dict[str, list[int]]) -> bool:
    """Return whether each dim's axes are in the mesh's order. ``places``: axis numbers of each factor."""
    found = ([axis for factor in dim for axis in places.get(factor, ())] for dim in dims)
    return all(axes == sorted(axes) for axes in found)
