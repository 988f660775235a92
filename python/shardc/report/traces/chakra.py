"""Predicted step of a rank as a Chakra execution trace, for network simulators such as ASTRA-sim.

The format is that of ``schema/protobuf/et_def.proto`` in https://github.com/mlcommons/chakra: a
GlobalMetadata, then a Node for each kernel, collective and message, each preceded by its length. Attributes
are those that Chakra's own converters write. The schema with which a test reads the files is our own text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shardc.cost.step.spans import ItemSpan, Message, RankSpans
from shardc.report.source_lines import shown
from shardc.report.traces.protobuf import delimited, message, number, packed, text

VERSION = "0.0.4"
US = 1e6
"""Trace time is in whole microseconds."""
COMP, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Types of nodes."""
COMM_TYPES = {
    "all_reduce": 0,
    "all_gather": 2,
    "broadcast": 5,
    "all_to_all": 6,
    "exchange": 6,
    "permute": 6,  # programs run it as all_to_all_single with one block
    "reduce_scatter": 7,
}


def chakra_trace(rank: RankSpans, mesh: Mapping[str, int], devices: Sequence[int]) -> bytes:
    """Return the trace of one distinct rank. ``devices``: the positions of all distinct ranks on the mesh."""
    shape = ",".join(f"{name}={size}" for name, size in mesh.items())
    rank_number = devices[rank.rank]
    about = _text("mesh", shape), _integer("rank", rank_number)
    metadata = text(1, VERSION) + b"".join(message(2, attribute) for attribute in about)
    nodes = _Nodes(rank, tuple(mesh), devices)
    return b"".join(map(delimited, (metadata, *nodes.written())))


class _Nodes:
    """Nodes of a rank in program order, numbered from 0.

    A node has data dependences on the nodes whose results it reads. Its control dependences keep the order of
    each stream, and start a part of the program after the kernels of the part before.
    """

    def __init__(self, rank: RankSpans, axes: Sequence[str], devices: Sequence[int]) -> None:
        self._rank, self._axes, self._devices = rank, axes, devices
        self._count = 0
        self._of_item: dict[int, int] = {}
        self._last: dict[tuple[str, ...], int] = {}
        """Stream -> number of its last node."""

    def written(self) -> Iterator[bytes]:
        parts: dict[int, list[tuple[int, ItemSpan]]] = {}
        for place, span in enumerate(self._rank.items):
            parts.setdefault(span.part, []).append((place, span))
        received, sent = self._messages(True), self._messages(False)
        for part in sorted({*parts, *received, *sent}):
            before = self._last.get((), None)
            got = [self._count + n for n in range(len(received.get(part, ())))]
            yield from (self._message(one, []) for one in received.get(part, ()))
            for place, span in parts.get(part, ()):
                first = [n for n in (before, *got) if n is not None] if not span.needs else []
                yield self._item(place, span, first)
            made = [n for n in (self._last.get(()),) if n is not None]
            yield from (self._message(one, made) for one in sent.get(part, ()))

    def _messages(self, is_received: bool) -> dict[int, list[Message]]:
        found: dict[int, list[Message]] = {}
        for one in self._rank.messages:
            if one.is_received == is_received:
                found.setdefault(one.part, []).append(one)
        return found

    def _item(self, place: int, span: ItemSpan, first: Sequence[int]) -> bytes:
        item = span.item
        previous = self._last.get(span.stream)
        controls = sorted({*first, *(() if previous is None else (previous,))})
        reads = [self._of_item[need] for need in span.needs]
        self._of_item[place] = self._last[span.stream] = self._count
        attributes = [_boolean("is_cpu_op", False), _text("phase", item.phase)]
        if item.where:
            attributes.append(_text("line", shown(item.where)))
        if item.kind == "collective":
            kind, more = COLLECTIVE, self._of_collective(span)
        else:
            kind = COMP
            more = [_integer("num_ops", round(item.flops)), _size("tensor_size", round(item.moved_bytes))]
        name = f"{item.name or item.kind}"
        return self._node(name, kind, controls, reads, (span.start_s, span.end_s), attributes + more)

    def _of_collective(self, span: ItemSpan) -> list[bytes]:
        item = span.item
        spanned = {axis.name for axis in item.axes}
        involved = [axis in spanned for axis in reversed(self._axes)]
        return [
            _integer("comm_type", COMM_TYPES[item.collective]),
            _integer("comm_size", round(item.moved_bytes)),
            _booleans("involved_dim", involved),
            _text("pg_name", ",".join(str(axis) for axis in item.axes)),
        ]

    def _message(self, one: Message, reads: Sequence[int]) -> bytes:
        own, other = self._devices[self._rank.rank], self._devices[one.other]
        source, target = (other, own) if one.is_received else (own, other)
        attributes = [
            _boolean("is_cpu_op", False),
            _integer("comm_size", round(one.size_bytes)),
            _integer("comm_src", source, 7),
            _integer("comm_dst", target, 7),
            _integer("comm_tag", one.tag, 7),
        ]
        kind, name = (RECEIVE, "receive") if one.is_received else (SEND, "send")
        return self._node(name, kind, [], reads, (one.start_s, one.end_s), attributes)

    def _node(
        self,
        name: str,
        kind: int,
        controls: Sequence[int],
        reads: Sequence[int],
        times_s: tuple[float, float],
        attributes: Sequence[bytes],
    ) -> bytes:
        own, (start, end) = self._count, (round(time_s * US) for time_s in times_s)
        self._count += 1
        head = number(1, own) + text(2, name) + number(3, kind) + packed(4, controls) + packed(5, reads)
        times = number(6, start) + number(7, end - start)
        return head + times + b"".join(message(10, attribute) for attribute in attributes)


def _attribute(name: str, value: bytes) -> bytes:
    return text(1, name) + value


def _integer(name: str, value: int, field: int = 9) -> bytes:
    """Return an int64 attribute, or with field 7 an int32."""
    return _attribute(name, number(field, value))


def _size(name: str, value: int) -> bytes:
    return _attribute(name, number(13, value))


def _boolean(name: str, value: bool) -> bytes:
    return _attribute(name, number(27, value))


def _booleans(name: str, values: Sequence[bool]) -> bytes:
    return _attribute(name, message(28, packed(1, values)))


def _text(name: str, value: str) -> bytes:
    return _attribute(name, text(29, value))
