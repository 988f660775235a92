"""Reshapes that merge a batch with a sequence, and the others that take them apart again."""

from __future__ import annotations

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
    def last(self) -> int:
        return self.first + len(self.shape) - 1

    @property
    def at(self) -> int:
        """Where the dims begin in the call's operand."""
        return self.dim if self.takes else self.first

    def merged(self, parts: Parts | None) -> Parts | None:
        """How the large dim is stored if the last of the small ones is cut in ``parts.ways``."""
        if parts is None or parts.sizes != self.shape[-1:]:
            return None
        return Parts(parts.ways, parts.sizes * prod(self.shape[:-1]), parts.folded)

    def apart(self, parts: Parts | None) -> Parts | None:
        """The other way round; None where the large dim's parts are not the sequences."""
        last = self.shape[-1:]
        if parts is None or parts.sizes != last * prod(self.shape[:-1]):
            return None
        return Parts(parts.ways, last, parts.folded)

    def with_minor(self, parts: Parts | None) -> Parts | None:
        """How the large dim is stored if the first of the small ones is stored as ``parts``: whatever stands
        behind an element stays with it, so that nothing moves.
        """
        if parts is None or parts.size != self.shape[0]:
            return None
        return Parts(parts.ways, tuple(size * self._minor for size in parts.sizes), parts.folded)

    def without_minor(self, parts: Parts | None) -> Parts | None:
        """The other way round; None where a block would end within an element of the first small dim."""
        if parts is None:
            return None
        blocks = self._minor * parts.ways * (2 if parts.folded else 1)
        if any(size % blocks for size in parts.sizes):
            return None
        return Parts(parts.ways, tuple(size // self._minor for size in parts.sizes), parts.folded)

    @property
    def _minor(self) -> int:
        return prod(self.shape[1:])


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
