"""Cuts of a forward with towers, so that stages of different towers are beside each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from shardc.dialects.pipe.stage_graph import StageGraph
from shardc.passes.pipeline.cuts.balance import Forward, stage_of_places
from shardc.passes.pipeline.cuts.towers import Towers, stage_edges
from shardc.passes.pipeline.stages.step_program import StepProgram


@dataclass(frozen=True)
class TowerCuts:
    """Cuts of ``forward`` for stages beside each other, in a schedule of ``micro_batches``."""

    forward: Forward
    stages: int
    micro_batches: int

    @classmethod
    def of(cls, program: StepProgram, forward: Forward, stages: int, micro_batches: int) -> TowerCuts:
        """Return the cuts of a step's forward, with its ops in tower order if towers mix."""
        towers = Towers(forward.sources, forward.work, stages)
        if towers.are_mixed:
            speeds = forward.speeds
            forward = Forward(
                [forward.ops[number] for number in towers.order()], program.roots, program.weights
            )
            forward.speeds = speeds
        return cls(forward, stages, micro_batches)

    def beside(self, cuts: Sequence[int], options: Sequence[Sequence[int]]) -> list[int]:
        """Return ``cuts``, moved within their ``options`` where a stage then needs fewer others.

        Only both ends of a stage together decide that, and only if its ops between all options of its ends
        read nothing of the stage before it.
        """
        found, count = list(cuts), len(self.forward.ops)
        for at, places in reversed(list(enumerate(options))):
            end = options[at + 1][0] if at + 1 < len(options) else count
            before = range(options[at - 1][-1] if at else 0, places[0])
            if any(n in before for op in range(places[-1], end) for n in self.forward.sources[op]):
                continue
            choices = [
                [found[n], *filter(self._is_end, options[n])] for n in (at, at + 1) if n < len(options)
            ]
            moved = [[*found[:at], *ends, *found[at + len(ends) :]] for ends in itertools.product(*choices)]
            # In evaluation a stage may be empty; none becomes so.
            full = [cuts for cuts in moved if all(a < b for a, b in itertools.pairwise([0, *cuts, count]))]
            found = min([found, *full], key=lambda cuts: sum(map(len, self._graph(cuts).before)))
        return found

    def _is_end(self, place: int) -> bool:
        """Return whether a tower may start or be joined at an op: it does not just read the one before it."""
        return place < len(self.forward.ops) and self.forward.sources[place] != [place - 1]

    def balanced(self) -> list[int]:
        """Return balanced cuts, of which some are at the ends of towers if a step takes less time then.

        Raises TooManyStages.
        """
        towers = Towers(self.forward.sources, self.forward.work, self.stages).found
        starts, joins = ({tower.start for tower in towers}, {tower.join for tower in towers})
        tried = [self.forward.balanced(self.stages)]
        for ends in (starts, starts | joins) if towers else ():
            tried += filter(None, [self.forward.balanced_at(self.stages, sorted(ends))])
        return min(tried, key=self.cost)

    def cost(self, cuts: Sequence[int]) -> float:
        """Return about what a step costs: its longest path of stages, and the slowest stage for all other
        micro-batches.
        """
        forward, graph = self.forward, self._graph(cuts)
        ends = list[float]()
        for stage, (start, end) in enumerate(itertools.pairwise([0, *cuts, len(forward.ops)])):
            begins = max((ends[other] for other in graph.reads[stage]), default=0.0)
            ends.append(begins + forward.stage_cost(stage, start, end))
        return max(ends) + (self.micro_batches - 1) * forward.slowest(cuts)

    def _graph(self, cuts: Sequence[int]) -> StageGraph:
        stage_of = stage_of_places(cuts, len(self.forward.ops))
        return StageGraph.of(len(cuts) + 1, stage_edges(self.forward.sources, stage_of))
