"""Time of a step: kernels, exposed collectives, the pipeline's bubble, the host, and the update.

Devices of one stage do the same. With several stages, the rank that finishes last determines the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from shardc.cost.ops import DeviceRates
from shardc.cost.pipeline import StageCost
from shardc.cost.simulate import simulate
from shardc.cost.step.costs import Costs
from shardc.cost.step.streams import HOST, Played, add, behind_s
from shardc.cost.step.work import Deeper, Item, StageWork, StepWork, action_key
from shardc.cost.timeline import Span, Timeline
from shardc.diagnostics.text import table
from shardc.dialects.pipe.action import KINDS, Action
from shardc.dialects.pipe.schedule import Schedule

BUBBLE = "bubble"
"""Cause of waiting for other ranks of a pipeline."""
RECOMPUTE = "recompute"
"""Phase of recomputation."""
ONCE = ("UNSHARD", "REDUCE_GRAD")
"""Actions of a stage that run once per step."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, split by cause on the rank that finishes last.

    Attributes:
        causes: Seconds by kind of kernel (``matmul``, ``attention``, ``memory``, ``optimizer``) and by cause
            of waiting: a mesh axis, ``host``, ``bubble``. They add up to ``seconds``.
        flops: FLOP of a device of that rank.
        again_flops: Share of ``flops`` that recomputation takes.
        is_measured: Whether calls that were measured on this machine were added up.
        places: With unequal shares of an axis, the seconds of each place; all wait for the last.
    """

    seconds: float
    causes: Mapping[str, float] = field(default_factory=dict)
    flops: float = 0.0
    again_flops: float = 0.0
    is_measured: bool = False
    places: Mapping[str, float] = field(default_factory=dict)

    def model_flop_utilization(self, rates: DeviceRates) -> float:
        """Return the share of the peak that the model itself reaches (MFU; PaLM, 2022, appendix B)."""
        return (self.flops - self.again_flops) / (self.seconds * rates.half_flop_s)

    def render(self) -> list[str]:
        """Return a line for each cause, the largest first."""
        rows = [("", "ms", "of the step")]
        for cause, seconds in sorted(self.causes.items(), key=lambda pair: -pair[1]):
            rows.append((cause, f"{1e3 * seconds:.1f}", f"{seconds / self.seconds:.1%}"))
        how = ", by calls that were measured on this machine" if self.is_measured else ""
        for place, seconds in self.places.items():
            rows.append((place, f"{1e3 * seconds:.1f}", f"{seconds / self.seconds:.1%}"))
        return [f"step: {1e3 * self.seconds:.1f} ms{how}", *table(rows, right=(1, 2))]


def step_time_of(
    work: StepWork, costs: Costs, schedule: Schedule | None = None, deeper: Deeper | None = None
) -> StepTime:
    """Return the time of a step; of a pipeline by simulating ``schedule``, with the layers of ``deeper``."""
    if work.stages and schedule is not None:
        return _pipelined(work, costs, schedule, deeper)
    items = [(item, section.times) for section in work.ranks[0] for item in section.items]
    return _summed(costs.play_sections(work.ranks[0]), items)


def timeline_of_step(work: StepWork, costs: Costs, schedule: Schedule) -> Timeline:
    """Return the timeline of a pipeline's ranks, without work that runs once per step."""
    return _timeline(_actions(work, costs, schedule), work, costs, schedule)


def stage_cost(stage: StageWork, costs: Costs) -> StageCost:
    """Return the seconds of a stage that has bodies for whole backwards and for split ones."""
    split, whole = (
        replace(stage, actions={k: items for k, items in stage.actions.items() if k in kinds})
        for kinds in ("FIW", "FB")
    )
    backward = _played_actions(whole, costs).get("B", Played())
    return replace(_cost(_played_actions(split, costs), stage, costs), backward_s=backward.seconds)


def key_of(action: Action, schedule: Schedule) -> str:
    """Return the key of an action's work among that of its stage."""
    return action_key(action.kind, action.micro_batch % schedule.slices)


def stage_places(schedule: Schedule) -> list[int]:
    """Return the place of each stage in its route; copies of a stage in several routes have the same."""
    place = {stage: place for route in schedule.routes for place, stage in enumerate(route)}
    return [place[stage] for stage in range(schedule.stages)]


def _actions(work: StepWork, costs: Costs, schedule: Schedule) -> list[dict[str, Played]]:
    """Simulate the actions of each stage on its rank."""
    return [
        _played_actions(work.stages[place], costs.of_rank(schedule.rank_of[stage]))
        for stage, place in enumerate(stage_places(schedule))
    ]


def _timeline(
    actions: Sequence[Mapping[str, Played]],
    work: StepWork,
    costs: Costs,
    schedule: Schedule,
    deeper: Deeper | None = None,
) -> Timeline:
    placed = zip(actions, stage_places(schedule), strict=True)
    stages = [_cost(played, work.stages[place], costs, schedule) for played, place in placed]
    if schedule.evictions:
        sizes = [_kept_bytes(place, work, deeper) for place in stage_places(schedule)]
        seconds = [costs.transfer_s(size) if size else 0.0 for size in sizes]
        stages = [replace(c, eviction_s=s) for c, s in zip(stages, seconds, strict=True)]
    return simulate(schedule, stages, overlap=costs.overlap)


