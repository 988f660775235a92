"""Greedy grouping of nodes into kernels: joins pairs of groups, those that save the most traffic first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from shardc.cost.work import LAUNCH_BYTES
from shardc.diagnostics.passes.fusion import FusionRefused
from shardc.passes.fuse.grouping.constraints import BlockConstraints, Pair
from shardc.passes.fuse.grouping.legal import Refused, check, check_related, joined_space, size_hint
from shardc.passes.fuse.reading.graph import Value
from shardc.passes.fuse.reading.unit import Unit, Units, delays, in_order, joined

ROUNDS = 4
"""Number of passes over all pairs, since joining one pair can make another legal."""


Misfits = dict[tuple[Unit, Unit], Refused]
"""Pairs that can never be joined, with the reason: dims do not match, or one kernel cannot compute both."""


@dataclass(frozen=True)
class Decision:
    """Decision whether two calls share a kernel (``fused``), and the reason.

    ``saved_bytes`` is the memory traffic that fusion saves or would save, including a launch in bytes.
    ``constrained``: a user's edge decided.
    """

    first: int
    second: int
    fused: bool
    saved_bytes: int
    why: str = ""
    constrained: bool = False

    def __str__(self) -> str:
        saved = f"a launch and {self.saved_bytes - LAUNCH_BYTES:,} bytes"
        return f"fused: saves {saved}" if self.fused else f"not fused: {self.why} (it would save {saved})"


FORCED = float(1 << 62)
"""Saving that a forced pair counts as: more than any other pair, less than parts of one call."""


def group(units: Units, constraints: BlockConstraints = BlockConstraints()) -> list[Decision]:  # noqa: B008 (it is frozen)
    """Join the groups of ``units``. Return the decision on each pair considered.

    Raises FusionRefused for an edge that ``constraints`` force and that is illegal.
    """
    decisions: dict[tuple[int, int], Decision] = {}
    misfits: Misfits = {}
    for _ in range(ROUNDS):
        candidates = sorted(_candidates(units, constraints), key=lambda c: c[0], reverse=True)
        became: dict[Unit, Unit] = {}
        for saving, one, other in candidates:
            a, b = _current(one, became), _current(other, became)
            if a is b:
                continue
            pair = _adjacent(one, other)
            saved_bytes = traffic_saved(units, a, b)
            try:
                new = _join(units, a, b, constraints, misfits)
            except Refused as why:
                # a decision on a forced pair is final
                is_known = saving == FORCED and pair in decisions
                if saving != inf and pair[0] != pair[1] and not is_known:
                    forbidden = constraints.forbids(a.calls, b.calls) is not None
                    decisions[pair] = Decision(*pair, False, saved_bytes, str(why), forbidden)
                continue
            became[a] = became[b] = new
            if pair[0] != pair[1]:
                decisions[pair] = Decision(*pair, True, saved_bytes, constrained=saving == FORCED)
        if not became:
            break
    _check_forced(units, constraints, decisions)
    return list(decisions.values())


def _adjacent(a: Unit, b: Unit) -> tuple[int, int]:
    """Return two calls, one from each group: one reads the other's result, or both read the same tensor."""
    for x, y in ((a, b), (b, a)):
        for value in y.accesses:
            if value.node is not None and value.node in x.domains:
                return _ordered(value.node.call, _reader(y, value))
    shared = next((value for value in a.accesses if value in b.accesses), None)
    return _ordered(_reader(a, shared), _reader(b, shared))


def _reader(unit: Unit, value: Value | None) -> int:
    """Return the first call of a group that reads ``value``, else the group's first call."""
    calls = (n.call for n in unit.nodes if any(access.base is value for access in n.accesses))
    return next(calls, min(unit.calls))


def _ordered(x: int, y: int) -> tuple[int, int]:
    return min(x, y), max(x, y)


def _check_forced(
    units: Units, constraints: BlockConstraints, decisions: dict[tuple[int, int], Decision]
) -> None:
    """Check that adjacent calls of each forced edge share their kernels. Raises FusionRefused."""
    together = [unit.calls for unit in units.groups]
    for edge, pairs in constraints.forced.items():
        apart = [pair for pair in pairs if not any(pair <= calls for calls in together)]
        open_ = (decision for decision in decisions.values() if not decision.fused)
        refused = [d.why for d in open_ if frozenset((d.first, d.second)) in apart]
        if refused or len(apart) == len(pairs):
            raise FusionRefused(edge=edge, why=refused[0] if refused else _unrelated(units, pairs))


def _unrelated(units: Units, pairs: set[Pair]) -> str:
    """Return why no pair was considered."""
    calls = set().union(*pairs)
    staying = [u.step for u in units.steps if u.step is not None and u.step.number in calls]
    if staying:
        return f"{staying[0].target} {staying[0].why or 'stays a call'}"
    return "they share no tensor"


