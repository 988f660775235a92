"""Terms of sums at computed indices that the sum's kernel computes, instead of reading them from memory.

A graph's layer sends a row along each edge: the row of a node, times a weight. The kernel of the sum reads
the nodes' rows where it adds them, so that the rows of edges are never written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from torch_mlir import ir

from shardc.passes.fuse.bodies.bodies import in_program
from shardc.passes.fuse.bodies.body import Body
from shardc.passes.fuse.grouping.constraints import BlockConstraints
from shardc.passes.fuse.grouping.group import exports
from shardc.passes.fuse.grouping.legal import check, joined_space, size_hint
from shardc.passes.fuse.grouping.refused import Refused
from shardc.passes.fuse.reading.builder import Builder, NotLowered
from shardc.passes.fuse.reading.graph import Access, Node, Step, Value
from shardc.passes.fuse.reading.unit import Unit, Units, joined, unit_of

MOST_OPS = 48
"""Most ops that compute a term."""
LEAST_COLUMNS = 16
"""Least columns of a term with expensive ops; fewer are computed one by one, without vectors."""
ONLY, ALONE, SHARED = 8.0, 2.0, 0.9
"""Most bytes that terms are computed from, over those of the terms: if the kernels that made the terms made
nothing else, if only the sum reads the terms, so that they are neither written nor read, and in general."""


@dataclass
class Terms:
    """Ops (``unit``) that compute the terms ``out`` from the tensors ``read``. ``calls``: what they lower.

    ``positions``: shape of the sum's index in the loops that compute the terms; None for the index's own.
    """

    unit: Unit
    out: Value
    read: list[Value]
    calls: set[int]
    positions: tuple[int, ...] | None = None

    def body(self, rounding: str, is_split: bool = False) -> Body:
        """Return the ops' body. ``is_split``: whether loops are split at the terms' dims."""
        assert self.out.node is not None
        apart = self.out.node.out_dims if is_split or self.positions is not None else ()
        return Body(self.unit.nodes, self.unit.space, [self.out], rounding, apart)


def find_terms(
    units: Units,
    kernels: list[Unit],
    step: Step,
    updates: Value,
    rounding: str,
    constraints: BlockConstraints,
    positions: range,
    zeros: Collection[ir.Operation] = (),
) -> Terms | None:
    """Return the terms of the sum ``step`` at computed indices; None if it must or should read ``updates``.

    ``positions``: dims of ``updates`` that are those of the index.

    On success, ``step`` reads what its terms are computed from, and calls that only it has read are unread.
    The kernels of their checks are added to ``kernels``. ``zeros``: ops that the sum's kernel replaces; they
    may read the shape of the terms.
    """
    builder = Builder(step.number)
    try:
        reader = builder.point(lambda s, v: v, [updates], updates.type).node
    except NotLowered:
        return None
    assert reader is not None
    reader.what = "terms"
    sum_unit = next(unit for unit in units.steps if unit.step is step)
    base = reader.accesses[0].base
    fills = [unit for unit in units.steps if unit.step is not None and unit.step.op in zeros]
    views, alone = _views(units, sum_unit, updates, base, fills)
    readers = {sum_unit, *fills, *(unit for _, unit in views)}
    nodes = _makers(units, kernels, reader, readers, step.number)
    if constraints.forbids({node.call for node in nodes}, {step.number}):
        return None
    try:
        unit = _with_copies(reader, nodes)
    except Refused:
        return None
    made = {node.out for node in unit.nodes}
    read = list(dict.fromkeys(a.base for node in unit.nodes for a in node.accesses if a.base not in made))
    whole = size_hint(updates.type)
    size_bytes = sum(min(whole, size_hint(value.type)) for value in read)
    given = base.ir is not None and not nodes and size_hint(base.type) >= whole
    makers = {units.maker[node.out] for node in nodes}
    only = all(_makes_only(units, maker, base) for maker in makers)
    most = SHARED if not alone or not nodes else ONLY if only else ALONE
    if given or size_bytes > whole * most:
        return None
    terms = Terms(unit, reader.out, read, {node.call for node in nodes} if alone else set())
    is_seen = _is_seen_whole(terms, rounding) or _splits_positions(terms, rounding, positions)
    if not is_seen or not all(_is_kept(value, units, kernels) for value in read):
        return None
    for fill in fills:
        assert fill.step is not None
        for value in fill.step.operands:
            units.readers.get(value, set()).discard(fill)
        fill.step.operands.clear()
    _commit(units, kernels, sum_unit, updates, views, terms, nodes)
    return terms


def _views(
    units: Units, sum_unit: Unit, updates: Value, base: Value, fills: Sequence[Unit]
) -> tuple[list[tuple[Value, Unit]], bool]:
    """Return the views of ``base`` that only the sum reads, as pairs of a tensor and the view's unit.

    The second result is whether nothing else reads ``base``, except the kernel that makes it.
    """
    found: list[tuple[Value, Unit]] = []
    value, reader = updates, sum_unit
    while True:
        maker = units.maker.get(value)
        if value in units.kept or units.readers.get(value, set()) - {reader, maker, *fills}:
            return found, False
        if value is base or value.view is None:
            return found, value is base
        value = value.view.source
        if maker is not None and not maker.nodes:
            reader = maker
            found.append((value, reader))


def _makes_only(units: Units, maker: Unit, base: Value) -> bool:
    """Return whether a kernel makes no other value, except for flags of checks."""
    assert base.node is not None
    found = (v for v in exports(units, {maker}) if v.node is not base.node)
    return all(v.node is not None and bool(v.node.check) for v in found)


def _makers(
    units: Units, kernels: Collection[Unit], reader: Node, readers: set[Unit], number: int
) -> list[Node]:
    """Return the pointwise ops that the terms come from, in program order.

    ``readers``: the unit of the sum, with number ``number``, and those of its views.
    """
    found: dict[Node, None] = {}
    left = [reader]
    rows = size_hint(reader.out.type)
    wide = reader.out.type.shape[-1] if reader.out.type.shape else 1
    phase = units.phases[number]

    def may(node: Node, access: Access) -> bool:
        group = units.maker.get(node.out)
        if group is None or node not in group.domains or node.compute is None or node.out is not access.base:
            return False
        if node.check or node.loose or node.is_symbolic or access.jumps or units.phases[node.call] != phase:
            return False
        if node.heavy:
            is_whole = size_hint(node.out.type) >= rows and isinstance(wide, int) and wide >= LEAST_COLUMNS
            if not is_whole or units.readers[node.out] - {*readers, group}:
                return False
        return group in kernels or units.readers.get(node.out, set()) <= readers

    while left:
        for access in left.pop().accesses:
            node = access.base.node
            if node is not None and node not in found and len(found) < MOST_OPS and may(node, access):
                found[node] = None
                left.append(node)
    return sorted(found, key=attrgetter("order"))


def _with_copies(reader: Node, nodes: list[Node]) -> Unit:
    """Return a unit of copies of ``nodes`` and of ``reader``, which reads the copies. Raises Refused."""
    copies: dict[Value, Node] = {}

    def renamed(access: Access) -> Access:
        made = copies.get(access.base)
        return access if made is None else Access(made.out, access.dims)

    for node in nodes:
        accesses = [renamed(access) for access in node.accesses]
        made = replace(node, accesses=accesses, out=Value(node.out.type), others=[])
        made.out.node = copies[node.out] = made
    reader.accesses[:] = map(renamed, reader.accesses)
    unit = unit_of(reader)
    for made in reversed(list(copies.values())):
        single = unit_of(made)
        unit = joined(single, unit, joined_space(single, unit))
    check(unit, lambda: {reader.out})
    return unit


def _is_seen_whole(terms: Terms, rounding: str) -> bool:
    """Return whether each dim of the terms is a part of one loop of the ops that compute them."""
    made, shape = list(terms.body(rounding).shape_of(terms.out)), list(terms.out.type.shape)
    for size in made:
        covered = 1
        while shape and covered != size:
            covered *= shape.pop(0)
        if covered != size:
            return False
    return all(size == 1 for size in shape)


def _splits_positions(terms: Terms, rounding: str, dims: range) -> bool:
    """Return whether the other dims of the terms are loops, and let those of the index be several loops."""
    made, shape = terms.body(rounding, is_split=True).shape_of(terms.out), terms.out.type.shape
    first, last = dims.start, len(made) - (len(shape) - dims.stop)
    positions = tuple(n for n in made[first:last] if isinstance(n, int))
    others = made[:first] == shape[:first] and made[last:] == shape[dims.stop :]
    if not others or not positions or len(positions) != last - first:
        return False
    terms.positions, terms.out.type = positions, terms.out.type.with_shape(made)
    return True


def _is_kept(value: Value, units: Units, kernels: Collection[Unit]) -> bool:
    """Return whether a value is in memory: of the program, or one that a kernel can return."""
    if in_program(value).ir is not None and value.node is None:
        return True
    return units.maker.get(value) in kernels or in_program(value).ir is not None


def _commit(
    units: Units,
    kernels: list[Unit],
    sum_unit: Unit,
    updates: Value,
    views: list[tuple[Value, Unit]],
    terms: Terms,
    nodes: list[Node],
) -> None:
    """Let the sum read what its terms are computed from."""
    step = sum_unit.step
    assert step is not None
    step.operands[:] = [v for v in step.operands if v is not updates] + terms.read
    for value, reader in [(updates, sum_unit), *views]:
        units.readers.get(value, set()).discard(reader)
    for value in terms.read:
        units.readers.setdefault(value, set()).add(sum_unit)
    for call in {node.call for node in nodes if units.maker[node.out] not in kernels}:
        checks = [u for u in units.groups if u.calls == {call} and any(node.check for node in u.nodes)]
        kernels.extend(unit for unit in checks if unit not in kernels)
        terms.calls.add(call)


def operands_of(terms: Terms, rounding: str) -> tuple[Body, list[ir.Value]]:
    """Return the body that computes the terms, and the tensors of the program that it reads."""
    body = terms.body(rounding)
    found = [value for read in body.inputs if (value := in_program(read).ir) is not None]
    assert len(found) == len(body.inputs)
    return body, found
