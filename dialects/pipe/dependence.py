"""Dependences between the actions of a schedule."""

from collections.abc import Iterator

from shardc.dialects.pipe.action import Action
from shardc.dialects.pipe.schedule import Schedule
from shardc.dialects.pipe.stage_graph import Reads, StageGraph


class Dependences:
    """The actions that each action of a schedule needs, independent of the ranks' orders.

    Forward needs the forward of the stages that it reads: of the previous one in a chain. Backward (B or I)
    needs the forward of its own stage and the backward of the stages that read it. A weight gradient (W)
    needs its own input gradient. For slices of a sequence, see :class:`Schedule`.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._slices = schedule.slices
        self._split = {(a.stage, a.micro_batch) for a in schedule.actions() if a.kind == "I"}
        graphs = [schedule.graph if schedule.reads else StageGraph.chain(len(r)) for r in schedule.routes]
        routes = list(zip(schedule.routes, graphs, strict=True))
        self._before = [_stages(route, graph.reads) for route, graph in routes]
        self._behind = [_stages(route, graph.readers) for route, graph in routes]

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
            for other in self._before[route].get(stage, ()):
                yield Action(other, "F", micro_batch)
            if micro_batch % self._slices:
                yield Action(stage, "F", micro_batch - 1)
        else:
            yield Action(stage, "F", micro_batch)
            for other in self._behind[route].get(stage, ()):
                yield self.backward(other, micro_batch)
            if (micro_batch + 1) % self._slices:
                yield self.backward(stage, micro_batch + 1)


def _stages(route: tuple[int, ...], places: Reads) -> dict[int, list[int]]:
    """Map each stage of a route to stages, given by their places in the route."""
    return {stage: [route[place] for place in found] for stage, found in zip(route, places, strict=True)}
