"""Calls of equal layers, which a search decides together."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from shardc.passes.manager.attributes import phase_of
from shardc.passes.manager.program import Node, Program

_SHORTEST = 8
"""Calls of a layer at least; what repeats more often, such as an optimizer's updates of equal weights, is
cheaper left alone than decided alike."""


@dataclass(frozen=True)
class Folded:
    """For each call its colour, which calls in the same place of equal layers share, and its weight: for how
    many calls it stands.
    """

    colours: list[int]
    weights: list[float]


def folded(program: Program, more: int = 0) -> Folded:
    """The equal layers of a step. ``more``: how many more there are than the program has.

    Layers are the longest repetition of calls, by their specifications, in each phase, recomputation as part
    of backward. Where it begins in the middle of a layer its ends are left alone.
    """
    found: list[Hashable] = []
    weights: list[float] = []
    for phase, group in itertools.groupby(program.nodes, key=_part):
        nodes = list(group)
        numbers: dict[Hashable, int] = {}
        sequence = np.array(
            [numbers.setdefault((node.spec, phase_of(node.op)), len(numbers)) for node in nodes]
        )
        first, period, length = longest_repetition(sequence)
        for place in range(len(nodes)):
            inside = first <= place < first + length
            found.append((phase, (place - first) % period) if inside else (phase, "alone", len(found)))
            weights.append(1 + more * period / length if inside else 1.0)
    numbers_of: dict[Hashable, int] = {}
    return Folded([numbers_of.setdefault(colour, len(numbers_of)) for colour in found], weights)


def _part(node: Node) -> str:
    """The phase of a call; what is computed again is part of the backward that it stands between."""
    phase = phase_of(node.op)
    return "backward" if phase == "recompute" else phase


def longest_repetition(sequence: Sequence[int] | np.ndarray) -> tuple[int, int, int]:
    """Where the longest stretch that repeats itself begins, its period and its length; length 0 for none.

    Of equal stretches the one with the shortest period.
    """
    sequence = np.asarray(sequence)
    best = (0, 0, 1, 0)  # length, -period, period, first
    for period in range(_SHORTEST, len(sequence) // 2 + 1):
        same = np.concatenate([[0], (sequence[period:] == sequence[:-period]).astype(np.int8), [0]])
        edges = np.flatnonzero(np.diff(same))
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            repeats = int(end - start) // period + 1
            if repeats > 1:
                best = max(best, (period * repeats, -period, period, int(start)))
    length, _, period, first = best
    return first, period, length
