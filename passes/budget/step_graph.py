"""Graph of a memory budget: forward ops, the storages that they allocate, and their readers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

MOST_STARTS = 24
"""Limit of positions at which backward may begin to need an op; adjacent ones are merged to the earliest."""


@dataclass(frozen=True)
class ForwardOp:
    """A forward op with its views.

    ``work_bytes`` is the cost of recomputing it, as bytes of memory moved on a device. Ops of one ``kind``
    are decided together. ``is_kept``: it is never recomputed.
    """

    work_bytes: float
    kind: Hashable
    is_kept: bool = False


@dataclass(frozen=True)
class Storage:
    """Memory of ``size_bytes`` on a device that the forward op ``op`` allocates.

    Positions number the ops of the step. The forward reads the storage last at ``forward_end``; backward
    reads it first and last at ``backward``, which is None if it does not. ``readers`` are the forward ops
    that read it.
    """

    op: int
    size_bytes: int
    forward_end: int
    backward: tuple[int, int] | None = None
    readers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class StepGraph:
    """Forward ops by number, in order, their storages, and all other live bytes at each position.

    ``base_bytes`` includes each storage of ``storages`` until its ``forward_end``.
    """

    ops: Mapping[int, ForwardOp]
    storages: tuple[Storage, ...]
    base_bytes: tuple[int, ...]

    @cached_property
    def made_by(self) -> Mapping[int, list[Storage]]:
        """The storages of each op."""
        found: dict[int, list[Storage]] = {op: [] for op in self.ops}
        for storage in self.storages:
            found[storage.op].append(storage)
        return found

    @cached_property
    def starts(self) -> Mapping[int, list[int]]:
        """Positions, ascending, at which backward may begin to need an op again.

        There it reads the op's result, or begins to need an op that reads it.
        """
        found: dict[int, list[int]] = {}
        for op in reversed(tuple(self.ops)):
            at = {s.backward[0] for s in self.made_by[op] if s.backward}
            at.update(*(found[reader] for reader in self.readers(op)))
            found[op] = _fewer(sorted(at))
        return found

    def readers(self, op: int) -> set[int]:
        """Return the ops that may be recomputed and read the result of ``op``."""
        read = {reader for storage in self.made_by[op] for reader in storage.readers}
        return {reader for reader in read if not self.ops[reader].is_kept}

    def start(self, op: int, position: int) -> int:
        """Return the index in ``starts`` of the last start that is not after ``position``."""
        return bisect_right(self.starts[op], position) - 1

    def last_use(self, storage: Storage) -> int:
        """Return the last position at which backward may read a storage, directly or to recompute others."""
        ends = [storage.backward[1]] if storage.backward else []
        readers = [reader for reader in storage.readers if not self.ops[reader].is_kept]
        return max([*ends, *(self.starts[r][-1] for r in readers if self.starts[r])], default=-1)


def _fewer(starts: list[int]) -> list[int]:
    """Return at most MOST_STARTS starts: the earliest of each group of adjacent ones."""
    size = -(-len(starts) // MOST_STARTS) or 1
    return starts[::size]
