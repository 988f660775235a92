"""The fastest stages of a chain, by dynamic programming over partial cuts that may still become the best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from chain_costs import ChainCut, Stage, StageCosts, step_s


@dataclass(frozen=True)
class _Label:
    """Stages from the first to one that ends where the label is filed, and what they imply.

    ``slowest_s``, ``sum_s``: the largest and the sum of the seconds that they are busy. ``phases``: for each
    phase after the last micro-batch, the most seconds of a stage. ``used``: devices of each pool, with those
    of the next stage, whose kind is settled.
    """

    slowest_s: float
    sum_s: float
    phases: tuple[float, ...]
    used: tuple[int, ...]
    ends: tuple[int, ...]
    kinds: tuple[int, ...]

    @property
    def at(self) -> tuple[int, ...]:
        """What the seconds of the next stage depend on: its start, its kind, and the kind before it."""
        return self.ends[-1], *self.kinds[-2:]

    def is_no_worse(self, other: _Label) -> bool:
        mine = (self.slowest_s, self.sum_s, *self.phases, *self.used)
        theirs = (other.slowest_s, other.sum_s, *other.phases, *other.used)
        return all(a <= b for a, b in zip(mine, theirs, strict=True))


def cut_chain(costs: StageCosts, stages: int, micro_batches: int, cutoff_s: float = inf) -> ChainCut | None:
    """Return the fastest cut of a chain into ``stages``, or None if none fits and beats ``cutoff_s``.

    The result is exact. Partial cuts are dropped if another one with the same next stage is no worse in
    anything, or if a lower bound on what they can become reaches ``cutoff_s`` or a cut that is known.
    """
    if not 0 < stages <= costs.layers:
        return None
    return _Cutting(costs, stages, micro_batches, cutoff_s).run()


class _Cutting:
    def __init__(self, costs: StageCosts, stages: int, micro_batches: int, cutoff_s: float) -> None:
        self.costs, self.stages, self.micro_batches = costs, stages, micro_batches
        self.best_s = cutoff_s
        self.best: ChainCut | None = None
        kinds, layers = range(len(costs.kinds)), costs.layers
        alone = [min(costs.least_s(n, n + 1, kind) for kind in kinds) for n in range(layers)]
        self.rest_s = [sum(alone[n:]) for n in range(layers + 1)]
        """Lower bound on the work of a micro-batch from each layer to the last."""
        self.largest_s = [max(alone[n:], default=0.0) for n in range(layers + 1)]
        self.fewest = tuple(min(kind[pool] for kind in costs.kinds) for pool in range(len(costs.pools)))

    def run(self) -> ChainCut | None:
        nothing = tuple(0.0 for _ in self.costs.ends_s(0, 1, 0))
        first = enumerate(self.costs.kinds)
        labels = [
            _Label(0.0, 0.0, nothing, used, (), (kind,))
            for kind, used in first
            if self._leaves_devices(used, 0)
        ]
        for place in range(self.stages):
            filed: dict[tuple[int, ...], list[_Label]] = {}
            for label in sorted(labels, key=lambda label: label.sum_s):
                for grown in self._grown(label, place):
                    _file(filed.setdefault(grown.at, []), grown)
            labels = [label for group in filed.values() for label in group]
        return self.best

    def _grown(self, label: _Label, place: int) -> Iterator[_Label]:
        """Yield a label with one more stage for each of its ends and each kind of the stage after it.

        A complete cut is not yielded, but kept if it is the best.
        """
        left = self.stages - place - 1
        start, kind = label.ends[-1] if place else 0, label.kinds[-1]
        before = label.kinds[-2] if place else -1
        ends = [self.costs.layers] if not left else range(start + 1, self.costs.layers - left + 1)
        for end in ends:
            if not self.costs.fits(place, start, end, kind):
                continue
            least_s = self.costs.least_s(start, end, kind)
            if self._bound(label, least_s, label.phases, end, left) >= self.best_s:
                continue
            ending = self.costs.ends_s(start, end, kind)
            phases = tuple(max(pair) for pair in zip(label.phases, ending, strict=True))
            for after, needed in enumerate(self.costs.kinds) if left else [(-1, ())]:
                used = tuple(a + b for a, b in zip(label.used, needed, strict=True)) if left else label.used
                if left and not self._leaves_devices(used, place + 1):
                    continue
                busy_s = self.costs.busy_s(Stage(place, start, end, before, kind, after))
                if self._bound(label, busy_s, phases, end, left) >= self.best_s:
                    continue
                grown = (max(label.slowest_s, busy_s), label.sum_s + busy_s, phases, used)
                kinds = (*label.kinds, after) if left else label.kinds
                made = _Label(*grown, (*label.ends, end), kinds)
                if left:
                    yield made
                else:
                    self._keep(made)

    def _keep(self, label: _Label) -> None:
        seconds = step_s(self.costs, self.micro_batches, label.ends, label.kinds)
        if seconds < self.best_s:
            self.best_s, self.best = seconds, ChainCut(seconds, label.ends, label.kinds)

    def _bound(self, label: _Label, busy_s: float, phases: tuple[float, ...], end: int, left: int) -> float:
        """Return the least seconds of a step that goes on after a stage that is busy for ``busy_s``.

        Of the ``left`` stages the slowest takes an equal share of the rest at least, and its largest layer.
        """
        rest_s = self.rest_s[end]
        slowest_s = max(label.slowest_s, busy_s, rest_s / left if left else 0.0, self.largest_s[end])
        return (self.micro_batches - 1) * slowest_s + label.sum_s + busy_s + rest_s + sum(phases)

    def _leaves_devices(self, used: tuple[int, ...], place: int) -> bool:
        """Return whether the stages after ``place`` can still get devices."""
        left = self.stages - place - 1
        pairs = zip(used, self.fewest, self.costs.pools, strict=True)
        return all(taken + left * fewest <= there for taken, fewest, there in pairs)


def _file(labels: list[_Label], label: _Label) -> None:
    """Add a label unless another one is no worse, and drop those that are no better than it."""
    if any(other.is_no_worse(label) for other in labels):
        return
    labels[:] = [other for other in labels if not label.is_no_worse(other)]
    labels.append(label)
