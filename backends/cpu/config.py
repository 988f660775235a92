"""The default table of a kernel's tile configuration, and what ``#kern.config`` changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from shardc.cost.machine import Cpu


@dataclass(frozen=True)
class Config:
    """How one kernel is cut up. Names are those of ``#kern.config``;
    names that are not here are left to other backends.
    """

    rows: int = 64
    """Rows whose terms are added up by themselves first, in sums over rows: keeps the error of long sums
    small.
    """

    block: int = 8192
    """The same in elements, for a sum over one long axis."""

    tile: int = 64
    """Elements of a row at a time, where something else is contiguous across the rows (a transposed read)."""

    recompute_cost: int = 12
    """A value that a later stage of the row reads is made again if it costs fewer additions than this, else
    kept.
    """

    piece: int = 256
    """Elements of a row that its last loop writes before it fetches as many of what the next row
    reads first.
    """

    far_bytes: int = Cpu.far_bytes
    """Inputs of fewer bytes are not fetched so: they are in a cache."""

    sums: int = 4
    """Vectors of terms that a sum in a register takes side by side, where a row has a piece of them."""

    near_bytes: int = Cpu.near_bytes
    """Rows of so many bytes at most are fetched into the first cache, beside the row that is computed; others
    into the second.
    """

    streamed_bytes: int = Cpu.streamed_bytes
    """Results of so many bytes are written past the caches."""

    work_per_thread: int = Cpu.thread_work
    """Additions below which another thread does not pay."""

    tile_m: int = 0
    """Rows of a matmul's register tile; 0: as many as leave room for a row of the right operand."""

    tile_n: int = 0
    """Columns of it, in whole vectors; 0: a vector for each eight registers."""

    block_m: int = 0
    """Rows of a matmul's left operand that are packed at a time; 0: as many as fill the second cache, or half
    of them where it is read where it lies.
    """

    block_n: int = 0
    """Columns of the right one that each thread packs at a time; 0: few where the left one is read where it
    lies, for then the right one stays in the second cache; else many, for the left one is packed again for
    each block.
    """

    block_k: int = 1024
    """Terms of the sum that are added up before the next rows are looked at."""

    left: int = 2
    """Of a matmul's left operand: 1 packs it; 2 reads it where it lies, if that is contiguous
    along the sum.
    """

    right: int = 1
    """The same of the right one, if it is contiguous along the columns and whole tiles cover them."""

    share: int = 0
    """What threads share of matmuls: 1 the rows of each, 2 its columns, 3 whole ones of a batch; 0: by their
    sizes.
    """

    queries: int = 48
    """Queries that an attention takes at once, in vector lanes: fewer where that leaves fewer lanes empty."""

    keys: int = 64
    """Keys that it takes at once: what their scores take must fit into the first cache."""

    key_parts: int = 8
    """Parts into which attention's backward may cut the keys of a head, where there are fewer heads than
    threads.
    """

    heads: int = 32
    """Heads of keys, over the batch, from which on it does not."""

    columns: int = 256
    """Columns of a row that are worth a thread, where rows are added up at computed indices."""

    @staticmethod
    def of(values: Mapping[str, int]) -> Config:
        known = {f.name for f in fields(Config)}
        return Config(**{name: value for name, value in values.items() if name in known})
