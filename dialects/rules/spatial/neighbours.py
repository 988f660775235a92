"""Exchanges between neighbouring ranks: shifts, halos, and gradients of halos.

A halo is the part of the neighbouring blocks that a rank's windows read. Beyond the outer edges it holds
zeros, which no rank sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import torch

from shardc.dialects.dist.collectives.exchange import ZEROS
from shardc.dialects.rules.rule import Local


def shift(local: Local, value: Any, factor: str, by: int) -> Any:
    """Return ``value`` of the rank ``by`` places before this one over the factor, cyclically."""
    ways = local.ways(factor)
    if by % ways == 0:
        return value
    return local.exchange(value, factor, tuple((place - by) % ways for place in range(ways)))


def shift_in(local: Local, value: Any, factor: str, by: int) -> Any:
    """Return ``value`` of the rank ``by`` places before this one over the factor; zeros if there is none."""
    ways = local.ways(factor)
    if abs(by) >= ways:
        return local.emit("aten.zeros_like", value, None, None, None, None, None)
    sources = ((place - by) if 0 <= place - by < ways else ZEROS for place in range(ways))
    return local.exchange(value, factor, tuple(sources))


def part(local: Local, x: Any, dim: int, start: int, end: int) -> Any:
    """Return elements ``start`` to ``end`` of a dim."""
    return local.emit("aten.slice.Tensor", x, dim, start, end, 1)


def joined(local: Local, parts: list[Any], dim: int) -> Any:
    return parts[0] if len(parts) == 1 else local.emit("aten.cat", tuple(parts), dim)


def hops(reach: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (distance in blocks, number of elements) for each block of ``size`` that a reach covers."""
    for hop in range(1, -(-reach // size) + 1):
        yield hop, min(size, reach - (hop - 1) * size)


def rolled(local: Local, x: Any, dim: int, factor: str, by: int) -> Any:
    """Return this rank's block of the global tensor rolled by ``by`` along a dim of only the split factor."""
    size = local.size(factor)
    blocks, rest = divmod(by, size)
    own = shift(local, part(local, x, dim, 0, size - rest) if rest else x, factor, blocks)
    if not rest:
        return own
    return joined(local, [shift(local, part(local, x, dim, size - rest, size), factor, blocks + 1), own], dim)


@dataclass(frozen=True)
class Halo:
    """Reach of windows before and after blocks of ``size`` elements along a dim.

    ``ring``: the dim is cyclic, so the halo at an outer edge is the other end.
    """

    factor: str
    dim: int
    size: int
    before: int
    after: int
    ring: bool = False

    def extended(self, local: Local, x: Any, outside: float = 0.0) -> Any:
        """Return the block with its halo: ``before + size + after`` elements.

        ``outside`` is the number beyond the outer edges.
        """
        first = [(hop, self.size - n, self.size) for hop, n in hops(self.before, self.size)]
        last = [(-hop, 0, n) for hop, n in hops(self.after, self.size)]
        edges = [self._edge(local, x, *each) for each in (*reversed(first), *last)]
        if outside:
            sides = (by for by, *_ in (*reversed(first), *last))
            edges = [self._filled(local, e, by, outside) for e, by in zip(edges, sides, strict=True)]
        return joined(local, [*edges[: len(first)], x, *edges[len(first) :]], self.dim)

    def _filled(self, local: Local, edge: Any, by: int, outside: float) -> Any:
        """Replace ``edge``, which the rank ``by`` places before this one sent, by ``outside`` if there is
        none.
        """
        size, ways = local.size(self.factor), local.ways(self.factor)
        first = local.emit("aten.scalar_tensor", local.offset(self.factor), torch.int64, None, None, None)
        bound = ("aten.ge.Scalar", by * size) if by > 0 else ("aten.lt.Scalar", (ways + by) * size)
        inside = local.emit(bound[0], first, bound[1])
        return local.emit("aten.where.ScalarOther", inside, edge, outside)

    def _edge(self, local: Local, x: Any, by: int, start: int, end: int) -> Any:
        shifted = shift if self.ring else shift_in
        return shifted(local, part(local, x, self.dim, start, end), self.factor, by)

    def returned(self, local: Local, x: Any) -> Any:
        """Return the block of the extended ``x`` plus the neighbours' halos of it: the gradient of a halo."""
        if not self.before and not self.after:
            return x
        terms = [(0, self.size, part(local, x, self.dim, self.before, self.before + self.size))]
        for hop, n in hops(self.before, self.size):
            end = self.before - (hop - 1) * self.size
            terms.append((self.size - n, self.size, self._edge(local, x, -hop, end - n, end)))
        for hop, n in hops(self.after, self.size):
            start = self.before + hop * self.size
            terms.append((0, n, self._edge(local, x, hop, start, start + n)))
        return self._sum(local, terms) if len(terms) > 1 else terms[0][2]

    def _sum(self, local: Local, terms: list[tuple[int, int, Any]]) -> Any:
        """Return the sum of parts (start, end, elements) of the block; the first part is the whole block."""
        borders = sorted({border for start, end, _ in terms for border in (start, end)})
        pieces = []
        for low, high in pairwise(borders):
            here = [(s, e, x) for s, e, x in terms if s <= low and high <= e]
            cut = [
                x if (s, e) == (low, high) else part(local, x, self.dim, low - s, high - s)
                for s, e, x in here
            ]
            pieces.append(reduce(lambda a, b: local.emit("aten.add.Tensor", a, b, 1), cut))
        return joined(local, pieces, self.dim)


@dataclass(frozen=True)
class Windows:
    """The windows of one spatial dim: ``y`` windows of ``z`` of the ``x`` pixels.

    ``step`` is the stride, ``margin`` the padding and ``hole`` the dilation.
    """

    x: int
    y: int
    z: int
    step: int
    margin: int
    hole: int = 1

    @property
    def reach(self) -> int:
        """Distance from the first pixel of a window to its last."""
        return self.hole * (self.z - 1)

    @property
    def patch(self) -> bool:
        """True if windows neither overlap nor leave gaps."""
        dense = self.hole == 1 or self.z == 1
        return (self.step, self.margin) == (self.z, 0) and dense and self.x == self.y * self.z

    @property
    def aligned(self) -> bool:
        """True if equal blocks of pixels go with equal blocks of windows."""
        return self.x == self.y * self.step and self.margin <= self.reach and self.y > 1

    @property
    def after(self) -> int:
        """The number of pixels that a block's last window reads after the block; negative if it leaves pixels
        out.
        """
        return self.reach + 1 - self.step - self.margin

    def halo(self, factor: str, dim: int, count: int) -> Halo:
        """Return the halo that ``count`` windows need around their block of the ``x`` pixels."""
        return Halo(factor, dim, count * self.step, self.margin, max(self.after, 0))


def setting_at(values: Sequence[int], d: int) -> int:
    """Return a setting of spatial dim ``d``; a single value holds for all dims."""
    return values[d] if len(values) > 1 else values[0]