def _pipelined(work: StepWork, costs: Costs, schedule: Schedule, deeper: Deeper | None) -> StepTime:
    actions, at = _actions(work, costs, schedule), stage_places(schedule)
    if deeper is not None:
        longer, more = _actions(deeper.work, costs, schedule), [deeper.more[place] for place in at]
        actions = [_deepened(*stage) for stage in zip(actions, longer, more, strict=True)]
    timeline = _timeline(actions, work, costs, schedule, deeper)
    found = list[StepTime]()
    for rank, spans in enumerate(timeline.spans):
        done = [actions[span.action.stage][key_of(span.action, schedule)] for span in spans]
        busy = reduce(Played.__add__, done, Played())
        rest, items = _once(work, rank, spans, at, costs), _flops(work, spans, at, schedule)
        if deeper is not None:
            rest = rest.between(_once(deeper.work, rank, spans, at, costs), deeper.more[rank])
        whole = (busy + rest).waiting(BUBBLE, spans[-1].end_s - busy.seconds)
        time = _summed(whole, items)
        if deeper is not None:
            longer = _summed(whole, _flops(deeper.work, spans, at, schedule))
            time = _with_flops(time, longer, deeper.more[rank])
        found.append(time)
    return max(found, key=lambda time: time.seconds)


def _kept_bytes(place: int, work: StepWork, deeper: Deeper | None) -> float:
    """Return the bytes that a stage keeps for a micro-batch, with the layers that ``work`` lacks."""
    found = work.stages[place].kept_bytes
    if deeper is None:
        return found
    return found + deeper.more[place] * (deeper.work.stages[place].kept_bytes - found)


def _deepened(actions: Mapping[str, Played], deeper: Mapping[str, Played], more: int) -> dict[str, Played]:
    return {kind: played.between(deeper[kind], more) for kind, played in actions.items()}


def _with_flops(time: StepTime, deeper: StepTime, more: int) -> StepTime:
    flops = time.flops + more * (deeper.flops - time.flops)
    again = time.again_flops + more * (deeper.again_flops - time.again_flops)
    return replace(time, flops=flops, again_flops=again)


def _once(work: StepWork, rank: int, spans: Sequence[Span], at: Sequence[int], costs: Costs) -> Played:
    """Return what a rank runs once per step."""
    costs = costs.of_rank(rank)
    once = [work.stages[p].actions.get(kind, ()) for p in _places(spans, at) for kind in ONCE]
    return reduce(Played.__add__, map(costs.play, once), costs.play_sections(work.ranks[rank]))


def _flops(
    work: StepWork, spans: Sequence[Span], at: Sequence[int], schedule: Schedule
) -> Iterator[tuple[Item, float]]:
    """Yield the items with FLOP that a rank runs for micro-batches, with the number of their runs."""
    for span in spans:
        items = work.stages[at[span.action.stage]].actions.get(key_of(span.action, schedule), ())
        yield from ((item, 1.0) for item in items if item.flops)


def _places(spans: Sequence[Span], at: Sequence[int]) -> list[int]:
    """Return the stages of a rank by their places in their routes, each copy separately."""
    return [at[stage] for stage in sorted({span.action.stage for span in spans})]


def _summed(played: Played, items: Iterable[tuple[Item, float]]) -> StepTime:
    """Return the time of a simulation. ``items``: items with the number of their runs."""
    flops = [(times * item.flops, item.phase == RECOMPUTE) for item, times in items]
    again = sum(count for count, is_again in flops if is_again)
    return StepTime(played.seconds, add(played.busy_s, played.waits_s), sum(c for c, _ in flops), again)


def _played_actions(stage: StageWork, costs: Costs) -> dict[str, Played]:
    """Simulate each kind of action of a micro-batch, or of each slice of one.

    The time for which the device waits for the host overall is distributed over the actions.
    """
    of_micro_batch = [key for key in stage.actions if key.split("_")[0] in KINDS]
    played = {key: costs.play(stage.actions[key]) for key in of_micro_batch}
    device_s = sum(p.seconds for p in played.values())
    late_s = behind_s(device_s, costs.call_s * sum(p.calls for p in played.values()))
    part = late_s / device_s if device_s else 0.0
    return {kind: p.waiting(HOST, part * p.seconds + costs.action_s) for kind, p in played.items()}


def _cost(
    played: Mapping[str, Played], stage: StageWork, costs: Costs, schedule: Schedule | None = None
) -> StageCost:
    """Return the cost of a stage; a backward that runs whole counts as input gradient.

    ``schedule``: one that may slice sequences.
    """
    if schedule is None or schedule.slices == 1:
        return _cost_of_slice(played, stage, costs, 0, 1.0)
    parts = [
        _cost_of_slice(played, stage, costs, number, schedule.part(number))
        for number in range(schedule.slices)
    ]
    return replace(parts[0], slices=tuple(parts))


def _cost_of_slice(
    played: Mapping[str, Played], stage: StageWork, costs: Costs, number: int, part: float
) -> StageCost:
    seconds = lambda kind: played.get(action_key(kind, number), Played()).seconds  # noqa: E731
    transfer_s = costs.transfer_s(stage.sent_bytes * part) if stage.sent_bytes else 0.0
    return StageCost(seconds("F"), seconds("I") or seconds("B"), seconds("W"), transfer_s)
