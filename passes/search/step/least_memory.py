"""Lower bound of the memory that plans of a step need, whatever the shardings of calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardc.cost.schedule_form import ScheduleForm
from shardc.passes.search.calls.stage_work import fullest
from shardc.passes.search.layout import WHOLE
from shardc.passes.search.step.on_mesh import StepOnMesh


@dataclass(frozen=True)
class LeastMemory:
    """Bytes of a step at points of time, if every value is shared among all devices.

    They are bytes of all devices together, and of all micro-batches. The last point is that at which
    gradients of weights are left.

    Args:
        kept: What each micro-batch keeps from forward to backward.
        inner: What one layer holds of each micro-batch within a phase; at the last point, what all hold.
        whole: State, sums over micro-batches, and all else.
        staged: What micro-batches of a pipeline keep from forward to backward, whichever a stage runs.
        of_stages: Which points a pipeline has.
        work: FLOP of each call of forward.
    """

    kept: np.ndarray
    inner: np.ndarray
    whole: np.ndarray
    staged: np.ndarray
    of_stages: np.ndarray
    work: Sequence[float]

    @staticmethod
    def of(step: StepOnMesh) -> LeastMemory:
        """Read a step on a mesh. Micro-batches count as such if the mesh has an axis for them."""
        lives, program = step.facts.lives, step.facts.program
        late = lives.late | {lives.owner(value) for value in lives.shared}
        given = np.append(lives.of_stages, True), step.facts.forward_work
        found = LeastMemory(*np.zeros((4, len(lives.points) + 1)), *given)
        for value, until in lives.until.items():
            if lives.is_large(value):
                first, marks = program.producer[value], _marks_in_time(step, value)
                is_summed, is_part = any(mark < WHOLE for mark in marks), any(mark > WHOLE for mark in marks)
                is_state = (first < 0 or is_summed) and until >= lives.update
                alive = ((-1 if is_summed else first) <= lives.points) & (lives.points <= until)
                alive = np.append(alive, is_state or value in late)
                size_bytes, weight = program.types[value].size_bytes, step.facts.weight(value)
                if not is_summed and lives.is_inner(value, first, marks):
                    found.inner[:] += size_bytes * alive
                    found.inner[-1] += (weight - 1) * size_bytes * alive[-1]
                elif is_part and lives.is_kept(value, first):
                    found.kept[:] += weight * size_bytes * alive
                    found.staged[:-1] += weight * size_bytes * (lives.points < lives.update)
                else:
                    found.whole[:] += weight * size_bytes * alive
        found.staged[-1] = found.kept[-1]
        return found

    def on(
        self, devices: int, stages: int, micro_batches: int, form: ScheduleForm, *, is_equal: bool = True
    ) -> float:
        """Return a lower bound of the bytes on the fullest of all ``devices``.

        ``is_equal``: whether they are of one kind. If not, the bound is for the mean of stages.
        """
        most = fullest(self.work, stages, form) if is_equal else 1.0
        kept = form.in_flight(stages, micro_batches) * (self.kept if stages == 1 else self.staged)
        inner = stages * self.inner
        inner[-1] = min(form.longest(stages), micro_batches) * self.inner[-1]
        held = most * (kept / micro_batches + self.whole) + inner / micro_batches
        counts = self.of_stages.copy() if stages > 1 else np.ones(len(held), dtype=bool)
        counts[-1] = form.is_split and micro_batches > 1
        return float(held[counts].max(initial=0.0)) / devices


def _marks_in_time(step: StepOnMesh, value: int) -> list[int]:
    """Return the marks of the axes of time in the layouts of a value, which are the same in all."""
    call = step.facts.program.producer[value]
    if call < 0:
        return []
    place = step.facts.program.nodes[call].results.index(value)
    return [step.made(call, place)[0][axis] for axis in step.axes.time]
