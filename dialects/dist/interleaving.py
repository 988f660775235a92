"""``dist.interleaved``: storage order of a tensor of several parts, such that blocks split each part."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torch_mlir import ir

ATTRIBUTE = "dist.interleaved"


@dataclass(frozen=True)
class Parts:
    """Parts of a dim, with their ``sizes`` in elements, each split into ``ways`` equal blocks.

    The first blocks of all parts are stored first, then all second blocks, and so on. For queries, keys and
    values [3 x 768] split 2 ways, heads 0 to 5 of all three come first.

    ``folded``: each part is split into 2 * ``ways`` blocks and stored in pairs: the first block with the
    last, the second with the last but one, and so on. Under a causal mask all pairs have equal work.
    """

    ways: int
    sizes: tuple[int, ...]
    folded: bool = False

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def in_order(self) -> bool:
        """True if storage order is the logical order, as for a single part that is not folded."""
        return len(self.sizes) == 1 and not self.folded

    def between(self, start: int, end: int) -> Parts | None:
        """Return the parts between elements ``start`` and ``end``; None if these are no part boundaries."""
        ends = (0, *itertools.accumulate(self.sizes))
        if start not in ends or end not in ends or start >= end:
            return None
        return Parts(self.ways, self.sizes[ends.index(start) : ends.index(end)], self.folded)

    def runs(self) -> list[range]:
        """Return ranges of the dim's elements in storage order."""
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
