"""Unequal stages, as what they add to a step whose stages are taken as equally long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardc.passes.search.calls.stage_work import forward_work, unevenness
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.auto.space import Choice


@dataclass(frozen=True)
class Unevenness:
    """How evenly the work of a step can be cut into stages.

    ``work``: FLOP of each call of forward. ``seconds``: least time of a step's kernels on all devices.
    """

    work: Sequence[float]
    kernels_s: float

    @staticmethod
    def of(step: StepGraph, choice: Choice) -> Unevenness:
        """Return the unevenness of a step, from the graph of any ``choice``."""
        weights_s = step.floor_weights_s / choice.weights_waiting
        kernels_s = (step.floor_s - step.floor_weights_s) / choice.waiting + weights_s
        return Unevenness(forward_work(step.program, step.folded), kernels_s)

    def seconds(self, choice: Choice) -> float:
        """Return what a choice takes longer, at least, because its stages cannot be equally long.

        The slowest stage computes all micro-batches. If it is the first one, it waits less than in a pipeline
        of equal stages: it computes forwards while the others compute their first micro-batch. A call runs in
        one stage, and so does its backward. Several stages of a rank even each other out. Stages on several
        kinds of device are not counted: passes over memory may even them out. Neither are stages that are no
        chain: the slowest one may be beside a longer path.
        """
        is_even = choice.form.per_rank > 1 or choice.speeds or choice.form.path < 1
        if choice.stages == 1 or is_even:
            return 0.0
        longer = max(0.0, unevenness(self.work, choice.stages) - 1)
        return self.kernels_s * longer * max(0.0, 1 - (choice.stages + 1) / choice.micro_batches)
