"""The time of a step: kernels, collectives that nothing hides, the pipeline's bubble, the host, the update.

Everything is of the devices of one mesh, which do the same; ranks of a pipeline differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from shardc.cost.ops import DeviceRates, attention_s, other_flops_s, pass_s, product_s
from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.cost.step.streams import HOST, Played, Task, add, behind_s, play
from shardc.cost.step.work import Item, Section, StageWork, StepWork
from shardc.diagnostics.text import table
from shardc.dialects.pipe.schedule import Schedule

BUBBLE = "bubble"
"""The cause of waiting for other ranks of a pipeline."""
CollectiveTime = Callable[[Item], float]
"""Seconds of a collective."""


@dataclass(frozen=True)
class Costs:
    """What turns work into seconds.

    Args:
        rates: Of a device.
        collective_s: Seconds of a collective.
        transfer_s: Seconds of sending so many bytes to the next stage.
        call_s: Seconds of the host for each kernel.
        action_s: Seconds of the host around an action of a pipeline, or a micro-batch's forward or backward.
        overlap: Whether kernels go on beside collectives until these are waited for, and beside transfers.
    """

    rates: DeviceRates
    collective_s: CollectiveTime
    transfer_s: Callable[[float], float] = lambda size_bytes: 0.0
    call_s: float = 0.0
    action_s: float = 0.0
    overlap: bool = True

    def seconds(self, item: Item) -> float:
        """Seconds of an item by itself."""
        if item.kind == "collective":
            return self.collective_s(item)
        if item.product is not None:
            return product_s(item.product, self.rates)
        if item.kind == "attention":
            backward = item.phase == "backward"
            return attention_s(item.flops, item.moved_bytes, item.element_bytes, backward, self.rates)
        if item.kind == "matmul":
            return other_flops_s(item.flops, item.moved_bytes, item.element_bytes, self.rates)
        return pass_s(item.moved_bytes, item.is_plain, self.rates)

    def play(self, items: Sequence[Item]) -> Played:
        """Items on a device's streams, without the host."""
        return play([self._task(item) for item in items], overlap=self.overlap)

    def _task(self, item: Item) -> Task:
        """The host makes one call for it, as of a kernel."""
        axes = tuple(axis.name for axis in item.axes)
        return Task(item.kind, self.seconds(item), item.needs, axes, min(1, item.calls))

    def play_sections(self, sections: Iterable[Section]) -> Played:
        """Sections one after the other, each by a host that may be behind."""
        played = (self.play(section.items).with_host(self.call_s) * section.times for section in sections)
        return reduce(Played.__add__, played, Played())


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, and what they are of on the rank that computes longest.

    ``causes``: seconds by kind of kernel (``matmul``, ``attention``, ``memory``) and by what is waited for: a
    mesh axis, ``host``, ``bubble``. They add up to ``seconds``. ``flops``: of that rank.
    """

    seconds: float
    causes: Mapping[str, float] = field(default_factory=dict)
    flops: float = 0.0

    def flop_utilization(self, rates: DeviceRates) -> float:
        """Part of the peak of products of 2-byte elements that a device does, recomputation included."""
        return self.flops / (self.seconds * rates.half_flop_s)

    def render(self) -> list[str]:
        """A line for each cause, the largest first."""
        rows = [("", "ms", "of the step")]
        for cause, seconds in sorted(self.causes.items(), key=lambda pair: -pair[1]):
            rows.append((cause, f"{1e3 * seconds:.1f}", f"{seconds / self.seconds:.1%}"))
        return [f"step: {1e3 * self.seconds:.1f} ms", *table(rows, right=(1, 2))]


def step_time_of(work: StepWork, costs: Costs, schedule: Schedule | None = None) -> StepTime:
    """The time of a step; of a pipeline by playing ``schedule`` through."""
    if not work.stages or schedule is None:
        played = costs.play_sections(work.ranks[0])
        causes = add(played.busy_s, played.waits_s)
        flops = sum(s.times * sum(item.flops for item in s.items) for s in work.ranks[0])
        return StepTime(played.seconds, causes, flops)
    return _pipelined(work, costs, schedule)


def _pipelined(work: StepWork, costs: Costs, schedule: Schedule) -> StepTime:
    actions = [_played_actions(stage, costs) for stage in work.stages]
    stages = [_stage_cost(played, stage, costs) for played, stage in zip(actions, work.stages, strict=True)]
    timeline = simulate(schedule, stages, overlap=costs.overlap)
    found: list[StepTime] = []
    for rank, spans in enumerate(timeline.spans):
        mine = sorted({span.action.stage for span in spans})
        once = [costs.play(work.stages[stage].actions.get("REDUCE_GRAD", ())) for stage in mine]
        behind = reduce(Played.__add__, once, costs.play_sections(work.ranks[rank]))
        done = reduce(Played.__add__, (actions[s.action.stage][s.action.kind] for s in spans), Played())
        whole = (done + behind).waiting(BUBBLE, spans[-1].end_s - done.seconds)
        flops = sum(_flops(work.stages[s.action.stage], s.action.kind) for s in spans)
        found.append(StepTime(whole.seconds, add(whole.busy_s, whole.waits_s), flops))
    return max(found, key=lambda time: time.seconds)


def _played_actions(stage: StageWork, costs: Costs) -> dict[str, Played]:
    """Each kind of action of a micro-batch; each waits for its part of what the host is behind over all."""
    played = {kind: costs.play(stage.actions[kind]) for kind in "FBIW" if kind in stage.actions}
    device_s = sum(p.seconds for p in played.values())
    late_s = behind_s(device_s, costs.call_s * sum(p.calls for p in played.values()))
    part = late_s / device_s if device_s else 0.0
    return {kind: p.waiting(HOST, part * p.seconds + costs.action_s) for kind, p in played.items()}


def _stage_cost(played: Mapping[str, Played], stage: StageWork, costs: Costs) -> StageCost:
    """A backward that is run whole is all input gradient."""
    seconds = {kind: p.seconds for kind, p in played.items()}
    inputs_s = seconds.get("I", seconds.get("B", 0.0))
    transfer_s = costs.transfer_s(stage.sent_bytes) if stage.sent_bytes else 0.0
    return StageCost(seconds.get("F", 0.0), inputs_s, seconds.get("W", 0.0), transfer_s)


def _flops(stage: StageWork, kind: str) -> float:
    return sum(item.flops for item in stage.actions.get(kind, ()))
