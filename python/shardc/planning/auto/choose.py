"""The cheapest choices of mesh, stages, micro-batches and recomputation, by branch and bound.

No choice takes less than its kernels alone: those of the step, cut in the fastest ways, times the waiting of
its pipeline. Choices are looked at in this order, until these kernels take longer than the best choice found.
What computes again or has more micro-batches is looked at only where memory made the same choice without it
dearer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from shardc.passes.search.choose import Found, Unfit
from shardc.planning.auto.space import RECOMPUTED, Choice

Find = Callable[[Choice], Found | Unfit]


@dataclass(frozen=True)
class Estimate:
    """What a search inside a choice found, in seconds a step and bytes on a device."""

    choice: Choice
    seconds: float
    bound_s: float
    held_bytes: float


@dataclass
class Around:
    """What was searched: estimates, the cheapest first; choices without a plan that fits; and the least that
    any choice takes, looked at or not.
    """

    found: list[Estimate] = field(default_factory=list)
    unfit: list[Choice] = field(default_factory=list)
    passed_over: int = 0
    bound_s: float = 0.0

    @property
    def gap(self) -> float:
        """How much cheaper, of its own cost, another choice could be than the best at most."""
        return max(0.0, 1 - self.bound_s / self.found[0].seconds) if self.found else 1.0


def search_around(choices: Iterable[Choice], find: Find) -> Around:
    """Look at choices, the one with the least waiting first."""
    made, tight = Around(), dict[tuple[int, int, str], bool]()
    best_s, bounds, floor_s = inf, [inf], 0.0
    order = sorted(choices, key=lambda c: (c.waiting, c.micro_batches, RECOMPUTED.index(_policy(c))))
    for choice in order:
        if floor_s * choice.waiting >= best_s:
            made.passed_over += 1
            bounds.append(floor_s * choice.waiting)
            continue
        if not _is_needed(choice, tight):
            made.passed_over += 1
            continue
        found = find(choice)
        floor_s = (
            floor_s or found.floor_s / choice.waiting
        )  # the first cuts the calls that others do, or fewer
        key = choice.stages, choice.micro_batches, _policy(choice)
        if isinstance(found, Unfit):
            tight[key] = True
            made.unfit.append(choice)
            continue
        tight[key] = found.solution.is_tight
        seconds = found.solution.seconds
        made.found.append(Estimate(choice, seconds, found.solution.bound_s, found.held_bytes))
        bounds.append(found.solution.bound_s)
        best_s = min(best_s, seconds)
    made.found.sort(key=lambda estimate: estimate.seconds)
    made.bound_s = min(min(bounds), best_s)
    return made


def _policy(choice: Choice) -> str:
    return choice.recompute if isinstance(choice.recompute, str) else "full"


def _is_needed(choice: Choice, tight: dict[tuple[int, int, str], bool]) -> bool:
    """Whether what keeps more, or has fewer micro-batches without stages, was bound by memory."""
    at = RECOMPUTED.index(_policy(choice))
    key = choice.stages, choice.micro_batches
    keeps_more = [tight[(*key, policy)] for policy in RECOMPUTED[:at] if (*key, policy) in tight]
    if keeps_more and not all(keeps_more):
        return False
    fewer = [t for (stages, count, _), t in tight.items() if stages == choice.stages == 1 and count < key[1]]
    return all(fewer)
