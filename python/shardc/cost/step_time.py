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
from shardc.cost.step_work import Item, Section, StageWork, StepWork
from shardc.cost.streams import Played, Task, add, play
from shardc.cost.timeline import Timeline
from shardc.diagnostics.text import table
from shardc.dialects.pipe.schedule import Schedule

BUBBLE = "bubble"
"""The cause of waiting for other ranks of a pipeline."""
OVERHEAD = "overhead"
"""The cause of what a step takes besides its program."""
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
        overlap: Whether kernels go on beside collectives until these are waited for.
        overhead_s: Seconds of a step besides its program.
    """

    rates: DeviceRates
    collective_s: CollectiveTime
    transfer_s: Callable[[float], float] = lambda size_bytes: 0.0
    call_s: float = 0.0
    overlap: bool = True
    overhead_s: float = 0.0

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
        return pass_s(item.moved_bytes, self.rates)

    def play(self, items: Sequence[Item]) -> Played:
        """Items on a device's streams, without the host."""
        tasks = [Task(i.kind, self.seconds(i), i.needs, tuple(axis.name for axis in i.axes)) for i in items]
        return play(tasks, overlap=self.overlap)

    def play_sections(self, sections: Iterable[Section]) -> Played:
        """Sections one after the other, each by a host that may be behind."""
        played = (self.play(section.items).with_host(self.call_s) * section.times for section in sections)
        return reduce(Played.__add__, played, Played())


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, and what they are of on the rank that computes longest.

    ``causes``: seconds by kind of kernel (``matmul``, ``attention``, ``memory``) and by what is waited for: a
    mesh axis, ``host``, ``bubble``, ``overhead``. They add up to ``seconds``. ``flops``: of that rank.
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
        seconds = played.seconds + costs.overhead_s
        return StepTime(seconds, add(causes, {OVERHEAD: costs.overhead_s}), flops)
    return _pipelined(work, costs, schedule)


def timeline_of_step(work: StepWork, costs: Costs, schedule: Schedule) -> Timeline:
    """When each rank of a pipeline does what; gradients' reduction and the update come behind."""
    return _timeline([_played_actions(stage, costs) for stage in work.stages], work, costs, schedule)


def _timeline(
    actions: Sequence[Mapping[str, Played]], work: StepWork, costs: Costs, schedule: Schedule
) -> Timeline:
    stages = [_stage_cost(played, stage, costs) for played, stage in zip(actions, work.stages, strict=True)]
    return simulate(schedule, stages)


def _pipelined(work: StepWork, costs: Costs, schedule: Schedule) -> StepTime:
    actions = [_played_actions(stage, costs) for stage in work.stages]
    timeline = _timeline(actions, work, costs, schedule)
    found: list[StepTime] = []
    for rank, spans in enumerate(timeline.spans):
        mine = sorted({span.action.stage for span in spans})
        once = [costs.play(work.stages[stage].actions.get("REDUCE_GRAD", ())) for stage in mine]
        behind = reduce(Played.__add__, once, costs.play_sections(work.ranks[rank]))
        done = reduce(Played.__add__, (actions[s.action.stage][s.action.kind] for s in spans), Played())
        seconds = spans[-1].end_s + behind.seconds + costs.overhead_s
        causes = add(add(done.busy_s, done.waits_s), add(behind.busy_s, behind.waits_s))
        waited = {BUBBLE: spans[-1].end_s - done.seconds, OVERHEAD: costs.overhead_s}
        flops = sum(_flops(work.stages[s.action.stage], s.action.kind) for s in spans)
        found.append(StepTime(seconds, add(causes, waited), flops))
    longest = max(found, key=lambda time: time.seconds)
    return longest


def _played_actions(stage: StageWork, costs: Costs) -> dict[str, Played]:
    """Each kind of action of a micro-batch. A host that is behind over all of them is behind in each."""
    played = {kind: costs.play(stage.actions[kind]) for kind in "FBIW" if kind in stage.actions}
    device_s = sum(p.seconds for p in played.values())
    behind_s = costs.call_s * sum(p.calls for p in played.values()) - device_s
    if behind_s <= 0 or not device_s:
        return played
    return {k: p + Played(s := behind_s * p.seconds / device_s, {}, {"host": s}) for k, p in played.items()}


def _stage_cost(played: Mapping[str, Played], stage: StageWork, costs: Costs) -> StageCost:
    """A backward that is run whole is all input gradient."""
    seconds = {kind: p.seconds for kind, p in played.items()}
    inputs_s = seconds.get("I", seconds.get("B", 0.0))
    transfer_s = costs.transfer_s(stage.sent_bytes) if stage.sent_bytes else 0.0
    return StageCost(seconds.get("F", 0.0), inputs_s, seconds.get("W", 0.0), transfer_s)


def _flops(stage: StageWork, kind: str) -> float:
    return sum(item.flops for item in stage.actions.get(kind, ()))
