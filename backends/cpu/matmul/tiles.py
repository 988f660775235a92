"""How a matmul is cut into register tiles, and these into blocks that stay in the caches (the scheme of
GotoBLAS and BLIS; Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.backends.cpu.config import Config
from shardc.backends.cpu.host import vector_bytes, vector_registers

MAX_ROWS = 16
"""Of a register tile."""

PACKED_COLUMNS = 1024
"""Columns of the right operand that threads together pack at a time, unless a configuration wants more."""

PACKED_BLOCKS = (192, 1024)
"""Rows and columns of a block where the left operand is packed, and"""
IN_PLACE_BLOCKS = (96, 256)
"""where it is read where it lies (decision 49)."""


@dataclass(frozen=True)
class Tiles:
    """Sizes in elements. A register tile is ``m`` rows of ``n`` columns, ``n`` a multiple of ``lanes``.

    ``block_m`` rows of the left operand by ``block_k`` lie in the second cache, ``block_n`` columns of the
    right one, over all of k, there or in the last: so many for each thread, and at most ``most_n`` for all of
    them together. ``terms`` of the sum are added by one instruction, and lie side by side.
    """

    lanes: int
    terms: int
    m: int
    n: int
    block_m: int
    block_n: int
    block_k: int
    most_n: int


def find_tiles(
    config: Config, sizes: tuple[int, int, int], sum_bytes: int, terms: int, packed_bytes: int, in_place: bool
) -> Tiles:
    """The tiles of a matmul of ``sizes`` m, n and k: those of ``config``, no larger than the matmul.

    An element of its sums takes ``sum_bytes``, and so do ``terms`` elements of an operand; the right one's
    packed block takes about ``packed_bytes`` at most. ``in_place``: the left one is read where it lies.
    """
    m, n, k = sizes
    lanes = vector_bytes() // sum_bytes
    most = max(1, config.tile_n // lanes) if config.tile_n else vector_registers() // 8
    vectors = even(-(-n // lanes), most)
    free = vector_registers() - 2 - vectors  # beside a row of the right operand, and one left element
    tile_m, tile_n = even(m, config.tile_m or max(1, min(MAX_ROWS, free // vectors))), lanes * vectors
    fitting = packed_bytes * terms // (k * sum_bytes)
    rows, columns = IN_PLACE_BLOCKS if in_place else PACKED_BLOCKS
    rows, columns = config.block_m or rows, config.block_n or columns
    block_n, most_n = (
        _multiple(max(tile_n, min(wanted, n, fitting)), tile_n)
        for wanted in (columns, max(columns, PACKED_COLUMNS))
    )
    block_m = _multiple(min(rows, m), tile_m)
    block_k = k if 2 * k <= 3 * config.block_k else _multiple(config.block_k, terms)
    return Tiles(lanes, terms, tile_m, tile_n, block_m, block_n, block_k, most_n)


def even(size: int, most: int) -> int:
    """The size of as few parts as parts of ``most`` would be, all alike."""
    return -(-size // -(-size // most))


def _multiple(size: int, of: int) -> int:
    """``size`` rounded up."""
    return -(-size // of) * of
