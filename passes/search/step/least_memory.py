"""Lower bound of the memory that plans of a step need, whatever the shardings of calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardc.cost.schedule_form import ScheduleForm
from shardc.passes.search.layout import WHOLE
from shardc.passes.search.step.on_mesh import StepOnMesh


@dataclass(frozen=True)
class LeastMemory:
    """Bytes of a step at points of time, if every value is shared among all devices.

    They are bytes of all devices together, and of all micro-batches. The last point is that at which
    gradients of weights are left.

    Args:
        kept: What each micro-batch keeps from forward to backward.
        inner: Other values of micro-batches.
        whole: State, sums over micro-batches, and all else.
    """

    kept: np.ndarray
    inner: np.ndarray
    whole: np.ndarray

    @staticmethod
    def of(step: StepOnMesh) -> LeastMemory:
        """Read a step on a mesh. Micro-batches count as such if the mesh has an axis for them."""
        lives, program = step.facts.lives, step.facts.program
        found = LeastMemory(*np.zeros((3, len(lives.points) + 1)))
        for value, until in lives.until.items():
            if lives.is_large(value):
                first, marks = program.producer[value], _marks_in_time(step, value)
                is_summed, is_inner = any(mark < WHOLE for mark in marks), any(mark > WHOLE for mark in marks)
                is_state = (first < 0 or is_summed) and until >= lives.update
                alive = ((-1 if is_summed else first) <= lives.points) & (lives.points <= until)
                alive = np.append(alive, is_state or value in lives.late)
                inner = found.kept if lives.is_kept(value) else found.inner
                held = inner if is_inner else found.whole
                held += step.facts.weight(value) * program.types[value].size_bytes * alive
        return found

    def on(self, devices: int, stages: int, micro_batches: int, form: ScheduleForm) -> float:
        """Return a lower bound of the bytes on the fullest of all ``devices``."""
        kept = form.in_flight(stages, micro_batches) / micro_batches
        inner = min(form.longest(stages), micro_batches) / micro_batches
        held = kept * self.kept + inner * self.inner + self.whole
        is_left = form.is_split and micro_batches > 1
        return float((held if is_left else held[:-1]).max(initial=0.0)) / devices


def _marks_in_time(step: StepOnMesh, value: int) -> list[int]:
    """Return the marks of the axes of time in the layouts of a value, which are the same in all."""
    call = step.facts.program.producer[value]
    if call < 0:
        return []
    place = step.facts.program.nodes[call].results.index(value)
    return [step.made(call, place)[0][axis] for axis in step.axes.time]
