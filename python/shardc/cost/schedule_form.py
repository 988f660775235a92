"""Closed forms of pipeline schedules whose stages all take equally long: time, messages and memory.

Each is exact for what :func:`~shardc.cost.simulate.simulate` computes, with two exceptions, in which a step
takes longer: ``zb-h1`` if weight gradients take longer than a forward, and messages that take a large part of
a stage's time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import Annotated

from shardc.cost.origin import Assumed

_ROUNDING: Annotated[float, Assumed("parts of the work are sums of floats")] = 1e-9
"""Part of a stage by which the longest path may exceed a whole number of stages."""


@dataclass(frozen=True)
class ScheduleForm:
    """A schedule of ``per_rank`` stages on each rank.

    ``is_split``: weight gradients (W) run apart from the gradients of inputs (I), where a rank would wait.
    ``balances``: ranks that hold the activations of many micro-batches keep some on ranks that hold few.
    ``path``: the part of all work on the longest path through the stages, 1 for a chain. Of stages that are
    no chain all figures are lower bounds: the first micro-batch takes at least that part of the work.
    """

    name: str = "1f1b"
    per_rank: int = 1
    is_split: bool = False
    balances: bool = False
    path: float = field(default=1.0, compare=False)

    def longest(self, ranks: int) -> int:
        """Return the least number of stages on the longest path, if each rank has one of equal work."""
        return ranks if self.path == 1 else max(1, ceil(self.path * ranks - _ROUNDING))

    def slots(self, ranks: int, micro_batches: int) -> float:
        """Return the length of a step, in times that F and I (or F and B) of a micro-batch take on a rank.

        1F1B waits for ``ranks - 1`` micro-batches (PipeDream-flush; Narayanan et al., SC21, section 2.2.1),
        interleaved stages for as many in one of a rank's stages (section 2.2.2).
        """
        return micro_batches + (max(1, ranks * self.path) - 1) / self.per_rank

    def weight_slots(self, ranks: int, micro_batches: int) -> float:
        """Return what W adds to the length of a step, in times that W of a micro-batch takes on a rank.

        A step of ZB-H1 takes m (F + I + W) + (p - 1) (F + I - W) (Qi et al., Zero Bubble, ICLR 2024, table
        2): the last rank holds back one W less than it holds micro-batches, until it would wait.
        """
        if not self.is_split:
            return self.slots(ranks, micro_batches)
        return micro_batches - (min(ranks, micro_batches) - 1)

    def sends(self, ranks: int, micro_batches: int) -> int:
        """Return what messages add to the length of a step, in times that one message takes.

        A micro-batch crosses all stages and comes back. Under 1F1B a rank also waits in its steady state, for
        the gradient of the last activation that it sent: for each micro-batch but one in ``ranks``. Ranks
        that compute W, or another of their stages, do not wait, except while the pipeline of ZB-H1 fills.
        """
        ranks = self.longest(ranks)
        if ranks == 1:
            return 0
        if self.per_rank > 1:
            return 2 * (ranks * self.per_rank - 1)
        if self.is_split:
            steady = min(ranks - 1, max(0, micro_batches - 1 - (micro_batches <= ranks)))
        else:
            steady = micro_batches - 1 - ceil((micro_batches - 1) / ranks)
        return 2 * (ranks - 1 + steady)

    def in_flight(self, ranks: int, micro_batches: int) -> float:
        """Return the most micro-batches whose activations a rank holds: those of its first rank.

        With several stages on a rank, it is a mean over them (Narayanan et al., section 2.2.2). Ranks that
        balance activations hold at least as many (BPipe; Kim et al., 2023), and at most one stage's more.
        """
        if self.balances and self.per_rank == 1:
            return min(micro_batches, (ranks + 2) // 2) if self.path == 1 else 1
        if self.balances:
            return min(self.per_rank * micro_batches, self.per_rank * ranks + 1) / self.per_rank
        if self.per_rank == 1:
            return min(self.longest(ranks), micro_batches)
        return min(self.per_rank * micro_batches, (self.per_rank + 1) * ranks - 1) / self.per_rank

    def pending(self, ranks: int, micro_batches: int) -> int:
        """Return the most micro-batches on a rank between I and W: those of the last rank."""
        return min(self.longest(ranks), micro_batches) if self.is_split else 0

    def allows(self, ranks: int, micro_batches: int, layers: int) -> bool:
        """Return whether the numbers suit the schedule.

        Several stages a rank have whole layers each, and balanced ranks hold less than others.
        """
        most = replace(self, balances=False).in_flight(ranks, micro_batches)
        if self.balances and self.in_flight(ranks + ranks % 2, micro_batches) >= most:
            return False
        if self.per_rank == 1:
            return True
        return micro_batches % ranks == 0 and layers % (ranks * self.per_rank) == 0

    def is_no_slower(self, other: ScheduleForm, ranks: int, micro_batches: int) -> bool:
        """Return whether a step takes no longer than with another schedule, whatever F, I and W take.

        Evictions may take longer than the actions that hide them.
        """
        if self.balances and not other.balances:
            return False
        sizes = ranks, micro_batches
        is_short = self.slots(*sizes) <= other.slots(*sizes)
        return is_short and self.weight_slots(*sizes) <= other.weight_slots(*sizes)

    def __str__(self) -> str:
        stages = f", {self.per_rank} stages a rank" if self.per_rank > 1 else ""
        return f"{self.name}{stages}{', balanced activations' if self.balances else ''}"


ONE_F_ONE_B = ScheduleForm()
FORMS = (
    ONE_F_ONE_B,
    ScheduleForm("interleaved", 2),
    ScheduleForm("interleaved", 4),
    ScheduleForm("zb-h1", is_split=True),
    ScheduleForm(balances=True),
    ScheduleForm("interleaved", 2, balances=True),
    ScheduleForm("interleaved", 4, balances=True),
)
"""Schedules among which a search chooses."""


def form_of(schedule: object, per_rank: int = 0, *, balances: bool = False) -> ScheduleForm | None:
    """Return the closed form of a schedule's name, with so many stages a rank; 0 for the fewest.

    ``balances``: whether ranks keep activations for others. None if the schedule has none.
    """
    known = [form for form in FORMS if form.name == schedule]
    if not known:
        return None
    least = min(form.per_rank for form in known)
    return ScheduleForm(known[0].name, max(per_rank, least), known[0].is_split, balances)
