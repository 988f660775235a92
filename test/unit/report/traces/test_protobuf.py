"""The wire format against protobuf's own messages."""

from __future__ import annotations

import pytest
from google.protobuf.wrappers_pb2 import BoolValue, DoubleValue, Int64Value, StringValue
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from shardc.report.traces.protobuf import delimited, double, message, number, packed, text, varint


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**63 - 1, -1, -(2**63)])
def test_integers(value: int) -> None:
    assert Int64Value.FromString(number(1, value)).value == value


def test_other_fields() -> None:
    assert DoubleValue.FromString(double(1, 0.1)).value == 0.1
    assert BoolValue.FromString(number(1, True)).value is True
    assert StringValue.FromString(text(1, "größer ✓")).value == "größer ✓"


def test_messages_in_messages() -> None:
    event = message(11, number(9, 4), number(11, 7), packed(31, [1, 300]), number(30, -5))
    read = TracePacket.FromString(event + number(8, 10**18))
    assert read.timestamp == 10**18
    assert (read.track_event.track_uuid, read.track_event.counter_value) == (7, -5)
    assert packed(4, []) == b""


def test_a_message_behind_its_length() -> None:
    assert delimited(b"x" * 200) == varint(200) + b"x" * 200 and varint(200) == b"\xc8\x01"