def _current(unit: Unit, became: dict[Unit, Unit]) -> Unit:
    while unit in became:
        unit = became[unit]
    return unit


def _candidates(units: Units, constraints: BlockConstraints) -> Iterator[tuple[float, Unit, Unit]]:
    """Yield pairs of groups that share a tensor, with the savings of joining them; parts of one call
    first.
    """
    pairs = [(a, b) for a in units.groups for b in sorted(a.after, key=in_order) if b.nodes]
    for readers in units.readers.values():
        pairs += itertools.pairwise(sorted((u for u in readers if u.nodes), key=in_order))
    seen = dict[frozenset[Unit], tuple[Unit, Unit]]()
    for a, b in pairs:
        seen.setdefault(frozenset((a, b)), (a, b))
    for a, b in seen.values():
        yield _rank(units, a, b, constraints), a, b


def _rank(units: Units, a: Unit, b: Unit, constraints: BlockConstraints) -> float:
    if a.calls & b.calls and not (a.is_loose or b.is_loose):
        return inf
    is_forced = constraints.forced and constraints.forces(a.calls, b.calls)
    return FORCED if is_forced else traffic_saved(units, a, b)


def traffic_saved(units: Units, a: Unit, b: Unit) -> int:
    """Return the bytes that one kernel for both no longer writes and reads, plus a launch."""
    saved = LAUNCH_BYTES
    both = {a, b}
    for unit, other in ((a, b), (b, a)):
        for value in unit.accesses:
            if units.maker.get(value) is other:
                inside = units.readers[value] <= both and value not in units.kept
                saved += size_hint(value.type) * (2 if inside else 1)
    shared = a.accesses.keys() & b.accesses.keys()
    return saved + sum(size_hint(v.type) for v in shared if units.maker.get(v) not in both)


def _join(units: Units, a: Unit, b: Unit, constraints: BlockConstraints, misfits: Misfits) -> Unit:
    """Join two units. Raises Refused; then only ``misfits`` has changed."""
    forbidding = constraints.forbids(a.calls, b.calls)
    if forbidding is not None:
        raise Refused(f"forbidden by {forbidding}")
    _check_made_again(units, a, b)
    new = _fitting(units, a, b, misfits)
    waits = delays(a, b)  # last, because it visits all readers of a value
    if waits is None:
        raise Refused("an op between them depends on one and feeds the other")
    new.time, moved = waits
    for unit, later in moved.items():
        unit.time = later
    _replace(units, a, b, new)
    return new


def _fitting(units: Units, a: Unit, b: Unit, misfits: Misfits) -> Unit:
    """Return a joined unit, not yet scheduled. Raises Refused; it is permanent if ``misfits`` then has the
    pair.
    """
    if (a, b) in misfits:
        raise misfits[a, b]
    try:
        check_related(a, b)
        space = joined_space(a, b)
    except Refused as why:
        misfits[a, b] = why
        raise
    new = joined(a, b, space)
    try:
        check(new, lambda: {v.node.out for v in exports(units, {a, b}) if v.node is not None})
    except Refused as why:
        if not any(node.contracts for node in new.nodes):  # else values that other units read count, too
            misfits[a, b] = why
        raise
    return new


def _check_made_again(units: Units, a: Unit, b: Unit) -> None:
    """Check that joining does not undo savings of activation checkpointing. Raises Refused."""
    phases = units.phases_of(a) | units.phases_of(b)
    if "recompute" not in phases or len(phases) == 1:
        return
    if "forward" in phases:
        raise Refused("one is recomputed in the backward, so that it is not kept in memory since the forward")
    nodes = (value.node for value in exports(units, {a, b}))
    if any(node is not None and units.phases[node.call] == "recompute" for node in nodes):
        raise Refused("a recomputed result that other ops read would stay in memory longer")


def exports(units: Units, group: set[Unit]) -> list[Value]:
    """Return the values of ``group`` that are read outside it, in program order."""
    nodes = sorted((node for unit in group for node in unit.nodes), key=lambda node: node.order)
    found = []
    for node in nodes:
        read = [v for v in (node.out, *node.others) if v in units.kept or units.readers.get(v, set()) - group]
        named = [v for v in read if v.ir is not None]
        found += named or read
    return found


def _replace(units: Units, a: Unit, b: Unit, new: Unit) -> None:
    both = {a, b}
    new.before, new.after = (a.before | b.before) - both, (a.after | b.after) - both
    readers = (units.readers[value] for value in new.accesses)
    for found in (*(unit.after for unit in new.before), *(unit.before for unit in new.after), *readers):
        found -= both
        found.add(new)
    for unit in (a, b):
        for node in unit.nodes:
            units.maker.update(dict.fromkeys((node.out, *node.others), new))
        del units.groups[unit]
        # break reference cycles, which only the garbage collector would free
        unit.before, unit.after = set(), set()
    units.groups[new] = None
