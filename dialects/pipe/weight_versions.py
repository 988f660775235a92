"""Versions of weights that the forwards of an asynchronous pipeline read, and how many a rank keeps.

Version v of a stage's weights is their value after the stage's first v updates. A micro-batch's backward
reads the version of its forward, so the stage keeps that version until then (weight stashing; Narayanan et
al., PipeDream, SOSP 2019; PipeDream-2BW, ICML 2021).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule


@dataclass(frozen=True)
class ForwardWeights:
    """A forward ``action`` that reads ``version`` of its stage's weights, after ``made`` updates.

    ``held`` is the number of versions that the stage keeps at that time: the newest, and those of
    micro-batches in flight.
    """

    action: Action
    version: int
    made: int
    held: int


def forward_weights(schedule: Schedule) -> Iterator[ForwardWeights]:
    """Yield the version for each forward, rank by rank in order."""
    for order in schedule.orders:
        stages = {action.stage: _Stage(schedule) for action in order}
        for action in order:
            stage = stages[action.stage]
            if action.kind == "F":
                version = stage.forward(action.micro_batch)
                yield ForwardWeights(action, version, stage.made, len({*stage.used.values(), stage.made}))
            elif action.kind in ("B", "W"):
                stage.gradient(action.micro_batch)


def group_ends(schedule: Schedule) -> dict[Action, range]:
    """Map each action after which a stage runs its optimizer to the groups of micro-batches complete by
    then.
    """
    found: dict[Action, range] = {}
    for order in schedule.orders:
        stages = {action.stage: _Stage(schedule) for action in order}
        for action in order:
            stage = stages[action.stage]
            made = stage.made
            if action.kind in ("B", "W"):
                stage.gradient(action.micro_batch)
            if stage.made > made:
                found[action] = range(made, stage.made)
    return found


def versions_held(schedule: Schedule) -> dict[int, int]:
    """Map each stage to the most versions of its weights that it holds at a time; 1 without ``updates``."""
    held: dict[int, int] = {}
    for use in forward_weights(schedule):
        held[use.action.stage] = max(use.held, held.get(use.action.stage, 1))
    return held


class _Stage:
    """State of a stage while its actions run. ``used``: micro-batch in flight -> version; ``made``:
    updates.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._updates = schedule.updates
        self._gradients: dict[int, int] = {}
        self.used: dict[int, int] = {}
        self.made = 0

    def forward(self, micro_batch: int) -> int:
        if self._updates is None:
            version = 0
        elif self._updates.delay is None:
            version = self.made
        else:
            version = max(0, micro_batch // self._updates.every - self._updates.delay)
        self.used[micro_batch] = version
        return version

    def gradient(self, micro_batch: int) -> None:
        self.used.pop(micro_batch, None)
        if self._updates is not None:
            group = micro_batch // self._updates.every
            self._gradients[group] = self._gradients.get(group, 0) + 1
            while self._gradients.get(self.made) == self._updates.every:
                self.made += 1
