"""Which nodes become one kernel: pairs of groups are joined, those first that save the most memory traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from shardc.passes.fuse.graph import Value
from shardc.passes.fuse.legal import Refused, check, joined_space
from shardc.passes.fuse.unit import Unit, Units, delays

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
        joined: dict[Unit, Unit] = {}
        for saving, a, b in candidates:
            a, b = _current(a, joined), _current(b, joined)
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
            joined[a] = joined[b] = new
            if pair[0] != pair[1]:
                decisions[pair] = Decision(*pair, True, saved_bytes)
        if not joined:
            break
    return list(decisions.values())


def _current(unit: Unit, joined: dict[Unit, Unit]) -> Unit:
    while unit in joined:
        unit = joined[unit]
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
        for a, b in zip(groups, groups[1:], strict=False):
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
    nodes = sorted([*a.nodes, *b.nodes], key=lambda node: node.order)
    check(nodes, space, {v.node.out for v in exports(units, {a, b}) if v.node is not None})
    time, moved = waits
    new = Unit(nodes=nodes, space=space, time=time)
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
    for unit in (a, b):
        for node in unit.nodes:
            for value in (node.out, *node.others):
                units.maker[value] = new
        for value, accesses in unit.accesses.items():
            new.accesses.setdefault(value, []).extend(accesses)
            units.readers[value].discard(unit)
            units.readers[value].add(new)
        for neighbour in unit.before:
            neighbour.after.discard(unit)
            neighbour.after.add(new)
        for neighbour in unit.after:
            neighbour.before.discard(unit)
            neighbour.before.add(new)
    new.before = (a.before | b.before) - {a, b}
    new.after = (a.after | b.after) - {a, b}
    del units.groups[a], units.groups[b]
    units.groups[new] = None
