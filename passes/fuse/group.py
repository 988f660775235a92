"""Which nodes become one kernel: pairs of groups are joined, those first that save the most memory traffic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from shardc.passes.fuse.graph import Value
from shardc.passes.fuse.legal import Refused, check, joined_space
from shardc.passes.fuse.unit import Unit, Units, delays, joined

LAUNCH_BYTES = 1 << 16
"""What starting one op costs, in bytes of memory traffic: about 5 us at 13 GB/s."""
ROUNDS = 4
"""How often all pairs are looked at: joining one can make another legal."""


@dataclass(frozen=True)
class Decision:
    """Why two calls are in one kernel (``fused``), or are not. ``saved_bytes`` of memory traffic are (or would be) saved."""

    first: int
    second: int
    fused: bool
    saved_bytes: int
    why: str = ""

    def __str__(self) -> str:
        if self.fused:
            return f"fused: saves {self.saved_bytes:,} bytes"
        return f"not fused: {self.why} (it would save {self.saved_bytes:,} bytes)"


def group(units: Units) -> list[Decision]:
    """Join the groups of ``units``; says of each pair that was looked at how it came out."""
    decisions: dict[tuple[int, int], Decision] = {}
    for _ in range(ROUNDS):
        candidates = sorted(_candidates(units), key=lambda c: c[0], reverse=True)
        became: dict[Unit, Unit] = {}
        for saving, a, b in candidates:
            a, b = _current(a, became), _current(b, became)
            if a is b:
                continue
            pair = (min(a.calls), min(b.calls))
            saved_bytes = traffic_saved(units, a, b)
            try:
                new = _join(units, a, b)
            except Refused as why:
                if saving != inf:
                    decisions[pair] = Decision(*pair, False, saved_bytes, str(why))
                continue
            became[a] = became[b] = new
            if pair[0] != pair[1]:
                decisions[pair] = Decision(*pair, True, saved_bytes)
        if not became:
            break
    return list(decisions.values())


def _current(unit: Unit, became: dict[Unit, Unit]) -> Unit:
    while unit in became:
        unit = became[unit]
    return unit


def _candidates(units: Units) -> Iterator[tuple[float, Unit, Unit]]:
    """Pairs of groups that share a tensor, with what joining them saves; parts of one call come first."""
    seen: set[frozenset[Unit]] = set()
    for a in units.groups:
        for b in sorted(a.after, key=lambda u: u.time):
            if b.nodes:
                seen.add(frozenset((a, b)))
                yield (inf if a.calls & b.calls else traffic_saved(units, a, b)), a, b
    for readers in units.readers.values():
        groups = sorted((u for u in readers if u.nodes), key=lambda u: u.time)
        for a, b in itertools.pairwise(groups):
            if frozenset((a, b)) not in seen:
                seen.add(frozenset((a, b)))
                yield (inf if a.calls & b.calls else traffic_saved(units, a, b)), a, b


def traffic_saved(units: Units, a: Unit, b: Unit) -> int:
    """Bytes that are no longer written and read, and a launch, if the two are one kernel."""
    saved = LAUNCH_BYTES
    both = {a, b}
    for unit, other in ((a, b), (b, a)):
        for value in unit.accesses:
            if units.maker.get(value) is other:
                inside = units.readers[value] <= both and value not in units.kept
                saved += value.type.size_bytes * (2 if inside else 1)
    shared = a.accesses.keys() & b.accesses.keys()
    return saved + sum(v.type.size_bytes for v in shared if units.maker.get(v) not in both)


def _join(units: Units, a: Unit, b: Unit) -> Unit:
    """One unit for both. Raises Refused, and then nothing has changed."""
    space = joined_space(a, b)
    waits = delays(a, b)
    if waits is None:
        raise Refused("something between them needs one and is needed by the other")
    new = joined(a, b, space)
    check(new.nodes, space, {v.node.out for v in exports(units, {a, b}) if v.node is not None})
    new.time, moved = waits
    for unit, later in moved.items():
        unit.time = later
    _replace(units, a, b, new)
    return new


def exports(units: Units, group: set[Unit]) -> list[Value]:
    """The values of the program that come from ``group`` and are read outside of it, in the order of the program."""
    nodes = sorted((node for unit in group for node in unit.nodes), key=lambda node: node.order)
    values = [v for node in nodes for v in (node.out, *node.others)]
    return [v for v in values if v in units.kept or units.readers.get(v, set()) - group]


def _replace(units: Units, a: Unit, b: Unit, new: Unit) -> None:
    new.before, new.after = (a.before | b.before) - {a, b}, (a.after | b.after) - {a, b}
    for neighbour in new.before:
        neighbour.after = (neighbour.after - {a, b}) | {new}
    for neighbour in new.after:
        neighbour.before = (neighbour.before - {a, b}) | {new}
    for unit in (a, b):
        for value in unit.accesses:
            units.readers[value] = (units.readers[value] - {unit}) | {new}
        for node in unit.nodes:
            units.maker.update(dict.fromkeys((node.out, *node.others), new))
        del units.groups[unit]
    units.groups[new] = None
