"""``dist.interleaved``: how a tensor of several parts beside one another is stored, so that each is cut."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torch_mlir import ir

ATTRIBUTE = "dist.interleaved"


@dataclass(frozen=True)
class Parts:
    """Parts of ``sizes``, one behind the other, each in ``ways`` equal blocks: stored are the first blocks of
    all parts, then all second blocks, and so on. Queries, keys and values of [3 x 768] in 2 ways: heads 0 to
    5 of all three come first.

    ``folded``: of equal parts in 2 ``ways`` blocks each, of which the first and the last come first, then the
    second and the last but one: under a causal mask each pair has as much work as any other.
    """

    ways: int
    sizes: tuple[int, ...]
    folded: bool = False

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def in_order(self) -> bool:
        """Whether elements are stored as they should be: one part is."""
        return len(self.sizes) == 1 and not self.folded

    def between(self, start: int, end: int) -> Parts | None:
        """The parts from element ``start`` to ``end`` of the dim; None where these are no parts' ends."""
        ends = (0, *itertools.accumulate(self.sizes))
        if start not in ends or end not in ends or start >= end:
            return None
        return Parts(self.ways, self.sizes[ends.index(start) : ends.index(end)])

    def runs(self) -> list[range]:
        """The elements of the dim in the order in which they are stored."""
        starts = [0, *itertools.accumulate(self.sizes)]
        count = self.ways * (2 if self.folded else 1)
        blocks = [(start, size // count) for start, size in zip(starts, self.sizes, strict=False)]
        places = [(w, count - 1 - w) if self.folded else (w,) for w in range(self.ways)]
        return [range(a + b * n, a + (b + 1) * n) for pair in places for a, n in blocks for b in pair]


@dataclass(frozen=True)
class Interleaving:
    """The dim of a tensor that is stored as :class:`Parts`."""

    dim: int
    parts: Parts

    def write(self, context: ir.Context) -> ir.Attribute:
        return ir.DenseI64ArrayAttr.get([self.dim, self.parts.ways, *self.parts.sizes], context)

    @staticmethod
    def read(attribute: ir.Attribute) -> Interleaving:
        dim, ways, *sizes = ir.DenseI64ArrayAttr(attribute)
        return Interleaving(dim, Parts(ways, tuple(sizes)))
