"""Tiling of a matmul: register tiles, in blocks that stay in the caches.

The scheme is that of GotoBLAS and BLIS (Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication", 2008).
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.backends.cpu.config import Config
from shardc.backends.cpu.host import vector_bytes, vector_registers

MAX_ROWS = 16
"""Most rows of a register tile."""

PACKED_COLUMNS = 1024
"""Columns of the right operand that all threads pack at a time, unless a configuration has more."""

PACKED_BLOCKS = (192, 1024)
"""Rows and columns of a block if the left operand is packed."""
IN_PLACE_BLOCKS = (96, 256)
"""Rows and columns of a block if the left operand is read in place (decision 49)."""


@dataclass(frozen=True)
class Tiles:
    """Sizes of tiles, in elements. A register tile has ``m`` rows of ``n`` columns, a multiple of ``lanes``.

    ``block_m`` rows by ``block_k`` of the left operand stay in the second cache. ``block_n`` columns of the
    right one, over all of k, stay there or in the last cache: that many for each thread, and at most
    ``most_n`` for all threads. ``terms``: number of adjacent terms that one instruction adds.
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
    """Return the tiles of a matmul of ``sizes`` m, n and k: those of ``config``, no larger than the matmul.

    ``sum_bytes``: bytes of a sum's element, and of ``terms`` elements of an operand. ``packed_bytes``:
    approximate maximum of the right operand's packed block. ``in_place``: the left operand is read in place.
    """
    m, n, k = sizes
    lanes = vector_bytes() // sum_bytes
    most = max(1, config.tile_n // lanes) if config.tile_n else vector_registers() // 8
    vectors = even(-(-n // lanes), most)
    free = vector_registers() - 2 - vectors  # without those of a row of right, and of one element of left
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
    """Return the size of equal parts, as few as with parts of ``most``."""
    return -(-size // -(-size // most))


def _multiple(size: int, of: int) -> int:
    """Round ``size`` up to a multiple."""
    return -(-size // of) * of
