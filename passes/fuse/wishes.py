"""Which ops a user wants in one kernel, or in two: edges by the names that ``explain`` prints.

An edge is ``A+B``. A name is an op's target (``aten.gelu``, or ``gelu``), its source line (``model.py:12``), both
(``gelu@model.py:12``), or its number in the program (``0.7``: block and call); it stands for every op that it fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardc.diagnostics.fusion import BadFusionEdge
from shardc.dialects.location import source_line

if TYPE_CHECKING:
    from shardc.passes.fuse.read import Step

Pair = frozenset[int]
"""The numbers of two calls of a block."""

_NUMBER = re.compile(r"\d+\.\d+")
_LINE = re.compile(r".+:\d+")
_TARGET = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True)
class OpName:
    """A name that a user gave: what it says of an op, in the three ways that it can."""

    target: str = ""
    line: str = ""
    number: str = ""

    def fits(self, number: str, target: str, line: str | None) -> bool:
        """Whether it is the name of the call ``number``."""
        if self.number:
            return number == self.number
        parts = target.split(".")
        targets = (target, parts[1], ".".join(parts[:2])) if len(parts) > 1 else (target,)
        return (not self.target or self.target in targets) and (
            not self.line or _is_line(line or "", self.line)
        )


def _is_line(line: str, wanted: str) -> bool:
    return line == wanted or line.endswith(f"/{wanted}")


@dataclass(frozen=True)
class Edge:
    """Two ops by name, as the user wrote them."""

    text: str
    first: OpName
    second: OpName


def read_edge(text: str) -> Edge:
    """``aten.add.Tensor+gelu@model.py:12`` as an edge. Raises BadFusionEdge."""
    names = [part.strip() for part in text.split("+")]
    if len(names) != 2:
        raise BadFusionEdge(edge=text, problem="it has to be two names with a + between them")
    return Edge(text, *(_read_name(name, text) for name in names))


def _read_name(name: str, edge: str) -> OpName:
    if _NUMBER.fullmatch(name):
        return OpName(number=name)
    target, _, line = name.partition("@")
    if not line and _LINE.fullmatch(target):
        return OpName(line=target)
    if not _TARGET.fullmatch(target) or (("@" in name) and not _LINE.fullmatch(line)):
        problem = f"{name!r} is no target (aten.gelu), line (model.py:12), target@line or number (0.7)"
        raise BadFusionEdge(edge=edge, problem=problem)
    return OpName(target, line)


@dataclass
class Wishes:
    """The edges that a user forbids and forces. ``unmatched`` are those that named no two ops of any block yet."""

    forbid: Sequence[Edge] = ()
    force: Sequence[Edge] = ()
    unmatched: set[str] = field(default_factory=set)

    @staticmethod
    def of(forbid: Iterable[str] = (), force: Iterable[str] = ()) -> Wishes:
        """Raises BadFusionEdge."""
        forbidden, forced = tuple(map(read_edge, forbid)), tuple(map(read_edge, force))
        both = {e.text for e in forbidden} & {e.text for e in forced}
        if both:
            raise BadFusionEdge(edge=min(both), problem="it is both forbidden and forced")
        return Wishes(forbidden, forced, {edge.text for edge in (*forbidden, *forced)})

    def __bool__(self) -> bool:
        return bool(self.forbid or self.force)

    def in_block(self, number: int, steps: Sequence[Step]) -> BlockWishes:
        """What the wishes say of one block."""
        if not self:
            return BlockWishes()
        named = [
            (s.number, f"{number}.{s.number}", s.target, source_line(s.op.location))
            for s in steps
            if not s.is_view
        ]
        forbidden: dict[Pair, str] = {}
        for edge, pair in self._pairs(self.forbid, named):
            forbidden[pair] = edge.text
        forced: dict[str, set[Pair]] = {}
        for edge, pair in self._pairs(self.force, named):
            forced.setdefault(edge.text, set()).add(pair)
        return BlockWishes(forbidden, forced)

    def _pairs(
        self, edges: Sequence[Edge], named: Sequence[tuple[int, str, str, str | None]]
    ) -> Iterator[tuple[Edge, Pair]]:
        for edge in edges:
            first, second = (
                [n for n, *rest in named if name.fits(*rest)] for name in (edge.first, edge.second)
            )
            for pair in {frozenset((a, b)) for a in first for b in second if a != b}:
                self.unmatched.discard(edge.text)
                yield edge, pair


@dataclass(frozen=True)
class BlockWishes:
    """The wishes for one block: forbidden pairs of calls with the edge that forbids them, and forced pairs by edge."""

    forbidden: dict[Pair, str] = field(default_factory=dict)
    forced: dict[str, set[Pair]] = field(default_factory=dict)

    def forbids(self, a: set[int], b: set[int]) -> str | None:
        """The edge because of which the calls ``a`` and ``b`` may not be one kernel."""
        if not self.forbidden:
            return None
        return next(
            (self.forbidden[p] for x in a for y in b if (p := frozenset((x, y))) in self.forbidden), None
        )

    def forces(self, a: set[int], b: set[int]) -> bool:
        """Whether some pair of the calls ``a`` and ``b`` is to be in one kernel."""
        return any(
            len(pair & a) == 1 and len(pair & b) == 1 for pairs in self.forced.values() for pair in pairs
        )

    def without(self, granted: set[Pair]) -> BlockWishes:
        """The wishes that are left where these pairs are in one kernel."""
        left = {edge: pairs - granted for edge, pairs in self.forced.items()}
        return BlockWishes(self.forbidden, {edge: pairs for edge, pairs in left.items() if pairs})
