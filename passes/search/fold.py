"""Folding of equal layers, whose calls a search decides together."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.passes.fuse.reading.view import VIEWS
from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program

_SHORTEST = 8
"""Calls of a layer at least; what repeats more often, such as an optimizer's updates of equal weights, is
cheaper left alone than decided alike."""
_LEAST = 0.1
"""Of a phase's calls, those of a stretch of layers at least."""
STANDING = 4
"""Layers of a stretch that stand for more."""
More = tuple[tuple[str, int], ...]
"""Names that parameters of a stretch of equal layers begin with, and how many more such layers there are than
the program has."""


class NotFolded(Exception):
    """Raised if the layers that stand for more layers were not found among the calls of forward and
    backward.
    """


@dataclass(frozen=True)
class Folded:
    """For each call its colour, which corresponding calls of equal layers share, and its weight.

    The weight is the number of calls that it stands for.
    """

    colours: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Repetition:
    """A repeated sequence of calls, by positions in a phase."""

    first: int
    period: int
    length: int

    @property
    def places(self) -> range:
        return range(self.first, self.first + self.length)


def folded(program: Program, more: More = ()) -> Folded:
    """The equal layers of a step; ``more``: those of which :data:`STANDING` stand for more.

    Layers are the longest repetitions of calls, by their specifications, in each phase, recomputation as part
    of backward. Where one begins in the middle of a layer its ends are left alone. Raises NotFolded.
    """
    found: list[Hashable] = []
    weights: list[float] = []
    parameters = _parameters(program) if more else {}
    for phase, group in itertools.groupby(program.nodes, key=_part):
        nodes = list(group)
        base, seen = len(found), set[str]()
        found += [(phase, "alone", base + place) for place in range(len(nodes))]
        weights += [1.0] * len(nodes)
        for repeated in _repetitions(nodes, is_few=bool(more)):
            prefix = _prefix([nodes[place] for place in repeated.places], parameters, more)
            seen.add(prefix)
            weight = 1 + dict(more).get(prefix, 0) * repeated.period / repeated.length
            for place in repeated.places:
                found[base + place] = phase, repeated.first, (place - repeated.first) % repeated.period
                weights[base + place] = weight
        if phase in ("forward", "backward") and not {prefix for prefix, _ in more} <= seen:
            raise NotFolded(phase)
    numbers_of: dict[Hashable, int] = {}
    return Folded([numbers_of.setdefault(colour, len(numbers_of)) for colour in found], weights)


def _repetitions(nodes: Sequence[Node], is_few: bool) -> Iterator[Repetition]:
    """The longest one, and what is before and behind it. ``is_few``: of :data:`STANDING` layers each."""
    numbers: dict[Hashable, int] = {}
    keys = ((node.spec, phase_of(node.op)) for node in nodes)
    sequence = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    counts = (STANDING - 1, STANDING) if is_few else ()
    waiting = [(0, len(sequence))]
    while waiting:
        start, end = waiting.pop()
        first, period, length = longest_repetition(sequence[start:end], 1 if is_few else _SHORTEST, counts)
        if length < max(2, _LEAST * len(sequence)):
            continue
        yield Repetition(start + first, period, length)
        waiting += [(start, start + first), (start + first + length, end)]


def _parameters(program: Program) -> dict[int, str]:
    """Value -> the name of the parameter, or of the state of one, that it is or shows."""
    found: dict[int, str] = {}
    for position, value in enumerate(program.arguments):
        role, name = program.argument_key(position)
        if role in ("param", "opt_state"):
            found[value] = name
    for node in program.nodes:
        if node.spec.target in VIEWS and node.operands and node.operands[0] in found:
            found |= dict.fromkeys(node.results, found[node.operands[0]])
    return found


def _prefix(nodes: Sequence[Node], parameters: Mapping[int, str], more: More) -> str:
    """The stretch whose parameters most of the calls read; empty for none."""
    names = [parameters[value] for node in nodes for value in node.operands if value in parameters]
    votes = Counter(prefix for name in names for prefix, _ in more if name.startswith(f"{prefix}."))
    return votes.most_common(1)[0][0] if votes else ""


def _part(node: Node) -> str:
    """The phase of a call; what is computed again is part of the backward that it stands between."""
    phase = phase_of(node.op)
    return "backward" if phase == "recompute" else phase


def longest_repetition(
    sequence: Sequence[int] | np.ndarray, shortest: int = _SHORTEST, counts: Sequence[int] = ()
) -> tuple[int, int, int]:
    """Where the longest stretch that repeats itself begins, its period and its length; length 0 for none.

    Of equal stretches the one with the shortest period. ``shortest``: the least period. ``counts``: how often
    it may repeat; any number of times if none is given.
    """
    sequence = np.asarray(sequence)
    best = (0, 0, 1, 0)  # length, -period, period, first
    for period in range(shortest, len(sequence) // 2 + 1):
        same = np.concatenate([[0], (sequence[period:] == sequence[:-period]).astype(np.int8), [0]])
        edges = np.flatnonzero(np.diff(same))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            repeats = int(end - start) // period + 1
            if repeats > 1 and (not counts or repeats in counts):
                best = max(best, (period * repeats, -period, period, int(start)))
    length, _, period, first = best
    return first, period, length
