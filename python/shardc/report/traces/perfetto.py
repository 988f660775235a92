"""Traces as Perfetto's TrackEvent protocol buffers, which ui.perfetto.dev opens.

Field numbers are those of ``protos/perfetto/trace``. The writer is :mod:`shardc.report.traces.protobuf`,
since Perfetto's own package needs ``protobuf``, and the few kinds of fields used here do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardc.report.traces.protobuf import double, message, number, text
from shardc.report.traces.tracks import Counter, Process, Slice, Track, Value

SUFFIXES = (".pftrace", ".perfetto-trace")
NS = 1e9
"""Trace time is in nanoseconds."""
_BEGIN, _END, _COUNTER = 1, 2, 4
_SIZE_BYTES = 3
_EXPLICIT = 3
_SEQUENCE = 1
_Event = tuple[int, bytes]


def perfetto_trace(processes: Sequence[Process]) -> bytes:
    """Return one trace of all processes, in their order."""
    descriptors: list[bytes] = []
    events: list[_Event] = []
    uuid = 0
    for pid, process in enumerate(processes, 1):
        parent = uuid = uuid + 1
        descriptors.append(_process(parent, pid, process.name))
        for place, track in enumerate([*process.tracks, *process.counters]):
            uuid += 1
            descriptors.append(_track(uuid, parent, place, track))
            events += _slices(uuid, track) if isinstance(track, Track) else _points(uuid, track)
    events.sort(key=lambda event: event[0])
    return b"".join([*map(_packet, descriptors), *(_packet(number(8, t), event) for t, event in events)])


def _packet(*parts: bytes) -> bytes:
    """Return a packet of the trace. All packets belong to one sequence."""
    return message(1, *parts, number(10, _SEQUENCE))


def _process(uuid: int, pid: int, name: str) -> bytes:
    of_process = message(3, number(1, pid), text(6, name))
    return message(60, number(1, uuid), text(2, name), of_process, number(11, _EXPLICIT))


def _track(uuid: int, parent: int, place: int, track: Track | Counter) -> bytes:
    counter = message(8, number(3, _SIZE_BYTES)) if isinstance(track, Counter) else b""
    named = text(2, track.name)
    return message(60, number(1, uuid), named, number(5, parent), counter, number(12, place))


def _slices(uuid: int, track: Track) -> Iterator[_Event]:
    for one in track.slices:
        yield _nanoseconds(one.start_s), message(11, number(9, _BEGIN), number(11, uuid), _described(one))
        yield _nanoseconds(one.end_s), message(11, number(9, _END), number(11, uuid))


def _points(uuid: int, counter: Counter) -> Iterator[_Event]:
    for when_s, held in counter.points:
        event = message(11, number(9, _COUNTER), number(11, uuid), number(30, held))
        yield _nanoseconds(when_s), event


def _described(one: Slice) -> bytes:
    about = b"".join(message(4, text(10, name), _value(value)) for name, value in one.about.items())
    return (text(22, one.category) if one.category else b"") + text(23, one.name) + about


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return text(6, value)
    return number(4, value) if isinstance(value, int) else double(5, value)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NS)
