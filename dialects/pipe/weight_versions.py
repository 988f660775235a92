"""Which weights the forwards of an asynchronous pipeline use, and how many versions of them a rank keeps for
that.

Version v of a stage's weights is what its first v updates left. A micro-batch's backward uses the version of
its forward, which is therefore kept until then (weight stashing; Narayanan et al., PipeDream, SOSP 2019;
PipeDream-2BW, ICML 2021).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule


@dataclass(frozen=True)
class ForwardWeights:
    """Forward ``action`` needs ``version`` of its stage's weights, where ``made`` updates have been.
    ``held``: how many versions the stage keeps then, the newest and those of micro-batches in flight.
    """

    action: Action
    version: int
    made: int
    held: int


def forward_weights(schedule: Schedule) -> Iterator[ForwardWeights]:
    """For each forward, rank by rank in order."""
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
    """The actions behind which a stage runs its optimizer, with the groups of micro-batches then complete."""
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
    """Stage -> how many versions of its weights it holds at a time; 1 if the mathematics is unchanged."""
    held: dict[int, int] = {}
    for use in forward_weights(schedule):
        held[use.action.stage] = max(use.held, held.get(use.action.stage, 1))
    return held


class _Stage:
    """A stage as its actions pass. ``used``: micro-batch in flight -> version; ``made``: updates so far."""

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
