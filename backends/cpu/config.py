"""``Config``: a CPU kernel's tile configuration, with defaults that ``#kern.config`` overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from shardc.cost.machine import Cpu


@dataclass(frozen=True)
class Config:
    """Tile configuration of one kernel. Fields have the names of ``#kern.config``."""

    rows: int = 64
    """Rows of a partial sum, in sums over rows. Partial sums keep the error of long sums small."""

    block: int = 8192
    """Elements of a partial sum, in a sum over one long axis."""

    tile: int = 64
    """Elements of a row at a time, if some input is contiguous across the rows (a transposed read)."""

    recompute_cost: int = 12
    """Cost, in additions, from which on a value that a later stage of the row reads is kept in memory.

    A cheaper value is recomputed.
    """

    piece: int = 256
    """Elements of a row between two prefetches. Each prefetches as many elements of the next row."""

    far_bytes: int = Cpu.far_bytes
    """Inputs of fewer bytes are not prefetched, because they are in a cache."""

    sums: int = 4
    """Number of independent vector accumulators of a sum, if a row has at least ``piece`` elements."""

    near_bytes: int = Cpu.near_bytes
    """Rows of at most this many bytes are prefetched into the first-level cache, others into the second."""

    streamed_bytes: int = Cpu.streamed_bytes
    """Results of at least this many bytes are written with non-temporal stores, past the caches."""

    work_per_thread: int = Cpu.thread_work
    """Least number of additions per thread; for fewer, another thread does not pay."""

    tile_m: int = 0
    """Rows of a matmul's register tile; 0: as many as leave registers for a row of the right operand."""

    tile_n: int = 0
    """Columns of a matmul's register tile, in whole vectors; 0: one vector per eight registers."""

    block_m: int = 0
    """Rows of a matmul's left operand per block; 0: as many as fill the second-level cache.

    With 0, an operand that is read in place has half as many.
    """

    block_n: int = 0
    """Columns of a matmul's right operand that each thread packs per block; 0: by the left operand.

    With 0, there are few columns if the left operand is read in place, so that the right one stays in the
    second-level cache. There are many if the left operand is packed, because each block packs it again.
    """

    block_k: int = 1024
    """Terms of a matmul's sum per block."""

    left: int = 2
    """Form of a matmul's left operand: 1 packs it; 2 reads it in place if it is contiguous along the sum."""

    right: int = 1
    """Form of a matmul's right operand: 1 packs it; 2 reads it in place.

    In place, it must be contiguous along the columns, and their number a multiple of the tile's.
    """

    share: int = 0
    """How threads divide matmuls: 1 by rows, 2 by columns, 3 by whole matmuls of a batch; 0: by the sizes."""

    queries: int = 48
    """Queries of an attention per block, in vector lanes; fewer if that leaves fewer lanes empty."""

    keys: int = 64
    """Keys of an attention per block. The scores of a block must fit into the first-level cache."""

    key_parts: int = 8
    """Largest number of parts of a head's keys in attention's backward, if threads outnumber heads."""

    heads: int = 32
    """Number of key heads, over the batch, from which on attention's backward does not split keys."""

    columns: int = 256
    """Least number of columns of a row per thread, in sums of rows at computed indices."""

    @staticmethod
    def of(values: Mapping[str, int]) -> Config:
        known = {f.name for f in fields(Config)}
        return Config(**{name: value for name, value in values.items() if name in known})
