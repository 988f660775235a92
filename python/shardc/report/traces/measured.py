"""Tracks of a recorded step, read from the trace that :mod:`shardc.runtime.report.timeline` writes."""

from __future__ import annotations

import json
from typing import Any

from shardc.report.traces.chrome import US
from shardc.report.traces.tracks import Counter, Process, Slice, Track

Event = dict[str, Any]


def measured_processes(text: str) -> list[Process]:
    """Return a process for each rank, in the order of ranks."""
    of_rank: dict[int, list[Event]] = {}
    for event in json.loads(text)["traceEvents"]:
        of_rank.setdefault(event["pid"], []).append(event)
    return [_process(rank, events) for rank, events in sorted(of_rank.items())]


def _process(rank: int, events: list[Event]) -> Process:
    titles = (e["args"]["name"] for e in events if e["name"] == "process_name")
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices: dict[int, list[Slice]] = {tid: [] for tid in threads}
    points: dict[str, list[tuple[float, int]]] = {}
    for event in events:
        start_s = event.get("ts", 0.0) / US
        if event["ph"] == "X":
            end_s = (event["ts"] + event["dur"]) / US
            slices[event["tid"]].append(Slice(event["name"], start_s, end_s, event["cat"], event["args"]))
        elif event["ph"] == "C":
            points.setdefault(event["name"], []).append((start_s, event["args"]["bytes"]))
    tracks = (Track(name, tuple(slices[tid])) for tid, name in threads.items())
    counters = (Counter(name, tuple(found)) for name, found in points.items())
    return Process(next(titles, f"rank {rank} (measured)"), tuple(tracks), tuple(counters), rank)
