"""Rows of reductions: short ones, and those into which a reduction of all elements is split."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from shardc.dialects.kern.size import AnySize
from shardc.passes.fuse.grouping.legal import MAX_SERIAL
from shardc.passes.fuse.reading.graph import Value

LONGEST_ROW, SHORTEST_ROW = 1 << 13, 64
"""Longest and shortest rows, in elements, into which a reduction of all elements is split."""
SHORT_ROW = 4
"""Most elements whose reduction is one pointwise op, such as the coordinates of a point."""


UNROLLED = frozenset(
    f"aten.{name}"
    for names in ("sum.dim_IntList mean.dim amax amin max.dim min.dim", "prod.dim_int linalg_vector_norm")
    for name in names.split()
)
"""Reductions whose short rows may be one op. Others, such as a softmax, read their sums for each element."""


def is_short(x: Value, dims: Sequence[int]) -> bool:
    """Return whether a reduction of ``x`` over ``dims`` is one op, which can fuse with any other.

    A view of what another op makes is left out: elements cannot be read through it at any index. So is a
    matmul's result.
    """
    sizes = [n for n in x.type.shape if isinstance(n, int)]
    reduced = prod(x.type.shape[d] for d in dims)
    if len(sizes) < len(x.type.shape) or not reduced <= SHORT_ROW < prod(sizes):
        return False
    return x.node is None or (x.node.out is x and not x.node.contracts)


def rows_of(shape: Sequence[AnySize]) -> tuple[int, int] | None:
    """Return (number of rows, elements of a row) for a sum of all elements.

    Rows are the most trailing dims that have at most :data:`LONGEST_ROW` elements together. If these have
    fewer than :data:`SHORTEST_ROW`, the next dim is split. None if the tensor is small, or has no such rows.
    """
    sizes = [n for n in shape if isinstance(n, int)]
    count = prod(sizes)
    if len(sizes) < len(shape) or count <= MAX_SERIAL:
        return None
    row = 1
    for size in reversed(sizes):
        if row * size > LONGEST_ROW:
            if row < SHORTEST_ROW:
                row *= max(n for n in range(1, LONGEST_ROW // row + 1) if size % n == 0)
            break
        row *= size
    return (count // row, row) if row >= SHORTEST_ROW else None
