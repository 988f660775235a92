"""Activations that another rank keeps for a stage between forward and backward (BPipe; Kim et al., 2023).

Under 1F1B the first ranks hold the activations of many micro-batches, and the last ranks of few. A rank that
holds many, the evictor, sends some to another one, the acceptor, and loads them back before their backward.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shardc.diagnostics.passes.pipeline import BadEviction
from shardc.dialects.pipe.action import Action

LEAST_APART = 3
"""Least distance of a forward and its backward in a rank's order: the action after the forward hides the
sending, the one before the backward the loading.
"""
_FORM = re.compile(r"(\d+)EVICT(\d+) to (\d+), (\d+) until (\d+)")


class Eviction(NamedTuple):
    """An eviction. ``0EVICT3 to 7, 2 until 9``: rank 7 keeps micro-batch 3 of stage 0 until its backward.

    The evictor sends directly after the forward, and has freed what it sent when the action after that ends.
    It loads one action before the backward. ``rank``, the acceptor, receives when it has run ``accepted`` of
    its own actions, and sends back when it has run ``returned``.
    """

    stage: int
    micro_batch: int
    rank: int
    accepted: int
    returned: int

    def __str__(self) -> str:
        return f"{self.stage}EVICT{self.micro_batch} to {self.rank}, {self.accepted} until {self.returned}"

    @staticmethod
    def parse(text: str) -> Eviction:
        """Parse the text of an eviction. Raises BadEviction."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise BadEviction(eviction=text, problem="is not written as one")
        return Eviction(*map(int, match.groups()))


@dataclass(frozen=True)
class Hold:
    """Activations of a stage's micro-batch on a rank, from the rank's action number ``first`` to ``last``.

    ``is_guest``: whether the rank keeps them for another one.
    """

    rank: int
    stage: int
    micro_batch: int
    first: int
    last: int
    is_guest: bool = False


def places(orders: tuple[tuple[Action, ...], ...]) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Map (stage, micro-batch) to the numbers, in their rank's order, of its forward, of the first part of
    its backward, and of the last. A missing backward counts as the end of the order.
    """
    found: dict[tuple[int, int], tuple[int, int, int]] = {}
    for order in orders:
        for number, (stage, kind, micro_batch) in enumerate(order):
            if kind == "F":
                found[stage, micro_batch] = number, len(order), len(order)
            elif (stage, micro_batch) in found:
                forward, first, _ = found[stage, micro_batch]
                found[stage, micro_batch] = forward, min(first, number), number
    return found


def evicted_holds(eviction: Eviction, rank: int, place: tuple[int, int, int]) -> Iterator[Hold]:
    """Yield where evicted activations are held. ``rank``: the evictor; ``place``: its actions' numbers."""
    forward, backward, last = place
    stage, micro_batch = eviction.stage, eviction.micro_batch
    yield Hold(rank, stage, micro_batch, forward, forward + 1)
    yield Hold(eviction.rank, stage, micro_batch, eviction.accepted, eviction.returned, is_guest=True)
    yield Hold(rank, stage, micro_batch, backward - 1, last)
