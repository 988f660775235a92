"""Tracks of a step's predicted timeline: streams of each distinct rank, and its memory over time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

from shardc.backends.torch.memory.curve import Curve
from shardc.cost.step.spans import ItemSpan, Message, RankSpans
from shardc.cost.timeline import Span
from shardc.report.source_lines import shown
from shardc.report.traces.tracks import Counter, Process, Slice, Track, Value, tracks_of

KERNELS = "kernels"
MEMORY = "memory of tensors"
PREDICTED = "predicted action"
"""Category of actions that were predicted, not measured."""
MOST_ITEMS = 400_000
"""Maximum number of kernels and collectives in a trace, since a browser shows about a million events.

Ranks beyond it show only the actions of the pipeline.
"""


def predicted_processes(
    ranks: Sequence[RankSpans], curves: Sequence[Curve], devices: Sequence[int]
) -> list[Process]:
    """Return a process for each distinct rank.

    ``devices``: the ranks' positions on the mesh. ``curves``: their memory over time.
    """
    counts = accumulate(len(rank.items) for rank in ranks)
    rows = zip(ranks, curves, devices, counts, strict=True)
    return [_process(rank, curve, device, count <= MOST_ITEMS) for rank, curve, device, count in rows]


def _process(rank: RankSpans, curve: Curve, device: int, whole: bool) -> Process:
    tracks = [Track("actions", tuple(map(_action, rank.actions)))] if rank.actions else []
    if whole:
        tracks += _streams(rank.items)
    tracks += tracks_of("messages", map(_message, rank.messages))
    if rank.host:
        waits = (Slice("wait for the host", start_s, end_s, "host") for start_s, end_s in rank.host)
        tracks.append(Track("host", tuple(waits)))
    left_out = "" if whole else ", kernels and collectives left out"
    points = Counter(MEMORY, tuple(memory_points(curve, rank)))
    return Process(f"rank {device} (predicted{left_out})", tuple(tracks), (points,), device)


def _streams(items: Sequence[ItemSpan]) -> list[Track]:
    """Return a track for kernels, and one for the collectives over each set of axes."""
    streams: dict[tuple[str, ...], list[Slice]] = {(): []}
    for span in items:
        streams.setdefault(span.stream, []).append(_item(span))
    named = {axes: f"collectives over {' x '.join(axes)}" if axes else KERNELS for axes in streams}
    return [Track(named[axes], tuple(slices)) for axes, slices in streams.items() if slices]


def _item(span: ItemSpan) -> Slice:
    item = span.item
    about: dict[str, Value] = {"phase": item.phase, "bytes": round(item.moved_bytes)}
    if item.axes:
        about["axes"] = " x ".join(f"{axis.name}={axis.size}" for axis in item.axes)
    if item.flops:
        about["FLOPs"] = round(item.flops)
    if item.calls > 1:
        about["calls"] = item.calls
    if item.where:
        about["line"] = shown(item.where)
    name = item.name.removeprefix("aten.") or item.kind
    return Slice(name, span.start_s, span.end_s, item.kind, about)


def _message(message: Message) -> Slice:
    name = f"{'from' if message.is_received else 'to'} pipeline rank {message.other}"
    about = {"bytes": round(message.size_bytes), "tag": message.tag}
    return Slice(name, message.start_s, message.end_s, "message", about)


def _action(span: Span) -> Slice:
    about = {"stage": span.action.stage, "micro-batch": span.action.micro_batch}
    return Slice(str(span.action), span.start_s, span.end_s, PREDICTED, about)


def memory_points(curve: Curve, rank: RankSpans) -> list[tuple[float, int]]:
    """Return (seconds, bytes) for each moment of a memory curve.

    A moment has no time, only the number of tensors that the program has made. So it is placed by its
    relative position within its phase: at the end of the item by which that part of the phase's calls has
    run.
    """
    if not curve.moments:
        return []
    clocks = {phase: _Clock(items) for phase, items in _by_phase(rank.items).items()}
    made: dict[str, int] = {}
    marks: list[tuple[str, int]] = [("", 0)]
    for before, moment in pairwise(curve.moments):
        phase = curve.places[moment.place].phase
        made[phase] = made.get(phase, 0) + moment.made - before.made
        marks.append((phase, made[phase]))
    points: list[tuple[float, int]] = []
    now_s = 0.0
    for moment, (phase, count) in zip(curve.moments, marks, strict=True):
        if count and phase in clocks:
            now_s = max(now_s, clocks[phase].at(count / made[phase]))
        points.append((now_s, moment.size_bytes))
    return points


def _by_phase(items: Sequence[ItemSpan]) -> dict[str, list[ItemSpan]]:
    found: dict[str, list[ItemSpan]] = {}
    for span in items:
        found.setdefault(span.item.phase, []).append(span)
    return found


class _Clock:
    """Time by which a given part of a phase's calls has run."""

    def __init__(self, items: Sequence[ItemSpan]) -> None:
        self._ends_s = [span.end_s for span in items]
        self._calls = list(accumulate(max(1, span.item.calls) for span in items))

    def at(self, part: float) -> float:
        number = bisect_left(self._calls, part * self._calls[-1])
        return self._ends_s[min(number, len(self._ends_s) - 1)]
