"""Check that a schedule's collectives gather parameters before use, and reduce complete gradients."""

from __future__ import annotations

from shardc.diagnostics.passes.pipeline import BadCollective
from shardc.dialects.pipe.action import Action, Collective, Step, Steps
from shardc.dialects.pipe.schedule import Schedule


def check_collectives(schedule: Schedule, steps: Steps) -> None:
    """Check the lists of the ranks of ``schedule``. Raises BadCollective, which names the step.

    A stage's collectives must be on its rank. Parameters must be gathered before the stage's first action
    and, after they were freed, before its next action. Gradients must be reduced once, after the last action
    that adds to them. All devices of a collective run the same list, so collectives cannot deadlock.
    """
    for rank, row in enumerate(steps):
        _RankReader(schedule, rank, row).read()


class _RankReader:
    """Reader of one rank's list, from its start."""

    def __init__(self, schedule: Schedule, rank: int, row: tuple[Step, ...]) -> None:
        self._schedule, self._rank, self._row = schedule, rank, row
        collectives = [step for step in row if isinstance(step, Collective)]
        self._gathers = {step.stage for step in collectives if step.kind != "REDUCE_GRAD"}
        self._there, self._reduced = set[int](), set[int]()

    def read(self) -> None:
        for step in self._row:
            if isinstance(step, Collective):
                self._read_collective(step)
            elif isinstance(step, Action):
                if step.stage in self._gathers and step.stage not in self._there:
                    self._refuse(step, f"reads parameters of stage {step.stage} that are not gathered")
                if step.stage in self._reduced and step.kind != "F":
                    self._refuse(step, f"adds to gradients that {step.stage}REDUCE_GRAD has reduced")

    def _read_collective(self, step: Collective) -> None:
        home = self._schedule.rank_of.get(step.stage)
        if home != self._rank:
            right = (
                "names a stage that the schedule does not have" if home is None else f"belongs on rank {home}"
            )
            self._refuse(step, right)
        if step.kind == "REDUCE_GRAD":
            if step.stage in self._reduced:
                self._refuse(step, "occurs twice")
            self._reduced.add(step.stage)
        elif step.kind == "UNSHARD":
            if step.stage in self._there:
                self._refuse(step, "gathers parameters that are gathered already")
            self._there.add(step.stage)
        else:
            if step.stage not in self._there:
                self._refuse(step, "frees parameters that are not gathered")
            self._there.remove(step.stage)

    def _refuse(self, step: Step, problem: str) -> None:
        raise BadCollective(schedule=self._schedule.name, step=step, rank=self._rank, problem=problem)
