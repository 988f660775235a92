"""Perfetto traces, read by the message classes of Perfetto's own package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor, TrackEvent


@dataclass
class Read:
    """A Perfetto trace by its own message classes: for each process its tracks of slices, and of points."""

    processes: dict[str, dict[str, list[tuple[str, int, int, dict[str, Any]]]]]
    counters: dict[str, dict[str, list[tuple[int, int]]]]


def read_perfetto(content: bytes) -> Read:
    trace, read = Trace(), Read({}, {})
    trace.ParseFromString(content)
    process: dict[int, str] = {}
    track: dict[int, tuple[str, str]] = {}
    opened: dict[int, TrackEvent] = {}
    began: dict[int, int] = {}
    last = 0
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id
        if packet.HasField("track_descriptor"):
            _declare(packet.track_descriptor, process, track, read)
            continue
        assert packet.timestamp >= last  # in the order of time, as streaming readers want it
        last, event = packet.timestamp, packet.track_event
        of_process, name = track[event.track_uuid]
        if event.type == TrackEvent.TYPE_COUNTER:
            read.counters[of_process][name].append((packet.timestamp, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in opened
            opened[event.track_uuid], began[event.track_uuid] = event, packet.timestamp
        else:
            begin = opened.pop(event.track_uuid)
            about = {a.name: getattr(a, a.WhichOneof("value")) for a in begin.debug_annotations}
            found = (begin.name, began[event.track_uuid], packet.timestamp, about)
            read.processes[of_process].setdefault(name, []).append(found)
    assert not opened
    return read


def _declare(
    found: TrackDescriptor, process: dict[int, str], track: dict[int, tuple[str, str]], read: Read
) -> None:
    if found.HasField("process"):
        process[found.uuid] = found.process.process_name
        read.processes[found.process.process_name], read.counters[found.process.process_name] = {}, {}
        return
    track[found.uuid] = (process[found.parent_uuid], found.name)
    if found.HasField("counter"):
        assert found.counter.unit == 3  # UNIT_SIZE_BYTES
        read.counters[process[found.parent_uuid]][found.name] = []
