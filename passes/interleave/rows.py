"""Reshapes that merge a cut dim, such as a sequence, with dims before and behind it, or take them apart."""

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
    """Dims ``first`` to ``last`` of the small tensor, of ``shape``, are dim ``dim`` of the large one.

    The large one, which has fewer dims, is the call's operand, if ``takes``, or its result.
    """

    dim: int
    first: int
    shape: tuple[int, ...]
    takes: bool

    @property
    def at(self) -> int:
        """Where the dims begin in the call's operand."""
        return self.dim if self.takes else self.first

    def merged(self, parts: Mapping[int, Parts]) -> Parts | None:
        """How the large dim is stored if one of the small ones, by its number, is stored as ``parts`` say.

        [b, c, h] of which c is cut: as b parts of c h elements. What stands behind an element stays with it.
        """
        places = (p for p in reversed(range(len(self.shape))) if self.first + p in parts)
        return next((m for p in places if (m := self._merged(p, parts[self.first + p])) is not None), None)

    def apart(self, parts: Parts | None) -> tuple[int, Parts] | None:
        """The other way round: which of the small dims is cut, counted from ``first``, and how it is stored.

        None where no small dim is the one of which the large dim's parts consist, or a block would end
        within an element of it.
        """
        places = reversed(range(len(self.shape))) if parts is not None else ()
        return next(((p, a) for p in places if (a := self._apart(p, parts)) is not None), None)

    def _merged(self, place: int, parts: Parts) -> Parts | None:
        if parts.size != self.shape[place] or (place and len(parts.sizes) > 1):
            return None
        sizes = tuple(size * self._minor(place) for size in parts.sizes) * self._major(place)
        return Parts(parts.ways, sizes, parts.folded)

    def _apart(self, place: int, parts: Parts | None) -> Parts | None:
        if parts is None or parts.size != prod(self.shape) or self.shape[place] == 1:
            return None
        if place and parts.sizes != (self.shape[place] * self._minor(place),) * self._major(place):
            return None
        blocks = self._minor(place) * parts.ways * (2 if parts.folded else 1)
        if any(size % blocks for size in parts.sizes):
            return None
        own = parts.sizes[: len(parts.sizes) // self._major(place)]
        return Parts(parts.ways, tuple(size // self._minor(place) for size in own), parts.folded)

    def _major(self, place: int) -> int:
        return prod(self.shape[:place])

    def _minor(self, place: int) -> int:
        return prod(self.shape[place + 1 :])


@dataclass(frozen=True)
class Rows:
    """A move of dims of which the one at ``place``, behind the first, is cut in ``ways``.

    [b, c, h] is merged as [b, w, c / w h], [w, b, c / w h], [w b c / w h]: a block of all for each way.
    """

    move: RowsMove
    place: int
    ways: int

    @property
    def blocks(self) -> tuple[int, int]:
        """How many of all that stands before the cut dim, and the elements of a block of one."""
        shape = self.move.shape
        return prod(shape[: self.place]), prod(shape[self.place :]) // self.ways


def read_rows(node: Node) -> list[RowsMove]:
    """The dims that a reshape merges or takes apart; none for other calls."""
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
