"""What a memory budget decides about, as data: the forward's ops, the memory that they make, who reads it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

MOST_STARTS = 24
"""Positions at which backward may begin to need one op. Of more, neighbours become the earliest."""


@dataclass(frozen=True)
class ForwardOp:
    """An op of the forward with its views.

    ``work_bytes``: what computing it again takes a device, as bytes of memory moved. ``kind``: ops of one
    kind are decided together. ``is_kept``: whether it is never computed again.
    """

    work_bytes: float
    kind: Hashable
    is_kept: bool = False


@dataclass(frozen=True)
class Storage:
    """Memory of ``size_bytes`` on a device that the forward op ``op`` makes.

    Positions number the ops of the step. The forward reads it last at ``forward_end``, backward first and
    last at ``backward``; None where it does not. ``readers``: the ops of the forward that read it.
    """

    op: int
    size_bytes: int
    forward_end: int
    backward: tuple[int, int] | None = None
    readers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class StepGraph:
    """The ops by number, in order, what they make, and what all else takes at each position.

    ``base_bytes`` counts each storage of ``storages`` until ``forward_end``.
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
        """The positions at which backward may begin to need an op again: where it reads what the op makes, or
        begins to need an op that reads it. Ascending.
        """
        found: dict[int, list[int]] = {}
        for op in reversed(tuple(self.ops)):
            at = {s.backward[0] for s in self.made_by[op] if s.backward}
            at.update(*(found[reader] for reader in self.readers(op)))
            found[op] = _fewer(sorted(at))
        return found

    def readers(self, op: int) -> set[int]:
        """The ops that may be computed again and read what ``op`` makes."""
        read = {reader for storage in self.made_by[op] for reader in storage.readers}
        return {reader for reader in read if not self.ops[reader].is_kept}

    def start(self, op: int, position: int) -> int:
        """The number, in ``starts``, of the last one that is not behind ``position``."""
        return bisect_right(self.starts[op], position) - 1

    def last_use(self, storage: Storage) -> int:
        """The last position at which backward may read a storage, itself or to compute others again."""
        ends = [storage.backward[1]] if storage.backward else []
        readers = [reader for reader in storage.readers if not self.ops[reader].is_kept]
        return max([*ends, *(self.starts[r][-1] for r in readers if self.starts[r])], default=-1)


def _fewer(starts: list[int]) -> list[int]:
    """At most MOST_STARTS, the earliest of each group of neighbours."""
    size = -(-len(starts) // MOST_STARTS) or 1
    return starts[::size]
