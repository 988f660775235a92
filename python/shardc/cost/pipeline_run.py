"""What a measured run of a pipeline says of its stages: the times from which a schedule is made for the next run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from shardc.cost.pipeline import StageCost, Timeline
from shardc.diagnostics.pipeline import NotMeasured


def stage_costs(timeline: Timeline, sizes: Sequence[StageCost], transfer_s: float = 0.0) -> list[StageCost]:
    """``sizes``, one for each stage, with the times that the stage took: the median over its micro-batches.

    A backward that was run whole counts half as I and half as W, which is what a matrix product's two gradients take.
    ``transfer_s``: of sending, which the run's actions do not say. Raises NotMeasured if a stage lacks
    F or a backward.
    """
    taken: dict[tuple[int, str], list[float]] = {}
    for spans in timeline.spans:
        for span in spans:
            taken.setdefault((span.action.stage, span.action.kind), []).append(span.end_s - span.start_s)
    seconds = {key: median(times) for key, times in taken.items()}

    def time(stage: int, kind: str) -> float:
        if (stage, kind) in seconds:
            return seconds[stage, kind]
        if kind == "F" or (stage, "B") not in seconds:
            raise NotMeasured(stage=stage, kind=kind)
        return seconds[stage, "B"] / 2

    return [
        replace(
            size,
            forward_s=time(stage, "F"),
            input_gradient_s=time(stage, "I"),
            weight_gradient_s=time(stage, "W"),
            transfer_s=transfer_s,
        )
        for stage, size in enumerate(sizes)
    ]
