"""Activations that ranks keep on other ranks, as what their transfers add to a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.pipeline import StageCost
from shardc.cost.schedule_form import ScheduleForm
from shardc.cost.simulate import simulate
from shardc.cost.step.on_cluster import costs_on
from shardc.dialects.pipe.schedule import Schedule
from shardc.passes.pipeline.schedules import by_name
from shardc.passes.pipeline.schedules.balance_activations import balance_activations
from shardc.passes.search.choose import Found, Kept, Unfit, least_kept
from shardc.passes.search.clock import Clock
from shardc.planning.candidates import PIPE, Candidate
from shardc.planning.pricer import Pricer

_RANKS = 32
"""Ranks up to which a pipeline is simulated. Of more, a part is, with as many micro-batches per rank."""
_EVEN = 0.9
"""Part of the mean over ranks that those which evict are taken to keep at least, for a bound."""
_ROUNDING = 1e-9
"""Part of a step below which waiting is due to sums of floats."""
_STEPS = 5
"""Bisections of the seconds that a plan without its evictions must beat."""

Evicting = Callable[[Candidate, Found | Unfit], tuple[float, float]]
"""Seconds that evictions add to the plan found for a candidate, and to any plan of it."""


@dataclass(frozen=True)
class Evictions:
    """Evictions of activations on a cluster, if stages take and keep equally much."""

    cluster: Cluster

    def seconds(self, candidate: Candidate, found: Found | Unfit) -> tuple[float, float]:
        """Return what evictions add to the plan that was found, and to any plan of a candidate."""
        kept = found.kept
        if kept is None or not _evicts(candidate):
            return 0.0, 0.0
        if isinstance(found, Unfit):
            return 0.0, self._least_s(candidate, kept, found.bound_s)
        solution = found.solution
        added_s = self._added_s(candidate, kept, solution.seconds, kept.size_bytes)
        return added_s, self._least_s(candidate, kept, solution.bound_s)

    def search(
        self, pricer: Pricer, candidate: Candidate, cutoff_s: float, clock: Clock | None = None
    ) -> Found | Unfit:
        """Search the best plan of a candidate. It ends if none can take less than ``cutoff_s``."""
        if _evicts(candidate):
            cutoff_s = self.without(candidate, least_kept(pricer.graph(candidate)), cutoff_s)
        return pricer.found(candidate, cutoff_s, clock)

    def without(self, candidate: Candidate, kept: Kept, cutoff_s: float) -> float:
        """Return the seconds that a plan must beat without evictions to take less than ``cutoff_s`` with
        them.
        """
        if not _evicts(candidate) or not self._least_s(candidate, kept, cutoff_s):
            return cutoff_s
        least, most = 0.0, cutoff_s
        for _ in range(_STEPS):
            middle = (least + most) / 2
            is_late = middle + self._least_s(candidate, kept, middle) >= cutoff_s
            least, most = (least, middle) if is_late else (middle, most)
        return most

    def _least_s(self, candidate: Candidate, kept: Kept, seconds: float) -> float:
        """Return what evictions add at least, if a plan takes at least so many seconds without them."""
        if candidate.mesh[PIPE] > _RANKS or not 0 < seconds < inf:
            return 0.0
        return self._added_s(candidate, kept, seconds, _EVEN * kept.least_bytes)

    def _added_s(self, candidate: Candidate, kept: Kept, seconds: float, kept_bytes: float) -> float:
        form, ranks, count = candidate.form, candidate.mesh[PIPE], candidate.micro_batches
        costs = costs_on(self.cluster, candidate.mesh, PIPE)
        stage_s = seconds / form.slots(ranks, count) / form.per_rank
        forward_s, sent_s = kept.forward_part * stage_s, costs.transfer_s(kept_bytes / form.per_rank)
        cost = StageCost(forward_s, stage_s - forward_s, 0.0, eviction_s=sent_s)
        return waiting_s(form, ranks, count, cost, overlap=costs.overlap)


def _evicts(candidate: Candidate) -> bool:
    return candidate.mesh.get(PIPE, 1) > 1 and candidate.form.balances and candidate.form.path == 1


def waiting_s(
    form: ScheduleForm, ranks: int, micro_batches: int, cost: StageCost, *, overlap: bool = True
) -> float:
    """Return how much later a step ends because of evictions, if each stage has the same ``cost``.

    ``overlap``: whether transfers run beside computations.
    """
    times = ceil(ranks / _RANKS)
    ranks, micro_batches = ceil(ranks / times), ceil(micro_batches / times)
    if form.per_rank > 1:  # whole rounds of ranks
        micro_batches = ceil(micro_batches / ranks) * ranks
    schedule = _balanced(form, ranks, micro_batches)
    step_s = simulate(schedule, [cost] * schedule.stages, overlap=overlap).step_s
    rank_s = form.per_rank * (cost.forward_s + cost.input_gradient_s)
    late_s = step_s - form.slots(ranks, micro_batches) * rank_s
    return times * late_s if late_s > _ROUNDING * step_s else 0.0


@lru_cache(maxsize=64)
def _balanced(form: ScheduleForm, ranks: int, micro_batches: int) -> Schedule:
    """Return the schedule of a form with its evictions."""
    schedule = by_name.schedule(form.name, ranks * form.per_rank, micro_batches, ranks=ranks)
    return balance_activations(schedule)
