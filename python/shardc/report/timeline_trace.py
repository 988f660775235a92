"""Pipeline timelines as Chrome trace JSON, for Perfetto and chrome://tracing; and the reader of such traces.

Each run is a process, each rank a thread and each action an event. Arrows show messages, and a counter shows
each rank's memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shardc.cost.timeline import Timeline, timeline_of
from shardc.diagnostics.passes.pipeline import BadAction, BadTrace
from shardc.dialects.pipe.action import KINDS, Action
from shardc.report.timeline_svg import Run
from shardc.report.traces.predicted import PREDICTED
from shardc.text_files import read_text

Event = dict[str, Any]
US = 1e6
"""Microseconds per second: trace times are in microseconds."""


def write_trace(runs: Sequence[Run]) -> str:
    """Return one trace with all runs, each with its title."""
    events = [event for number, run in enumerate(runs) for event in _events(number, run)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def read_trace(text: str, where: str | None = None) -> Timeline:
    """Read the timeline of a run from a trace.

    The events are those named like an action: ``2F0``, or ``PP:2F0`` in torch's traces. A rank is a process
    or a thread. Raises BadTrace.
    """
    try:
        trace = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadTrace(problem=f"it is not JSON: {error}", where=where) from None
    events = trace.get("traceEvents", []) if isinstance(trace, dict) else trace
    found = [event for event in events if _is_run(event)] if isinstance(events, list) else []
    if not found:
        raise BadTrace(problem="it has no event named like an action", where=where)
    lanes = sorted({_lane(e) for e in found})
    ranks = {lane: number for number, lane in enumerate(lanes)}
    records = [
        (ranks[_lane(e)], str(_action(e)), e["ts"] / US, (e["ts"] + e.get("dur", 0)) / US) for e in found
    ]
    return timeline_of(records, len(lanes))


def read_run(path: Path) -> Timeline:
    """Read the measured run from a trace file. Raises BadTrace, UnreadableInput."""
    return read_trace(read_text(path), where=str(path))


def _is_run(event: object) -> bool:
    """Return True if an event is a measured action with its time."""
    if not isinstance(event, dict) or event.get("ph") != "X" or event.get("cat") == PREDICTED:
        return False
    return isinstance(event.get("ts"), int | float) and _action(event) is not None


def _lane(event: Event) -> tuple[tuple[str, int], ...]:
    """Return a sortable key of an event's rank. Its pid and tid may be numbers or text; 9 sorts before 10."""
    ids = event.get("pid", 0), event.get("tid", 0)
    return tuple(("", id_) if isinstance(id_, int) else (str(id_), 0) for id_ in ids)


def _action(event: Event) -> Action | None:
    try:
        return Action.parse(str(event.get("name", "")).removeprefix("PP:"))
    except BadAction:
        return None


def _events(pid: int, run: Run) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": run.title}}
    for rank, spans in enumerate(run.timeline.spans):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": rank, "args": {"name": f"rank {rank}"}}
        for span in spans:
            action = span.action
            what = {"ph": "X", "name": str(action), "cat": KINDS[action.kind], "pid": pid, "tid": rank}
            when = {"ts": span.start_s * US, "dur": (span.end_s - span.start_s) * US}
            yield {**what, **when, "args": {"stage": action.stage, "micro_batch": action.micro_batch}}
    for number, sent in enumerate(run.timeline.transfers):
        arrow = {"name": f"send {sent.action}", "cat": "transfer", "id": f"{pid}.{number}", "pid": pid}
        yield {**arrow, "ph": "s", "tid": sent.rank, "ts": sent.start_s * US}
        yield {**arrow, "ph": "f", "bp": "e", "tid": sent.to, "ts": sent.end_s * US}
    for rank, curve in enumerate(run.timeline.memory(run.costs) if run.costs is not None else []):
        for when_s, held in curve:
            name = f"activations of rank {rank}"
            yield {"ph": "C", "name": name, "pid": pid, "ts": when_s * US, "args": {"bytes": held}}
