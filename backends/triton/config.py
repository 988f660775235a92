"""Tiles of functions, by closed forms of sizes, bytes and the target's figures.

``#kern.config`` may set ``block`` (elements of a program without rows), ``rows`` and ``columns`` (of a tile),
``warps``, ``programs`` (that sum over rows) and ``stages`` (of their loops). The others are computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.cost.machine import Gpu

PERSISTENT = 1 << 14
"""Largest row, in elements, that a program holds as a whole: 1024 threads with 16 elements each."""
LOOPED = 1 << 13
"""Elements of a longer row that a program reads at a time, 16 per thread.

With half as many, more rows are in flight than fit into L2, from which all passes but the first read. A
softmax of 32000 columns then takes 1.26 times the time on an H200.
"""
CARRIED_ROWS = 256
"""Least number of rows of a sum that is split over programs."""


@dataclass(frozen=True)
class Tile:
    """Tile of one function: rows and columns at a time, warps, and programs that share the rows.

    ``stages``: pipeline stages of a program's loop over rows; 1: no pipelining.
    """

    rows: int
    columns: int
    warps: int
    programs: int = 1
    stages: int = 1


@dataclass(frozen=True)
class Extent:
    """Sizes of one function, which runs over ``rows`` of ``columns`` elements.

    ``columns`` is 0 for elements without rows. ``item_bytes``, ``widest_bytes``: bytes of the smallest and
    the largest element. ``wide``: 1 + number of tensors read. ``sums``: number of accumulators over all rows.
    ``whole``: True if a program needs whole rows. ``across``: True if memory is contiguous across rows.
    ``moved_bytes``: bytes that are read and written once. ``sum_bytes``: those of them that are for sums over
    rows. ``stages``: number of loops of a row of which each needs the one before.
    """

    rows: int
    columns: int
    item_bytes: int
    wide: int = 2
    sums: int = 0
    whole: bool = False
    across: bool = False
    moved_bytes: int = 0
    sum_bytes: int = 0
    stages: int = 1
    widest_bytes: int = 4


def tile_of(e: Extent, target: Gpu, config: Mapping[str, int]) -> Tile:
    """Return the tile of a function. ``config``: values of ``#kern.config``."""
    if e.sums:
        return _carried_tile(e, target, config)
    return _row_tile(e, target, config) if e.columns else _flat_tile(e, target, config)


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()


def _flat_tile(e: Extent, target: Gpu, config: Mapping[str, int]) -> Tile:
    """Return the tile of elements without rows: a vector of each tensor for each thread.

    Few elements are spread over all units first. The smallest block is a warp with one vector per thread.
    """
    vector = target.vector_bytes // e.item_bytes
    least, most = target.warp_size * vector, 8 * 32 * vector
    block = config.get("block", min(most, max(least, power_of_two(e.rows // (2 * target.units)))))
    return Tile(1, block, config.get("warps", _warps(block, vector, target)))


def _row_tile(e: Extent, target: Gpu, config: Mapping[str, int]) -> Tile:
    """Return the tile of rows, which are held in registers if they fit.

    ``e.wide`` values are live for each element. Short rows share a program as long as there are enough
    programs for all units. A thread has two vectors of each tensor, or more if rows are long. If memory is
    contiguous across rows, several rows are read together.
    """
    vector = target.vector_bytes // e.item_bytes
    whole = power_of_two(e.columns)
    width = config.get("columns", whole if whole <= PERSISTENT else LOOPED)
    height = max(1, 2048 // width)
    while height > 1 and e.rows // height < 2 * target.units:
        height //= 2
    if e.across:
        height = min(power_of_two(e.rows), max(height, PERSISTENT // width if width > 512 else 32))
    height = config.get("rows", height)
    most = min(32, 96 // max(1, e.wide)) if whole <= PERSISTENT else 16
    warps = _warps(height * width, max(vector, most), target)
    return Tile(height, width, config.get("warps", warps))


def _carried_tile(e: Extent, target: Gpu, config: Mapping[str, int]) -> Tile:
    """Return the tile of programs that each sum a share of the rows."""
    vector, columns = target.vector_bytes // e.item_bytes, max(1, e.columns)
    every = power_of_two(columns)
    width = config.get("columns", every if e.whole else min(every, max(128, 32 * vector)))
    most = 4096 // width if width > 1 else 1024
    height = config.get("rows", max(1, min(power_of_two(e.rows), most)))
    blocks = -(-e.rows // height)
    across = 1 if e.whole else -(-columns // width)
    stages = config.get("stages", _stages(height, e, target))
    each_unit = 4 if stages == 1 else 2
    programs = max(1, min(-(-blocks // 2), each_unit * target.units // across, 512))
    each = max(vector, min(32, 48 // (1 + e.sums))) * 4 // max(4, e.widest_bytes)  # 8 bytes: two registers
    warps = _warps(height * width, max(1, each), target)
    return Tile(height, width, config.get("warps", warps), config.get("programs", programs), stages)


def _stages(height: int, e: Extent, target: Gpu) -> int:
    """Return the pipeline stages of a loop over rows: 3 for whole rows that fit into shared memory, else 1.

    With three stages, the loads of two steps are in flight while a third step is computed. Two programs per
    unit then read at 0.85 of the copy rate, instead of 0.65 (layer norm's backward on an H200).
    """
    step_bytes = height * (e.moved_bytes - e.sum_bytes) // max(1, e.rows)
    fits = 2 * step_bytes <= target.shared_bytes // 3
    return 3 if e.whole and fits and target.backend == "cuda" else 1


def _warps(elements: int, each: int, target: Gpu) -> int:
    """Return the number of warps, a power of two, with which a thread has ``each`` of the elements."""
    wanted = power_of_two(max(1, elements // (each * target.warp_size)))
    return min(wanted, target.program_threads // target.warp_size)
