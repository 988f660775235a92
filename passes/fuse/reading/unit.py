"""Units of scheduling, each an op that stays or the nodes of a growing kernel, and their earliest times.

Ops that stay keep their order: number ``n`` runs at time ``(n, 0)``. A kernel can run right after its last
operand, at ``(n, k)``. So the schedule allows a group if all its readers can run later. Readers of a
collective's result do not run before their place in the program, so that other ops run during the collective.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from shardc.dialects.dist.collectives.names import COLLECTIVES
from shardc.passes.fuse.reading.graph import Access, Block, Node, Step, Value
from shardc.passes.fuse.reading.space import Atoms, Space
from shardc.passes.manager.attributes import phase_of

Time = tuple[int, int]
START: Time = (-1, 0)


@dataclass(eq=False, slots=True)
class Unit:
    """Op that stays (``step``), or group of nodes. ``floor`` is its earliest time.

    ``before`` has the units that it reads, and ``after`` the units that read it.
    """

    step: Step | None = None
    nodes: list[Node] = field(default_factory=list)
    space: Space = field(default_factory=Space)
    time: Time = START
    floor: Time = START
    before: set[Unit] = field(default_factory=set)
    after: set[Unit] = field(default_factory=set)
    accesses: dict[Value, list[Access]] = field(default_factory=dict)
    """Accesses of the group to each tensor."""
    domains: dict[Node, Atoms] = field(default_factory=dict)
    """Atoms that each node loops over."""
    calls: set[int] = field(default_factory=set)
    """Numbers of the calls that the group's nodes belong to."""

    @property
    def is_fixed(self) -> bool:
        return self.step is not None and not self.step.is_view

    @property
    def is_awaited(self) -> bool:
        """Return whether the unit is a collective, or a view of a collective's result."""
        if self.step is None:
            return False
        behind_one = self.step.is_view and any(u.is_awaited for u in self.before)
        return self.step.op.name in COLLECTIVES or behind_one

    @property
    def is_loose(self) -> bool:
        """Return whether other nodes of its calls may be in other kernels."""
        return all(node.loose for node in self.nodes)


def unit_of(node: Node) -> Unit:
    """Return a group of one node."""
    unit = Unit(nodes=[node], space=node.space, calls={node.call})
    unit.domains[node] = node.space.resolve([a for dim in node.out_dims for a in dim] + list(node.reduced))
    for access in node.accesses:
        unit.accesses.setdefault(access.base, []).append(access)
    return unit


def in_order(unit: Unit) -> tuple[Time, tuple[int, int]]:
    """Return a key that sorts groups by time, then by program order: the same in every process."""
    return unit.time, unit.nodes[0].order if unit.nodes else START


def joined(a: Unit, b: Unit, space: Space) -> Unit:
    """Return one group of both, whose dims match in ``space``; not yet scheduled."""
    nodes = sorted([*a.nodes, *b.nodes], key=attrgetter("order"))
    unit = Unit(nodes=nodes, space=space, floor=max(a.floor, b.floor), calls=a.calls | b.calls)
    unit.accesses = dict(a.accesses)
    for value, accesses in b.accesses.items():
        unit.accesses[value] = [*unit.accesses.get(value, ()), *accesses]
    became = {atoms: space.resolve(atoms) for part in (a, b) for atoms in set(part.domains.values())}
    unit.domains = {node: became[atoms] for part in (a, b) for node, atoms in part.domains.items()}
    return unit


@dataclass
class Units:
    """Units of a block. ``readers`` has the units that read each value, ``kept`` the returned values, and
    ``phases`` the phase of each call by number.
    """

    steps: list[Unit]
    groups: dict[Unit, None]
    maker: dict[Value, Unit]
    readers: dict[Value, set[Unit]]
    kept: set[Value]
    phases: dict[int, str]

    def phases_of(self, unit: Unit) -> set[str]:
        """Return the phases of a group's calls."""
        return {self.phases[call] for call in unit.calls}


def needed_views(block: Block, fused: set[int], read: Iterable[Value] = ()) -> set[int]:
    """Return the numbers of the views that remaining ops, kernels of calls ``fused``, or the return read.

    ``read``: more values that kernels read.
    """
    views = {result: step for step in block.steps if step.is_view for result in step.results}
    wanted = [*block.returned, *read]
    for step in block.steps:
        if step.number in fused:
            wanted += [a.base for node in step.nodes for a in node.accesses]
        elif not step.is_view and not step.is_unread:
            wanted += step.operands
    needed: set[int] = set()
    while wanted:
        step = views.get(wanted.pop())
        if step is not None and step.number not in needed:
            needed.add(step.number)
            wanted += step.operands
    return needed


def make_units(block: Block) -> Units:
    """Create a unit for each op that stays, and for each node of lowered calls."""
    read = [step for step in block.steps if not step.is_unread]
    needed = needed_views(block, {step.number for step in read if step.nodes})
    phases = {step.number: phase_of(step.op) for step in block.steps}
    units = Units([], {}, {}, {}, set(block.returned), phases)
    for step in read:
        if step.nodes:
            for node in step.nodes:
                unit = unit_of(node)
                units.groups[unit] = None
                _connect(units, unit, list(unit.accesses))
                for value in (node.out, *node.others):
                    units.maker[value] = unit
                if node.check:
                    units.kept.add(node.out)
        elif not step.is_view or step.number in needed:
            unit = Unit(step)
            units.steps.append(unit)
            _connect(units, unit, step.operands)
            for result in step.results:
                if result is not None:
                    units.maker[result] = unit
    return units


def _connect(units: Units, unit: Unit, operands: list[Value]) -> None:
    for value in operands:
        units.readers.setdefault(value, set()).add(unit)
        maker = units.maker.get(value)
        if maker is not None:
            unit.before.add(maker)
            maker.after.add(unit)
    if unit.nodes and any(u.is_awaited for u in unit.before):
        unit.floor = (unit.nodes[0].call, 0)
    unit.time = (unit.step.number, 0) if unit.is_fixed and unit.step else max(after(unit.before), unit.floor)


def after(units: set[Unit]) -> Time:
    """Return the earliest time at which all of ``units`` have run."""
    latest = max((u.time for u in units), default=START)
    return latest[0], latest[1] + 1


def delays(a: Unit, b: Unit) -> tuple[Time, dict[Unit, Time]] | None:
    """Return the time of a group of both, and the units that it delays; None if one of them cannot wait."""
    time = max(after((a.before | b.before) - {a, b}), a.floor, b.floor)
    moved: dict[Unit, Time] = {}
    waiting = [(unit, time) for unit in (a.after | b.after) - {a, b} if unit.time <= time]
    while waiting:
        unit, floor = waiting.pop()
        if moved.get(unit, unit.time) > floor:
            continue
        if unit.is_fixed:
            return None
        moved[unit] = later = (floor[0], floor[1] + 1)
        if a in unit.after or b in unit.after:
            return None
        waiting += [(reader, later) for reader in unit.after if reader.time <= later]
    return time, moved


def release(block: Block, units: Units) -> None:
    """Break the reference cycles between nodes and units, which would slow the garbage collector."""
    release_units(units)
    for step in block.steps:
        for value in (value for node in step.nodes for value in (node.out, *node.others)):
            value.node = None


def release_units(units: Units) -> None:
    """Break the reference cycles between units of a block that is still in use."""
    for unit in (*units.groups, *units.steps):
        unit.before, unit.after = set(), set()
