"""Layouts that a search chooses between: which dim each mesh axis cuts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from math import prod

from shardc.dialects.dist.sharding import REDUCTIONS, Axes, Sharding
from shardc.dialects.rules.rule import Dims

Layout = tuple[int, ...]
"""For each axis of the mesh the dim that it cuts, ``WHOLE``, or what a term is reduced by (``TERMS``)."""
WHOLE = -1
TERMS = {reduction: -2 - number for number, reduction in enumerate(REDUCTIONS)}
"""Reduction -> the mark of an axis over which devices hold terms."""
SUM = TERMS["sum"]
_REDUCTION = {mark: reduction for reduction, mark in TERMS.items()}


@lru_cache(maxsize=4096)
def layouts_of(
    shape: tuple[int, ...], sizes: tuple[int, ...], marks: tuple[tuple[int, ...], ...] | None = None
) -> tuple[Layout, ...]:
    """All layouts that cut a tensor of ``shape`` into equal blocks on axes of ``sizes``.

    ``marks``: those that each axis may have; otherwise any dim, and none.
    """
    dims = (WHOLE, *range(len(shape)))
    every = itertools.product(*(marks or (dims,) * len(sizes)))
    return tuple(layout for layout in every if divides(layout, shape, sizes))


def divides(layout: Layout, shape: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether the layout's blocks are equal and none is empty."""
    found = ways(layout, len(shape), sizes)
    return all(size % n == 0 and (size or n == 1) for size, n in zip(shape, found, strict=True))


def ways(layout: Layout, rank: int, sizes: Sequence[int]) -> list[int]:
    """In how many blocks each dim is cut."""
    found = [1] * rank
    for dim, size in zip(layout, sizes, strict=True):
        if dim >= 0:
            found[dim] *= size
    return found


def local_shape(layout: Layout, shape: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape of a device's block."""
    return tuple(size // n for size, n in zip(shape, ways(layout, len(shape), sizes), strict=True))


def parts(layout: Layout, sizes: Sequence[int]) -> int:
    """Into how many blocks the tensor is cut."""
    return prod(size for dim, size in zip(layout, sizes, strict=True) if dim >= 0)


def sharding_of(layout: Layout, rank: int, axes: Axes) -> Sharding:
    """The layout as a sharding; axes of one dim stand in the order of ``axes``."""
    marked = list(zip(layout, axes, strict=True))
    dims = tuple(tuple(axis for at, axis in marked if at == dim) for dim in range(rank))
    terms = tuple((_REDUCTION[mark], axis) for mark, axis in marked if mark in _REDUCTION)
    return Sharding(dims).with_partial(terms)


def in_order(dims: Dims, places: dict[str, list[int]]) -> bool:
    """Whether the axes of each dim, by number, come in the mesh's order; ``places``: those of each factor."""
    found = ([axis for factor in dim for axis in places.get(factor, ())] for dim in dims)
    return all(axes == sorted(axes) for axes in found)
