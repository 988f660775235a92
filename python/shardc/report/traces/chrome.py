"""Traces as Chrome's JSON, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from shardc.report.traces.tracks import Process

US = 1e6
"""Trace time is in microseconds."""


def chrome_trace(processes: Sequence[Process]) -> str:
    """Return one trace of all processes, in their order, with a thread for each track."""
    events = [event for pid, process in enumerate(processes, 1) for event in _events(pid, process)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, separators=(",", ":")) + "\n"


def _events(pid: int, process: Process) -> Iterator[dict[str, object]]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": process.name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    for tid, track in enumerate(process.tracks):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": track.name}}
        for one in track.slices:
            when = {"ts": one.start_s * US, "dur": (one.end_s - one.start_s) * US}
            what = {"ph": "X", "name": one.name, "cat": one.category, "pid": pid, "tid": tid}
            yield {**what, **when, "args": dict(one.about)}
    for counter in process.counters:
        for when_s, held in counter.points:
            yield {"ph": "C", "name": counter.name, "pid": pid, "ts": when_s * US, "args": {"bytes": held}}
