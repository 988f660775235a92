"""Writer of protocol buffers' wire format: four kinds of fields, without a schema or a package.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_MOST_BITS = 64


def varint(number: int) -> bytes:
    """Encode an integer in 7-bit groups, the lowest first; a negative one as 64-bit two's complement."""
    number &= (1 << _MOST_BITS) - 1
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def number(field: int, value: int | bool) -> bytes:
    """Encode a field of type int32, int64, uint64, bool or an enumeration."""
    return varint(field << 3 | _VARINT) + varint(int(value))


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """Encode a field of type message or bytes."""
    content = b"".join(parts)
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def packed(field: int, values: Iterable[int | bool]) -> bytes:
    """Encode a packed repeated field of integers; empty if there are none."""
    content = b"".join(varint(int(value)) for value in values)
    return message(field, content) if content else b""


def delimited(content: bytes) -> bytes:
    """Prefix a message with its length, for a file of several messages."""
    return varint(len(content)) + content
