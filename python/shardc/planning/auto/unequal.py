"""Choices on several kinds of device: unequal shares of the batch, and stages in proportion to speed.

Both follow from what the step's calls take on each kind of device, in their fastest shardings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

import numpy as np

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.device import Device
from shardc.cost.cluster.mapping import Placement
from shardc.cost.step.on_cluster import rates_of
from shardc.dialects.dist.axis import Axis
from shardc.passes.search.axes import SearchAxes
from shardc.passes.search.calls.stage_work import forward_cuts, stages_at
from shardc.passes.search.step.graph_on import mean_speeds
from shardc.passes.search.step.step_graph import StepGraph
from shardc.planning.auto.space import Choice

MOST_PARTS = 64
"""Maximum number of equal parts into which a batch is divided for unequal shares."""
MOST_SHARES = 2
"""Maximum number of different shares for a mesh and a number of micro-batches."""
_THIN = 1.1
"""Bytes that cross a place where stages may end, relative to the fewest."""
_SAVES = 0.98
"""More parts, which are smaller, must reduce the longest share's time to this fraction."""


@dataclass(frozen=True)
class Unequal:
    """Devices of several kinds in the search.

    Args:
        cluster: Their cluster.
        call_s: For each kind of device, the least seconds of each call of forward and backward.
        weights: Numbers of the calls that only gradients of weights need.
        cuts: Parts of forward's work before the places where few bytes cross.
        even: Seconds of calls that are divided evenly among all devices, relative to ``call_s``; at most 1.
            They are less if the devices divide few dims.
    """

    cluster: Cluster
    call_s: Mapping[Device, np.ndarray]
    weights: Sequence[int]
    cuts: Sequence[float]
    even: float

    @staticmethod
    def of(step: StepGraph, cluster: Cluster) -> Unequal:
        """Return the devices of a cluster, from the graph of any choice without stages."""
        found = {kind: np.array(step.least_on(rates_of(kind))) for kind in cluster.used(cluster.size)}
        kind, least_s = next(iter(found.items()))
        even = min(1.0, step.whole_on(rates_of(kind)) / (cluster.size * least_s.sum()))
        cuts = thin(forward_cuts(step.program, step.folded))
        return Unequal(cluster, found, sorted(step.weights), cuts, even)

    def choices(self, given: Sequence[Choice], samples: int) -> Iterator[Choice]:
        """Yield the ``given`` choices with stages in proportion to speeds, and others with unequal shares.

        Stages end where few bytes cross, between layers: ``speeds`` are the work of such stages.
        ``samples``: samples of the batch.
        """
        for choice in given:
            kinds = self._kinds(choice)
            speeds = [self._speed(kind) for kind in kinds]
            if len(set(kinds)) == 1:
                yield choice
            elif choice.stages == 1:
                yield choice
                for weights in shares_for(speeds, samples // choice.micro_batches):
                    yield replace(choice, shares=weights)
            elif choice.form.per_rank == 1 and not choice.form.balances:
                parts = stages_at(self.cuts, speeds) or speeds
                yield replace(choice, speeds=tuple(round(part / min(parts), 3) for part in parts))

    def pace(self, choice: Choice) -> tuple[float, float]:
        """Return the least time of a choice's kernels relative to equal parts on the slowest kind of device.

        The second number is that of calls that only gradients of weights need. Both include the waiting of
        stages.
        """
        if choice.shares:
            parts = zip(choice.shares, self._kinds(choice), strict=True)
            longest = max(weight / self._speed(kind) for weight, kind in parts)
            pace = self.even * longest * len(choice.shares) / sum(choice.shares)
            return pace, pace
        if not choice.speeds:
            return choice.waits
        form, micro = choice.form, Axis("micro", 1, choice.micro_batches)
        axes = SearchAxes((micro,), (0,), stages=choice.stages, form=form)
        is_weights = np.isin(np.arange(len(self._slowest_s)), self.weights)
        found = []
        for of, mask in ((axes, ~is_weights), (axes.of_weights, is_weights)):
            kinds = self._kinds(choice)
            ranks = {kind: of.on_rank(kinds.index(kind), mean_speeds(kinds, choice.speeds)) for kind in kinds}
            least = np.min([on.busy(on.trips) * self.call_s[kind] for kind, on in ranks.items()], axis=0)
            equal_s = self._slowest_s[mask].sum()
            found.append(self.even * choice.stages * float(least[mask].sum()) / equal_s if equal_s else 1.0)
        return found[0], found[1]

    def _kinds(self, choice: Choice) -> list[Device]:
        """Return the slowest kind of device at each place along the outermost axis."""
        return Placement.of(self.cluster, choice.mesh).slowest_along(choice.axes[0][0])

    def _speed(self, kind: Device) -> float:
        return float(self._slowest_s.sum() / self.call_s[kind].sum())

    @cached_property
    def _slowest_s(self) -> np.ndarray:
        return self.call_s[min(self.call_s, key=self._peak)]

    @staticmethod
    def _peak(kind: Device) -> float:
        return kind.peak_flop_s("bf16")


def thin(cuts: Sequence[tuple[float, float]]) -> list[float]:
    """Return the parts of the work before cuts that about the fewest bytes cross, without the first and last.

    ``cuts``: for each cut, the part of the work before it, and the bytes that cross.
    """
    inner = [(part, size) for part, size in cuts if 0 < part < 1]
    fewest = min((size for _, size in inner), default=0.0)
    return sorted({part for part, size in inner if size <= fewest * _THIN})


def shares_for(speeds: Sequence[float], rows: int) -> list[tuple[int, ...]]:
    """Return weights for places with these ``speeds``, the best last; empty if equal shares are best.

    A batch of ``rows`` is divided by the sum of the weights.
    """
    found, weights = list[tuple[int, ...]](), [1] * len(speeds)
    best_s = _longest(weights, speeds) / sum(weights)
    while sum(weights) < min(rows, MOST_PARTS):
        after = [(weight + 1) / speed for weight, speed in zip(weights, speeds, strict=True)]
        weights[after.index(min(after))] += 1
        seconds = _longest(weights, speeds) / sum(weights)
        if rows % sum(weights) == 0 and gcd(*weights) == 1 and seconds < _SAVES * best_s:
            found.append(tuple(weights))
            best_s = seconds
    return found[-MOST_SHARES:]


def _longest(weights: Sequence[int], speeds: Sequence[float]) -> float:
    return max(weight / speed for weight, speed in zip(weights, speeds, strict=True))
