"""Timeline of each rank's step, from which the step's time is summed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from shardc.cost.step.costs import Costs
from shardc.cost.step.step_time import ONCE, key_of, stage_places, timeline_of_step
from shardc.cost.step.streams import behind_s
from shardc.cost.step.work import Item, StepWork
from shardc.cost.timeline import Span, Timeline
from shardc.dialects.pipe.schedule import Schedule


@dataclass(frozen=True)
class ItemSpan:
    """An item of a rank, in time.

    ``stream``: mesh axes of its stream; empty for the stream of kernels. ``part``: the run of items that it
    belongs to, such as a pipeline's action. ``needs``: numbers of the rank's items that it reads.
    """

    item: Item
    start_s: float
    end_s: float
    stream: tuple[str, ...]
    part: int
    needs: tuple[int, ...]


@dataclass(frozen=True)
class Message:
    """Message between ranks of a pipeline.

    The rank sends it to ``other`` after its part ``part``. If ``is_received``, it gets the message from
    ``other`` before that part. ``tag``: number of the message in the step.
    """

    tag: int
    part: int
    other: int
    is_received: bool
    size_bytes: float
    start_s: float
    end_s: float


@dataclass
class RankSpans:
    """Timeline of one distinct rank.

    ``actions``: a pipeline's actions; action number n is part n. ``host``: starts and ends of waits for the
    host. ``end_s``: when the rank is done.
    """

    rank: int
    actions: tuple[Span, ...] = ()
    messages: tuple[Message, ...] = ()
    items: list[ItemSpan] = field(default_factory=list)
    host: list[tuple[float, float]] = field(default_factory=list)
    end_s: float = 0.0
    _parts: int = 0

    def play(self, items: Sequence[Item], costs: Costs) -> None:
        """Add items from ``end_s`` on as a new part."""
        base, start_s = len(self.items), self.end_s
        for item, placed in zip(items, costs.place(items), strict=True):
            begin_s, end_s = start_s + placed.start_s, start_s + placed.end_s
            needs = tuple(need + base for need in item.needs)
            self.items.append(ItemSpan(item, begin_s, end_s, placed.stream, self._parts, needs))
            self.end_s = max(self.end_s, end_s)
        self._parts += 1

    def wait_for_host(self, until_s: float) -> None:
        if until_s > self.end_s:
            self.host.append((self.end_s, until_s))
            self.end_s = until_s


def spans_of_step(work: StepWork, costs: Costs, schedule: Schedule | None = None) -> list[RankSpans]:
    """Return the spans of each distinct rank: one per group of stages in a pipeline, else one.

    The last ``end_s`` equals ``seconds`` of the step's :class:`~shardc.cost.step.step_time.StepTime`. Work
    that a pipeline's rank does once per step follows its last action, as in the estimate.
    """
    if not work.stages or schedule is None:
        found = RankSpans(0)
        _play_sections(found, work, costs)
        return [found]
    timeline = timeline_of_step(work, costs, schedule)
    return [_rank(number, timeline, work, costs, schedule) for number in range(len(timeline.spans))]


def _rank(number: int, timeline: Timeline, work: StepWork, costs: Costs, schedule: Schedule) -> RankSpans:
    actions, places = timeline.spans[number], stage_places(schedule)
    found = RankSpans(number, actions, tuple(_messages(number, timeline, work, schedule)))
    costs = costs.of_rank(number)
    for span in actions:
        found.end_s = span.start_s
        stage = work.stages[places[span.action.stage]]
        found.play(stage.actions.get(key_of(span.action, schedule), ()), costs)
        found.wait_for_host(span.end_s)
    for stage in sorted({span.action.stage for span in actions}):
        for kind in ONCE:
            found.play(work.stages[places[stage]].actions.get(kind, ()), costs)
    _play_sections(found, work, costs)
    return found


def _messages(number: int, timeline: Timeline, work: StepWork, schedule: Schedule) -> Iterator[Message]:
    part_of = {span.action: part for part, span in enumerate(timeline.spans[number])}
    places = stage_places(schedule)
    for tag, sent in enumerate(timeline.transfers):
        assert sent.reader is not None and sent.to is not None, "a transfer"
        ahead = sent.action if sent.action.kind == "F" else sent.reader  # a gradient is as large
        size = work.stages[places[ahead.stage]].sent_bytes * schedule.part(ahead.micro_batch)
        if sent.rank == number:
            yield Message(tag, part_of[sent.action], sent.to, False, size, sent.start_s, sent.end_s)
        elif sent.to == number:
            yield Message(tag, part_of[sent.reader], sent.rank, True, size, sent.start_s, sent.end_s)


def _play_sections(found: RankSpans, work: StepWork, costs: Costs) -> None:
    for section in work.ranks[found.rank] if work.ranks else ():
        calls = sum(min(1, item.calls) for item in section.items)
        for _ in range(section.times):
            start_s = found.end_s
            found.play(section.items, costs)
            seconds = found.end_s - start_s
            found.wait_for_host(start_s + seconds + behind_s(seconds, calls * costs.call_s))
