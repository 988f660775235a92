"""Dependences between the actions of a schedule."""

import itertools
from collections.abc import Iterator

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule


class Dependences:
    """The actions that each action of a schedule needs, independent of the ranks' orders.

    Forward needs the forward of the previous stage. Backward (B or I) needs the forward of its own stage and
    the backward of the next stage. A weight gradient (W) needs its own input gradient. For slices of a
    sequence, see :class:`Schedule`.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._slices = schedule.slices
        self._split = {(a.stage, a.micro_batch) for a in schedule.actions() if a.kind == "I"}
        self._before = [dict(zip(route[1:], route, strict=False)) for route in schedule.routes]
        self._behind = [dict(itertools.pairwise(route)) for route in schedule.routes]

    def backward(self, stage: int, micro_batch: int) -> Action:
        """Return the action that computes the gradient of the stage's input."""
        return Action(stage, "I" if (stage, micro_batch) in self._split else "B", micro_batch)

    def needs(self, action: Action) -> Iterator[Action]:
        """Yield the actions that must have ended before ``action`` starts."""
        stage, kind, micro_batch = action
        route = micro_batch % len(self._before)
        if kind == "W":
            yield Action(stage, "I", micro_batch)
        elif kind == "F":
            if stage in self._before[route]:
                yield Action(self._before[route][stage], "F", micro_batch)
            if micro_batch % self._slices:
                yield Action(stage, "F", micro_batch - 1)
        else:
            yield Action(stage, "F", micro_batch)
            if stage in self._behind[route]:
                yield self.backward(self._behind[route][stage], micro_batch)
            if (micro_batch + 1) % self._slices:
                yield self.backward(stage, micro_batch + 1)
