"""What local calls of neighbouring ranks trade: shifts, halos, and what is added back to a halo's owner.

A halo is the part of the neighbouring blocks that a rank's windows reach into. Beyond the outer edge it holds
zeros, which nobody sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from shardc.dialects.dist.collectives.exchange import ZEROS
from shardc.dialects.rules.rule import Local


def shift(local: Local, value: Any, factor: str, by: int) -> Any:
    """``value`` of the rank ``by`` places before this one over the factor, cyclically."""
    ways = local.ways(factor)
    if by % ways == 0:
        return value
    return local.exchange(value, factor, tuple((place - by) % ways for place in range(ways)))


def shift_in(local: Local, value: Any, factor: str, by: int) -> Any:
    """``value`` of the rank ``by`` places before this one over the factor; zeros where there is none."""
    ways = local.ways(factor)
    if abs(by) >= ways:
        return local.emit("aten.zeros_like", value, None, None, None, None, None)
    sources = ((place - by) if 0 <= place - by < ways else ZEROS for place in range(ways))
    return local.exchange(value, factor, tuple(sources))


def part(local: Local, x: Any, dim: int, start: int, end: int) -> Any:
    """Elements ``start`` to ``end`` of a dim."""
    return local.emit("aten.slice.Tensor", x, dim, start, end, 1)


def joined(local: Local, parts: list[Any], dim: int) -> Any:
    return parts[0] if len(parts) == 1 else local.emit("aten.cat", tuple(parts), dim)


def hops(reach: int, size: int) -> Iterator[tuple[int, int]]:
    """(how many blocks away, how many elements of it) for a reach beyond the edge of blocks of ``size``."""
    for hop in range(1, -(-reach // size) + 1):
        yield hop, min(size, reach - (hop - 1) * size)


def rolled(local: Local, x: Any, dim: int, factor: str, by: int) -> Any:
    """This rank's block of the whole tensor rolled by ``by`` along a dim that is the cut factor alone."""
    size = local.size(factor)
    blocks, rest = divmod(by, size)
    own = shift(local, part(local, x, dim, 0, size - rest) if rest else x, factor, blocks)
    if not rest:
        return own
    return joined(local, [shift(local, part(local, x, dim, size - rest, size), factor, blocks + 1), own], dim)


@dataclass(frozen=True)
class Halo:
    """How far windows reach beyond the edges of blocks of ``size`` elements along a dim."""

    factor: str
    dim: int
    size: int
    before: int
    after: int

    def extended(self, local: Local, x: Any) -> Any:
        """The block between its neighbours' edges: ``before + size + after`` elements."""
        first = [self._edge(local, x, hop, self.size - n, self.size) for hop, n in hops(self.before, self.size)]
        last = [self._edge(local, x, -hop, 0, n) for hop, n in hops(self.after, self.size)]
        return joined(local, [*reversed(first), x, *last], self.dim)

    def _edge(self, local: Local, x: Any, by: int, start: int, end: int) -> Any:
        return shift_in(local, part(local, x, self.dim, start, end), self.factor, by)

    def returned(self, local: Local, x: Any) -> Any:
        """The block of ``x``, which is extended, with what neighbours have of it added: a halo's gradient."""
        terms = [(0, self.size, part(local, x, self.dim, self.before, self.before + self.size))]
        for hop, n in hops(self.before, self.size):
            end = self.before - (hop - 1) * self.size
            terms.append((self.size - n, self.size, self._edge(local, x, -hop, end - n, end)))
        for hop, n in hops(self.after, self.size):
            start = self.before + hop * self.size
            terms.append((0, n, self._edge(local, x, hop, start, start + n)))
        return self._sum(local, terms) if len(terms) > 1 else terms[0][2]

    def _sum(self, local: Local, terms: list[tuple[int, int, Any]]) -> Any:
        """The sum of parts (start, end, elements) of the block, of which the first is all of it."""
        borders = sorted({border for start, end, _ in terms for border in (start, end)})
        pieces = []
        for low, high in pairwise(borders):
            here = [(s, e, x) for s, e, x in terms if s <= low and high <= e]
            cut = [x if (s, e) == (low, high) else part(local, x, self.dim, low - s, high - s) for s, e, x in here]
            pieces.append(reduce(lambda a, b: local.emit("aten.add.Tensor", a, b, 1), cut))
        return joined(local, pieces, self.dim)
