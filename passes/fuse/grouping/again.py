"""Values that a kernel computes again from tensors, instead of reading what another kernel has written.

The gradient of a norm needs sums along rows and along columns, so it is two kernels. What both need is cheap
to compute from tensors that the second kernel reads anyway, or that are no larger.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from shardc.passes.fuse.grouping.group import exports
from shardc.passes.fuse.grouping.legal import check, joined_space, size_hint
from shardc.passes.fuse.grouping.refused import Refused
from shardc.passes.fuse.reading.graph import Access, Node, Value
from shardc.passes.fuse.reading.unit import Unit, Units, in_order, joined, unit_of

MOST_OPS = 12
"""Most ops that a kernel computes again for another one's values."""
MOST_BYTES = 1.1
"""Most bytes that it reads for them, over theirs. Then one write is spared, and as much memory is in use."""


@dataclass
class _Source:
    """Ops of a value, in any order, and the tensors that they come from."""

    nodes: set[Node]
    read: set[Value]


@dataclass
class _Change:
    """Unit ``new`` that replaces ``reader``, and the reads ``before`` of the reader's nodes."""

    reader: Unit
    new: Unit | None
    before: dict[Node, list[Access]]


def compute_again(units: Units, kernels: Sequence[Unit]) -> None:
    """Let kernels compute values of others again where that saves memory traffic.

    Only values that kernels alone read are considered, within one phase of the program.
    """
    every = set(kernels)
    for maker in sorted(kernels, key=in_order):
        if any(node.contracts for node in maker.nodes):
            continue
        groups: dict[tuple[Unit, ...], list[tuple[Value, _Source]]] = {}
        for value in [node.out for node in maker.nodes if not node.others and node.out not in units.kept]:
            readers = units.readers.get(value, set()) - {maker}
            source = _source(value, maker) if readers and readers <= every else None
            if source is not None and all(_may(units, value, maker, reader) for reader in readers):
                groups.setdefault(tuple(sorted(readers, key=in_order)), []).append((value, source))
        for readers, found in groups.items():
            _compute(units, readers, found)


def _may(units: Units, value: Value, maker: Unit, reader: Unit) -> bool:
    one_phase = len(units.phases_of(maker) | units.phases_of(reader)) == 1
    jumps = any(access.jumps for access in reader.accesses[value])
    return one_phase and not jumps and not any(node.contracts for node in reader.nodes)


def _compute(units: Units, readers: Sequence[Unit], found: Sequence[tuple[Value, _Source]]) -> None:
    """Let all ``readers`` compute the values of ``found``, or none."""
    nodes = sorted(set[Node]().union(*(s.nodes for _, s in found)), key=attrgetter("order"))
    read = set[Value]().union(*(s.read for _, s in found))
    spared = sum(size_hint(value.type) for value, _ in found)
    more = (sum(size_hint(v.type) for v in read - reader.accesses.keys()) for reader in readers)
    if len(nodes) > MOST_OPS or any(size_bytes > MOST_BYTES * spared for size_bytes in more):
        return
    changes = list[_Change]()
    for reader in readers:
        changes.append(_change(units, reader, nodes))
        if changes[-1].new is None:
            for node, accesses in (pair for change in changes for pair in change.before.items()):
                node.accesses[:] = accesses
            return
    for change in changes:
        _commit(units, change, [value for value, _ in found])


def _source(value: Value, maker: Unit) -> _Source | None:
    """Return the ops that compute ``value`` from tensors and sums; None if it must be read."""
    assert value.node is not None
    nodes, read, left = set[Node](), set[Value](), [value.node]
    while left:
        node = left.pop()
        if node.compute is None or node.heavy or node.indices or node.gathers or node.check or node.loose:
            return None
        nodes.add(node)
        for base, access in ((access.base, access) for access in node.accesses):
            inner = base.node if base.node in maker.domains else None
            if inner is None or inner.reduce:
                read.add(base)
            elif inner.out is not base or access.jumps:
                return None
            elif inner not in nodes:
                left.append(inner)
    return _Source(nodes, read)


def _change(units: Units, reader: Unit, nodes: Sequence[Node]) -> _Change:
    """Return ``reader`` with copies of ``nodes``, whose results it reads; its nodes read them already."""
    copies: dict[Value, Node] = {}
    for node in nodes:
        accesses = [_renamed(access, copies) for access in node.accesses]
        made = replace(node, accesses=accesses, out=Value(node.out.type), others=[])
        made.out.node = copies[node.out] = made
    before = {node: list(node.accesses) for node in reader.nodes}
    for node in reader.nodes:
        node.accesses[:] = [_renamed(access, copies) for access in node.accesses]
    try:
        return _Change(reader, _with_copies(units, reader, list(copies.values())), before)
    except Refused:
        return _Change(reader, None, before)


def _commit(units: Units, change: _Change, values: Collection[Value]) -> None:
    reader, new = change.reader, change.new
    assert new is not None
    for value in values:
        units.readers[value].discard(reader)
    for value in new.accesses:
        units.readers.setdefault(value, set()).add(reader)
    units.maker.update((node.out, reader) for node in new.nodes)
    reader.nodes, reader.space = new.nodes, new.space
    reader.accesses, reader.domains = new.accesses, new.domains


def _with_copies(units: Units, reader: Unit, copies: Sequence[Node]) -> Unit:
    """Return ``reader`` with ``copies``. Raises Refused."""
    unit = Unit(nodes=reader.nodes, space=reader.space, domains=reader.domains, calls=reader.calls)
    for access in (access for node in reader.nodes for access in node.accesses):
        unit.accesses.setdefault(access.base, []).append(access)
    for made in reversed(copies):
        single = unit_of(made)
        unit = joined(single, unit, joined_space(single, unit))
    unit.calls = reader.calls
    check(unit, lambda: {v.node.out for v in exports(units, {reader}) if v.node is not None})
    return unit


def _renamed(access: Access, copies: dict[Value, Node]) -> Access:
    made = copies.get(access.base)
    return access if made is None else Access(made.out, access.dims)
