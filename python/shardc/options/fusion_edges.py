"""Edges of fusion as text: pairs of ops, named as ``shardc explain --fusion`` prints them.

An edge is ``A+B``. A name is an op's target (``aten.gelu``, or ``gelu``), its source line (``model.py:12``),
both (``gelu@model.py:12``), or its number in the program (``0.7``: block and call). A name selects every op
that matches.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from shardc.diagnostics.passes.fusion import BadFusionEdge

_NUMBER = re.compile(r"\d+\.\d+")
_LINE = re.compile(r".+:\d+")
_TARGET = re.compile(r"\w+(\.\w+)*")


@dataclass(frozen=True)
class OpName:
    """User's name of an op, split into target, source line and number; absent parts are empty."""

    target: str = ""
    line: str = ""
    number: str = ""

    def fits(self, number: str, target: str, line: str | None) -> bool:
        """Return whether the name matches the call ``number``."""
        if self.number:
            return number == self.number
        parts = target.split(".")
        targets = ("", target, *parts[1:2], ".".join(parts[:2]))
        return self.target in targets and (not self.line or f"/{line or ''}".endswith(f"/{self.line}"))


@dataclass(frozen=True)
class Edge:
    """Two ops by name, as the user wrote them."""

    text: str
    first: OpName
    second: OpName


def read_edges(
    forbid: Iterable[str] = (), force: Iterable[str] = ()
) -> tuple[tuple[Edge, ...], tuple[Edge, ...]]:
    """Parse the forbidden and the forced edges. Raises BadFusionEdge."""
    forbidden, forced = tuple(map(read_edge, forbid)), tuple(map(read_edge, force))
    both = {e.text for e in forbidden} & {e.text for e in forced}
    if both:
        raise BadFusionEdge(edge=min(both), problem="it is both forbidden and forced")
    return forbidden, forced


def read_edge(text: str) -> Edge:
    """Parse an edge such as ``aten.add.Tensor+gelu@model.py:12``. Raises BadFusionEdge."""
    names = [part.strip() for part in text.split("+")]
    if len(names) != 2:
        raise BadFusionEdge(edge=text, problem="it must be two names with a + between them")
    first, second = (_read_name(name, text) for name in names)
    return Edge(text, first, second)


def _read_name(name: str, edge: str) -> OpName:
    if _NUMBER.fullmatch(name):
        return OpName(number=name)
    target, _, line = name.partition("@")
    if not line and _LINE.fullmatch(target):
        return OpName(line=target)
    if not _TARGET.fullmatch(target) or (("@" in name) and not _LINE.fullmatch(line)):
        problem = f"{name!r} is not a target (aten.gelu), line (model.py:12), target@line or number (0.7)"
        raise BadFusionEdge(edge=edge, problem=problem)
    return OpName(target, line)
