"""What the search for stages of a chain asks: times and devices of a stage, and how they add up to a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Stage:
    """Layers ``start`` to ``end - 1`` on devices of one kind.

    ``place``: number of the stage, from 0. ``before``, ``kind``, ``after``: kinds of devices of the stage
    before, of this one and of the stage after; -1 if there is no such stage.
    """

    place: int
    start: int
    end: int
    before: int
    kind: int
    after: int


class StageCosts(Protocol):
    """Costs of the stages of a chain of ``layers``, for one number of stages.

    ``kinds``: for each kind of devices, how many of each pool a stage needs. ``pools``: how many there are.
    """

    @property
    def layers(self) -> int: ...

    @property
    def kinds(self) -> Sequence[tuple[int, ...]]: ...

    @property
    def pools(self) -> tuple[int, ...]: ...

    def fits(self, place: int, start: int, end: int, kind: int) -> bool:
        """Return whether a stage has enough memory."""
        ...

    def least_s(self, start: int, end: int, kind: int) -> float:
        """Return a lower bound on the seconds that a stage is busy with a micro-batch, wherever it is.

        It must be additive: that of two adjacent intervals is the sum of theirs.
        """
        ...

    def busy_s(self, stage: Stage) -> float:
        """Return the seconds that a stage is busy with a micro-batch, messages included."""
        ...

    def ends_s(self, start: int, end: int, kind: int) -> tuple[float, ...]:
        """Return the seconds of each phase after the last micro-batch, which all stages enter together."""
        ...


@dataclass(frozen=True)
class ChainCut:
    """Stages of a chain, and the seconds of a step.

    ``ends``: for each stage, the layer after its last one. ``kinds``: for each stage, its kind of devices.
    """

    seconds: float
    ends: tuple[int, ...]
    kinds: tuple[int, ...]


def step_s(costs: StageCosts, micro_batches: int, ends: Sequence[int], kinds: Sequence[int]) -> float:
    """Return the seconds of a step under 1F1B with stages that take unequally long.

    The slowest stage works on all micro-batches but one; one micro-batch crosses all stages (Narayanan et
    al., SC21, section 2.2.1, for stages that are equal). The phases after that wait for the slowest stage.
    """
    busy, phases = list[float](), list[tuple[float, ...]]()
    for place, end in enumerate(ends):
        start = ends[place - 1] if place else 0
        before = kinds[place - 1] if place else -1
        after = kinds[place + 1] if place + 1 < len(kinds) else -1
        busy.append(costs.busy_s(Stage(place, start, end, before, kinds[place], after)))
        phases.append(costs.ends_s(start, end, kinds[place]))
    ending = sum(max(phase) for phase in zip(*phases, strict=True))
    return (micro_batches - 1) * max(busy) + sum(busy) + ending
