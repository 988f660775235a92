"""Tiles of functions: closed forms from sizes, bytes and the target's figures; no table of ops.

``#kern.config`` may set ``block`` (elements of a program without rows), ``rows`` and ``columns`` (those of a
tile), ``warps`` and ``programs`` (that sum over rows). What it does not say is chosen here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.cost.machine import Gpu

PERSISTENT = 1 << 14
"""Elements of a row that a program may hold at once: 1024 threads with 16 values each of every tensor."""
LOOPED = 1 << 13
"""Elements at a time of a longer row, 16 a thread: with half of them as many rows are under way as do not
fit into L2, from which the passes after the first read (softmax of 32000 columns on an H200: 1.26 times the
time).
"""
CARRIED_ROWS = 256
"""A sum over at least so many rows may be cut over programs."""


@dataclass(frozen=True)
class Tile:
    """Tile of one function: rows and columns at a time, warps, and programs that share the rows.

    ``stages``: of a program's loop over rows, steps whose loads are under way; 1: those of one.
    """

    rows: int
    columns: int
    warps: int
    programs: int = 1
    stages: int = 1


@dataclass(frozen=True)
class Extent:
    """What one function runs over: ``rows`` of ``columns`` elements (0: elements without rows), of
    ``item_bytes`` to ``widest_bytes``. ``wide``: 1 + tensors read; ``sums``: accumulators over all rows;
    ``whole``: a program needs all of a row; ``across``: rows lie side by side; ``moved_bytes``: read and
    written once, ``sum_bytes`` of them for sums over rows; ``stages``: loops of a row that wait for each
    other.
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
    """The tile of a function."""
    if e.sums:
        return _carried_tile(e, target, config)
    return _row_tile(e, target, config) if e.columns else _flat_tile(e, target, config)


def power_of_two(n: int) -> int:
    """The least that is not below ``n``."""
    return 1 << max(0, n - 1).bit_length()


def _flat_tile(e: Extent, target: Gpu, config: Mapping[str, int]) -> Tile:
    """Tile of elements without rows: a vector of each tensor for each thread.

    Few elements are spread over all units first: a warp with one vector a thread is the least.
    """
    vector = target.vector_bytes // e.item_bytes
    least, most = target.warp_size * vector, 8 * 32 * vector
    block = config.get("block", min(most, max(least, power_of_two(e.rows // (2 * target.units)))))
    return Tile(1, block, config.get("warps", _warps(block, vector, target)))


def _row_tile(e: Extent, target: Gpu, config: Mapping[str, int]) -> Tile:
    """Tile of rows, in registers where they fit. ``e.wide`` values of a row live at once.

    Short rows share a program, as long as there are enough programs for all units; a thread has two vectors
    of each tensor, more where rows are long. Rows that lie side by side are read together.
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
    """Tile of programs that each sum a share of the rows."""
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
    """Of a loop over whole rows: with the loads of two steps in shared memory while a third is computed, two
    programs a unit read at 0.85 of the copy rate, without at 0.65 (layer norm's backward, an H200).
    """
    step_bytes = height * (e.moved_bytes - e.sum_bytes) // max(1, e.rows)
    fits = 2 * step_bytes <= target.shared_bytes // 3
    return 3 if e.whole and fits and target.backend == "cuda" else 1


def _warps(elements: int, each: int, target: Gpu) -> int:
    """As many as give a thread ``each`` of the elements; a power of two."""
    wanted = power_of_two(max(1, elements // (each * target.warp_size)))
    return min(wanted, target.program_threads // target.warp_size)
