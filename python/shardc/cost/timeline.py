"""Timelines of pipeline ranks, simulated or measured, with their bubbles, memory and stage costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from shardc.cost.pipeline import StageCost
from shardc.diagnostics.passes.pipeline import NotMeasured
from shardc.dialects.pipe.action import Action


@dataclass(frozen=True)
class Span:
    """An action on a rank, or, if ``to`` is given, the transfer of its result to ``reader``."""

    action: Action
    rank: int
    start_s: float
    end_s: float
    to: int | None = None
    reader: Action | None = None


@dataclass(frozen=True)
class Timeline:
    """Timeline of a simulated or measured run. ``spans``: by rank, in the order of their starts."""

    spans: tuple[tuple[Span, ...], ...]
    transfers: tuple[Span, ...] = ()

    @cached_property
    def step_s(self) -> float:
        """Return the time from the first action's start to the last one's end."""
        ends_s, starts_s = [r[-1].end_s for r in self.spans if r], [r[0].start_s for r in self.spans if r]
        return max(ends_s, default=0.0) - min(starts_s, default=0.0)

    @cached_property
    def longest_span_s(self) -> float:
        """Return the longest time of a rank from its first action's start to its last one's end."""
        return max(rank[-1].end_s - rank[0].start_s for rank in self.spans if rank)

    @cached_property
    def busy_s(self) -> float:
        """Return the longest time for which a rank computes."""
        return max(sum(s.end_s - s.start_s for s in rank) for rank in self.spans)

    @property
    def bubble_rate(self) -> float:
        """Return the share of the longest span that the busiest rank waits (Qi et al., Zero Bubble, 5.3)."""
        return 1 - self.busy_s / self.longest_span_s

    @property
    def idle_rates(self) -> list[float]:
        """Return each rank's share of the step in which it does not compute."""
        return [1 - sum(s.end_s - s.start_s for s in rank) / self.step_s for rank in self.spans]

    def memory(self, costs: Sequence[StageCost]) -> list[list[tuple[float, float]]]:
        """Return each rank's bytes of activations over time: moments and the bytes from then on."""
        return [_memory(rank, costs) for rank in self.spans]

    def peak_bytes(self, costs: Sequence[StageCost]) -> list[float]:
        """Return each rank's peak of activations."""
        return [max((held for _, held in curve), default=0.0) for curve in self.memory(costs)]


def timeline_of(records: Iterable[tuple[int, str, float, float]], ranks: int) -> Timeline:
    """Build a measured timeline, from 0 s on, of ranks, actions (``2F0``), starts and ends.

    Raises BadAction.
    """
    spans = [Span(Action.parse(text), rank, start_s, end_s) for rank, text, start_s, end_s in records]
    first_s = min((span.start_s for span in spans), default=0.0)
    moved = [replace(span, start_s=span.start_s - first_s, end_s=span.end_s - first_s) for span in spans]
    moved.sort(key=lambda span: (span.start_s, span.end_s))
    return Timeline(tuple(tuple(span for span in moved if span.rank == rank) for rank in range(ranks)))


def _memory(spans: Sequence[Span], costs: Sequence[StageCost]) -> list[tuple[float, float]]:
    held, curve = 0.0, []
    for span in spans:  # one after the other, so in the order of time
        adds = costs[span.action.stage].held_bytes(span.action.kind)
        for when, more in zip((span.start_s, span.end_s), adds, strict=True):
            if more:
                held += more
                curve.append((when, held))
    return curve


def stage_costs(timeline: Timeline, sizes: Sequence[StageCost], transfer_s: float = 0.0) -> list[StageCost]:
    """Return ``sizes``, one for each stage, with the stage's measured times: the median over micro-batches.

    A backward that ran whole counts half as I and half as W, as a matmul's two gradients take equal time.
    ``transfer_s``: time of sending, which the run's actions do not give. Raises NotMeasured if a stage lacks
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

    fields = {"forward_s": "F", "input_gradient_s": "I", "weight_gradient_s": "W"}
    times = [{name: time(stage, kind) for name, kind in fields.items()} for stage in range(len(sizes))]
    return [replace(s, **t, transfer_s=transfer_s) for s, t in zip(sizes, times, strict=True)]
