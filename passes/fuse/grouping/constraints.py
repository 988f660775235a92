"""Fusion constraints: pairs of ops that a user forces into one kernel or keeps apart.

Their text form is in :mod:`shardc.options.fusion_edges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shardc.dialects.location import source_line
from shardc.options.fusion_edges import Edge, read_edges
from shardc.passes.fuse.reading.graph import Step

Pair = frozenset[int]
"""Numbers of two calls of a block."""


@dataclass
class FusionConstraints:
    """Edges that a user forbids and forces. ``unmatched``: edges that have matched no two ops so far."""

    forbid: Sequence[Edge] = ()
    force: Sequence[Edge] = ()
    unmatched: set[str] = field(default_factory=set)

    @staticmethod
    def of(forbid: Iterable[str] = (), force: Iterable[str] = ()) -> FusionConstraints:
        """Parse edges. Raises BadFusionEdge."""
        forbidden, forced = read_edges(forbid, force)
        return FusionConstraints(forbidden, forced, {edge.text for edge in (*forbidden, *forced)})

    def __bool__(self) -> bool:
        return bool(self.forbid or self.force)

    def in_block(self, number: int, steps: Sequence[Step]) -> BlockConstraints:
        """Return the constraints of one block."""
        if not self:
            return BlockConstraints()
        calls = [s for s in steps if not s.is_view]
        forbidden = {pair: edge.text for edge, pair in self._pairs(self.forbid, number, calls)}
        forced: dict[str, set[Pair]] = {}
        for edge, pair in self._pairs(self.force, number, calls):
            forced.setdefault(edge.text, set()).add(pair)
        return BlockConstraints(forbidden, forced)

    def _pairs(
        self, edges: Sequence[Edge], number: int, calls: Sequence[Step]
    ) -> Iterator[tuple[Edge, Pair]]:
        named = [(s.number, f"{number}.{s.number}", s.target, source_line(s.op.location)) for s in calls]
        for edge in edges:
            first, second = (
                [n for n, label, target, where in named if name.fits(label, target, where)]
                for name in (edge.first, edge.second)
            )
            for pair in {frozenset((a, b)) for a in first for b in second if a != b}:
                self.unmatched.discard(edge.text)
                yield edge, pair


@dataclass(frozen=True)
class BlockConstraints:
    """Constraints of one block: forbidden pairs of calls with their edge, and forced pairs by edge."""

    forbidden: dict[Pair, str] = field(default_factory=dict)
    forced: dict[str, set[Pair]] = field(default_factory=dict)

    def forbids(self, a: set[int], b: set[int]) -> str | None:
        """Return the edge that forbids to fuse the calls ``a`` and ``b``, or None."""
        pairs = (frozenset((x, y)) for x in a for y in b) if self.forbidden else ()
        return next((self.forbidden[pair] for pair in pairs if pair in self.forbidden), None)

    def forces(self, a: set[int], b: set[int]) -> bool:
        """Return whether some pair of the calls ``a`` and ``b`` is forced into one kernel."""
        every = (pair for pairs in self.forced.values() for pair in pairs)
        return any(len(pair & a) == 1 and len(pair & b) == 1 for pair in every)

    def without(self, granted: set[Pair]) -> BlockConstraints:
        """Return the constraints without the forced pairs that are already in one kernel."""
        left = {edge: pairs - granted for edge, pairs in self.forced.items()}
        return BlockConstraints(self.forbidden, {edge: pairs for edge, pairs in left.items() if pairs})
