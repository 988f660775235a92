"""Reshapes that merge a sharded dim, such as a sequence, with dims around it, or split such a merged dim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from shardc.dialects.dist.interleaving import Parts
from shardc.dialects.rules.rule import Dims
from shardc.passes.manager.program import Node

RESHAPES = frozenset(("aten.view", "aten._unsafe_view", "aten.reshape", "aten.flatten.using_ints"))
RESHAPES |= {"aten._reshape_alias", "aten.unflatten.int"}


@dataclass(frozen=True)
class RowsMove:
    """Merge or split of dims by a reshape: dims from ``first`` on, of ``shape``, against the dim ``dim``.

    The tensor with the merged dim is the call's operand if ``takes``, else its result.
    """

    dim: int
    first: int
    shape: tuple[int, ...]
    takes: bool

    @property
    def at(self) -> int:
        """Return the first of the dims in the call's operand."""
        return self.dim if self.takes else self.first

    def merged(self, parts: Mapping[int, Parts]) -> Parts | None:
        """Return how the merged dim is stored if the separate dims are stored as ``parts``, by dim.

        If c of [b, c, h] is sharded, the merged dim is stored as b parts of c h elements. The elements of
        minor dims stay together.
        """
        places = (p for p in reversed(range(len(self.shape))) if self.first + p in parts)
        return next((m for p in places if (m := self._merged(p, parts[self.first + p])) is not None), None)

    def apart(self, parts: Parts | None) -> tuple[int, Parts] | None:
        """Return the separate dim that is sharded, counted from ``first``, and how it is stored.

        ``parts`` is how the merged dim is stored. Returns None if no separate dim matches these parts, or if
        a block would end within an element of that dim.
        """
        places = reversed(range(len(self.shape))) if parts is not None else ()
        return next(((p, a) for p in places if (a := self._apart(p, parts)) is not None), None)

    def _merged(self, place: int, parts: Parts) -> Parts | None:
        if parts.size != self.shape[place]:
            return None
        sizes = tuple(size * self._minor(place) for size in parts.sizes) * self._major(place)
        return Parts(parts.ways, sizes, parts.folded)

    def _apart(self, place: int, parts: Parts | None) -> Parts | None:
        if parts is None or parts.size != prod(self.shape) or self.shape[place] == 1:
            return None
        own = parts.sizes[: len(parts.sizes) // self._major(place)]
        if parts.sizes != own * self._major(place):
            return None
        blocks = self._minor(place) * parts.ways * (2 if parts.folded else 1)
        if any(size % blocks for size in parts.sizes):
            return None
        return Parts(parts.ways, tuple(size // self._minor(place) for size in own), parts.folded)

    def _major(self, place: int) -> int:
        return prod(self.shape[:place])

    def _minor(self, place: int) -> int:
        return prod(self.shape[place + 1 :])


@dataclass(frozen=True)
class Rows:
    """Move of dims of which a dim other than the first, at ``place``, is sharded in ``ways``.

    [b, c, h] is merged through [b, w, c / w h] and [w, b, c / w h] to [w b c / w h]: each of the w shards is
    one block.
    """

    move: RowsMove
    place: int
    ways: int

    @property
    def blocks(self) -> tuple[int, int]:
        """Return the number of elements before the sharded dim, and the size of a block of each."""
        shape = self.move.shape
        return prod(shape[: self.place]), prod(shape[self.place :]) // self.ways


def read_rows(node: Node) -> list[RowsMove]:
    """Return the dims that a reshape merges or splits; none for other calls."""
    if node.spec.target not in RESHAPES:
        return []
    (source,), (target,) = node.rule.operands, node.rule.results
    before, after = node.spec.tensors[0].shape, node.spec.result.shape
    moves = [*_merges(source, target, before, takes=False), *_merges(target, source, after, takes=True)]
    return sorted(moves, key=lambda move: move.at)


def _merges(small: Dims, large: Dims, shape: tuple[int, ...], takes: bool) -> list[RowsMove]:
    found = []
    for dim, factors in enumerate(large):
        places = [d for d, own in enumerate(small) if own and own[0] in factors]
        if len(factors) > 1 and tuple(f for d in places for f in small[d]) == factors and len(places) > 1:
            first, last = places[0], places[-1]
            found.append(RowsMove(dim, first, shape[first : last + 1], takes))
    return found
