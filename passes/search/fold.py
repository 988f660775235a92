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
"""Least number of calls of a layer. Shorter repetitions, such as an optimizer's updates of equal weights, are
cheaper to decide one by one."""
_LEAST = 0.1
"""Least fraction of a phase's calls that a sequence of equal layers must have."""
STANDING = 4
"""Number of layers in the program that stand for a longer sequence of equal layers."""
More = tuple[tuple[str, int], ...]
"""Prefix of the parameters' names of each sequence of equal layers, and how many layers the program omits."""


class NotFolded(Exception):
    """The layers that stand for omitted layers were not found in forward or backward."""


@dataclass(frozen=True)
class Folded:
    """Colour and weight of each call.

    Corresponding calls of equal layers have the same colour. The weight is the number of calls for which a
    call stands.
    """

    colours: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Repetition:
    """Repeated sequence of calls, by positions in a phase."""

    first: int
    period: int
    length: int

    @property
    def places(self) -> range:
        return range(self.first, self.first + self.length)


def folded(program: Program, more: More = ()) -> Folded:
    """Return the equal layers of a step.

    Layers are the longest repetitions of calls with equal specifications in each phase. Recomputation is part
    of backward. If a repetition begins within a layer, the rest of the first and last layers is not folded.

    Args:
        more: Sequences of layers of which the program has only :data:`STANDING`.

    Raises:
        NotFolded: A sequence in ``more`` was not found.
    """
    found: list[Hashable] = []
    weights: list[float] = []
    parameters = _parameters(program) if more else {}
    for phase, group in itertools.groupby(program.nodes, key=part_of):
        nodes = list(group)
        base, seen = len(found), set[str]()
        found += [(phase, "alone", base + place) for place in range(len(nodes))]
        weights += [1.0] * len(nodes)
        for repeated in repetitions([call_key(node) for node in nodes], is_few=bool(more)):
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


def call_key(node: Node) -> Hashable:
    """Return what corresponding calls of equal layers share: operator, arguments, types, and phase."""
    return node.spec, phase_of(node.op)


def repetitions(keys: Sequence[Hashable], is_few: bool) -> Iterator[Repetition]:
    """Yield the longest repetition in a sequence, then those before and after it, recursively.

    ``is_few``: True if repetitions must have :data:`STANDING` layers, or one less.
    """
    numbers: dict[Hashable, int] = {}
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
    """Return, for each value that is or views a parameter or its optimizer state, the parameter's name."""
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
    """Return the prefix in ``more`` whose parameters the calls read most often; empty if they read none."""
    names = [parameters[value] for node in nodes for value in node.operands if value in parameters]
    votes = Counter(prefix for name in names for prefix, _ in more if name.startswith(f"{prefix}."))
    return votes.most_common(1)[0][0] if votes else ""


def part_of(node: Node) -> str:
    """Return the phase of a call; recomputed calls are part of backward."""
    phase = phase_of(node.op)
    return "backward" if phase == "recompute" else phase


def longest_repetition(
    sequence: Sequence[int] | np.ndarray, shortest: int = _SHORTEST, counts: Sequence[int] = ()
) -> tuple[int, int, int]:
    """Return the start, the period and the length of the longest repetition; length 0 if there is none.

    Among repetitions of equal length, the one with the shortest period is returned.

    Args:
        sequence: Numbers of which equal ones mean equal calls.
        shortest: Least period.
        counts: Allowed numbers of periods; default: any number.
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
