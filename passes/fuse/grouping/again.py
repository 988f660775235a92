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
    """Ops of ``value``, in any order, and the tensors that they come from."""

    value: Value
    nodes: set[Node]
    read: set[Value]


def compute_again(units: Units, kernels: Sequence[Unit]) -> None:
    """Let kernels compute values of others again where that saves memory traffic.

    Only values that no other op reads are considered, within one phase of the program.
    """
    every = set(kernels)
    for reader in kernels:
        makers = {units.maker[v] for v in reader.accesses if v in units.maker} & every - {reader}
        for maker in sorted(makers, key=in_order):
            one_phase = len(units.phases_of(maker) | units.phases_of(reader)) == 1
            if one_phase and not any(node.contracts for node in (*maker.nodes, *reader.nodes)):
                _compute(units, maker, reader)


def _compute(units: Units, maker: Unit, reader: Unit) -> None:
    values = (v for v in reader.accesses if units.maker.get(v) is maker)
    found = [s for v in values if (s := _source(units, v, maker, reader)) is not None]
    nodes = sorted(set[Node]().union(*(s.nodes for s in found)), key=attrgetter("order"))
    more = set[Value]().union(*(s.read for s in found)) - reader.accesses.keys()
    spared = sum(size_hint(s.value.type) for s in found)
    if 0 < len(nodes) <= MOST_OPS and sum(size_hint(v.type) for v in more) <= MOST_BYTES * spared:
        _replace(units, reader, nodes, [s.value for s in found])


def _source(units: Units, value: Value, maker: Unit, reader: Unit) -> _Source | None:
    """Return the ops that compute ``value`` from tensors; None if it must be read."""
    node = value.node
    if node is None or node.out is not value or node.others or value in units.kept:
        return None
    if units.readers[value] - {maker} != {reader} or any(a.jumps for a in reader.accesses[value]):
        return None
    nodes, read, left = set[Node](), set[Value](), [node]
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
    return _Source(value, nodes, read)


def _replace(units: Units, reader: Unit, nodes: Sequence[Node], values: Collection[Value]) -> None:
    """Add copies of ``nodes`` to ``reader``, which reads their results instead of ``values``, if legal."""
    copies: dict[Value, Node] = {}
    for node in nodes:
        accesses = [_renamed(access, copies) for access in node.accesses]
        made = replace(node, accesses=accesses, out=Value(node.out.type), others=[])
        made.out.node = copies[node.out] = made
    before = {node: list(node.accesses) for node in reader.nodes}
    for node in reader.nodes:
        node.accesses[:] = [_renamed(access, copies) for access in node.accesses]
    try:
        new = _with_copies(units, reader, list(copies.values()))
    except Refused:
        for node, accesses in before.items():
            node.accesses[:] = accesses
        return
    for value in values:
        units.readers[value].discard(reader)
    for value in new.accesses:
        units.readers.setdefault(value, set()).add(reader)
    units.maker.update((made.out, reader) for made in copies.values())
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
