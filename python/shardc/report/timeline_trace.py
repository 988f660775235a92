"""A pipeline's timeline as Chrome trace JSON, which Perfetto and chrome://tracing show, and back.

A process a run, a thread a rank, an event an action; arrows for what ranks send, a counter for the memory of
each rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from shardc.cost.pipeline import StageCost
from shardc.cost.timeline import Timeline, timeline_of
from shardc.diagnostics.pipeline import BadAction, BadTrace
from shardc.dialects.pipe.action import KINDS, Action
from shardc.report.timeline_svg import Run

US = 1e6
"""Trace time is in microseconds."""


def write_trace(runs: Sequence[Run]) -> str:
    """All runs in one trace, each with its title."""
    events = [event for number, run in enumerate(runs) for event in _events(number, run)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def read_trace(text: str, process: int | None = None, where: str | None = None) -> Timeline:
    """The timeline of a run in a trace: of all events whose name is an action, such as ``2F0`` or torch's
    ``PP:2F0``.

    ``process``: the run's pid, if there are several; else each rank may be a process or a thread. Raises
    BadTrace.
    """
    try:
        trace = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadTrace(problem=f"it is no JSON: {error}", where=where) from None
    events = trace.get("traceEvents", []) if isinstance(trace, dict) else trace
    found = [event for event in events if _is_run(event)] if isinstance(events, list) else []
    found = [event for event in found if process is None or event.get("pid") == process]
    if not found:
        raise BadTrace(problem="it has no event that is named as an action", where=where)
    lanes = sorted({_lane(e) for e in found})
    ranks = {lane: number for number, lane in enumerate(lanes)}
    records = [
        (ranks[_lane(e)], str(_action(e)), e["ts"] / US, (e["ts"] + e.get("dur", 0)) / US) for e in found
    ]
    return timeline_of(records, len(lanes))


def _is_run(event: object) -> bool:
    """Whether it says when an action ran."""
    timed = isinstance(event, dict) and event.get("ph") == "X" and isinstance(event.get("ts"), int | float)
    return timed and _action(event) is not None


def _lane(event: dict[str, Any]) -> tuple[str, int, str, int]:
    """What holds a rank's events, in an order in which 10 stands behind 9; pid and tid may be numbers or
    text.
    """
    pid, tid = event.get("pid", 0), event.get("tid", 0)
    return _sortable(pid) + _sortable(tid)


def _sortable(value: object) -> tuple[str, int]:
    return ("", value) if isinstance(value, int) else (str(value), 0)


def _action(event: dict[str, Any]) -> Action | None:
    try:
        return Action.parse(str(event.get("name", "")).removeprefix("PP:"))
    except BadAction:
        return None


def _events(pid: int, run: Run) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": run.title}}
    for rank, spans in enumerate(run.timeline.spans):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": rank, "args": {"name": f"rank {rank}"}}
        for span in spans:
            action = span.action
            yield {
                "ph": "X",
                "name": str(action),
                "cat": KINDS[action.kind],
                "pid": pid,
                "tid": rank,
                "ts": span.start_s * US,
                "dur": (span.end_s - span.start_s) * US,
                "args": {"stage": action.stage, "micro_batch": action.micro_batch},
            }
    for number, sent in enumerate(run.timeline.transfers):
        arrow = {"name": f"send {sent.action}", "cat": "transfer", "id": f"{pid}.{number}", "pid": pid}
        yield {**arrow, "ph": "s", "tid": sent.rank, "ts": sent.start_s * US}
        yield {**arrow, "ph": "f", "bp": "e", "tid": sent.to, "ts": sent.end_s * US}
    yield from _counters(pid, run.timeline, run.costs)


def _counters(pid: int, timeline: Timeline, costs: Sequence[StageCost] | None) -> Iterator[dict[str, Any]]:
    for rank, curve in enumerate(timeline.memory(costs) if costs is not None else []):
        for when_s, held in curve:
            name = f"activations of rank {rank}"
            yield {"ph": "C", "name": name, "pid": pid, "ts": when_s * US, "args": {"bytes": held}}
