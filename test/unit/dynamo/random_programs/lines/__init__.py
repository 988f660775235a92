"""Lines of random programs, one file per kind.

``{x}`` is a value of floats, ``{i}`` of integers, ``{v}`` any, ``{e}`` one that rounding has not touched,
``{o}`` one that may be written to; ``{y}`` ``{f}`` ``{n}`` ``{m}`` are floats, exact ones, integers and
booleans that broadcast with it. The rest are numbers, dims and indices that fit it, written with its sizes
where they depend on them, so that a program fits other sizes too.
"""

from . import (
    copy,
    exact,
    in_place,
    indexing,
    integers,
    layers,
    matmul,
    mixed,
    modes,
    normalization,
    pointwise,
    reduction,
    sizes,
    view,
)

_FILES = {
    pointwise: 9,
    exact: 3,
    integers: 2,
    reduction: 4,
    normalization: 2,
    view: 5,
    copy: 2,
    indexing: 2,
    matmul: 2,
    layers: 1,
    sizes: 2,
    modes: 1,
    mixed: 2,
    in_place: 1.5,
}
LINES = {
    file.__name__.rpartition(".")[2]: [line.strip() for line in file.LINES.strip().splitlines()]
    for file in _FILES
}
WEIGHTS = dict(zip(LINES, _FILES.values(), strict=True))
"""How often a kind is drawn."""
EXACT = ("view", "copy", "exact", "integers", "indexing")
"""Kinds whose result is exact where all operands are."""
IN_PLACE = "in_place"
