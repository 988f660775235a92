"""Whether nodes can be one kernel: one iteration space for all of them, up to broadcasts and one set of reduced dims.

A kernel has *rows*: its parallel dims, and if it reduces, the reduced ones, which are the last of its tensors (row
reductions, with everything before and after) or not (column reductions, whose results are not spread over rows again).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from shardc.passes.fuse.graph import Access, Node, Value
from shardc.passes.fuse.space import Atoms, Dim, Mismatch, Space
from shardc.passes.fuse.unit import Unit, joined, unit_of

MAX_NODES = 96
"""Nodes of one kernel: longer ones spill registers and compile slowly."""
MAX_TENSORS = 40
"""Tensors that one kernel reads."""
MAX_SERIAL = 1 << 16
"""Elements that a kernel without a parallel dim may reduce: it runs on one thread."""


class Refused(Exception):
    """Why two groups are not made one, in words."""


def joined_space(a: Unit, b: Unit) -> Space:
    """The space of both groups, dims matched where one reads what the other makes, or both read the same tensor."""
    space = a.space.joined(b.space)
    try:
        found = _match_made(space, a, b) + _match_made(space, b, a)
    except Mismatch:
        raise Refused("the dims that they share are cut up in ways that do not fit") from None
    shared = sorted(a.accesses.keys() & b.accesses.keys(), key=lambda v: v.type.size_bytes, reverse=True)
    for value in shared:
        matched = _matched_reads(space, a.accesses[value][0], b.accesses[value][0], [*a.nodes, *b.nodes])
        found += matched is not None
        space = matched or space
    if not found:
        raise Refused("they read the tensors that they share in ways that do not fit")
    return space


def _match_made(space: Space, maker: Unit, reader: Unit) -> int:
    found = 0
    made = {node.out: node for node in maker.nodes}
    sources = set(maker.nodes)
    for value, accesses in reader.accesses.items():
        if value not in made:
            if value.node in sources:
                raise Refused("one reads a slice of what the other makes")
            continue
        for access in accesses:
            found += 1
            if any(dim.sliced for dim in access.dims):
                raise Refused("one reads a slice of what the other makes")
            for dim, atoms in zip(access.dims, made[value].out_dims, strict=True):
                space.unify(atoms, dim.atoms)
    return found


def _matched_reads(space: Space, first: Access, second: Access, nodes: list[Node]) -> Space | None:
    """The space in which two reads of one tensor run over it alike; None if they do not."""
    if all(space.resolve_dim(x) == space.resolve_dim(y) for x, y in zip(first.dims, second.dims, strict=True)):
        return space
    trial = space.joined(Space())
    try:
        for x, y in zip(first.dims, second.dims, strict=True):
            if (x.offset, x.step) != (y.offset, y.step):
                return None
            trial.unify(x.atoms, y.atoms)
        for node in nodes:
            _domain(node, trial)
    except (Mismatch, Refused):
        return None
    return trial


def check(nodes: list[Node], space: Space, exported: Iterable[Value]) -> None:
    """Raises Refused unless ``nodes`` can be one kernel whose results are ``exported``."""
    if len(nodes) > MAX_NODES:
        raise Refused(f"a kernel has at most {MAX_NODES} ops")
    made = {node.out for node in nodes}
    if len({a.base for node in nodes for a in node.accesses} - made) > MAX_TENSORS:
        raise Refused(f"a kernel reads at most {MAX_TENSORS} tensors")
    domains = {node: _domain(node, space) for node in nodes}
    whole = set().union(*domains.values())
    if whole not in domains.values():
        raise Refused("neither runs over all dims of the other")
    reductions = {frozenset(space.resolve(node.reduced)) for node in nodes if node.reduce}
    if len(reductions) > 1:
        raise Refused("they reduce different dims")
    if reductions:
        _check_reduction(nodes, space, set(next(iter(reductions))), domains, whole, set(exported))


def check_parts(nodes: list[Node], exported: set[Value]) -> None:
    """Raises Refused unless the nodes of one call are a kernel, or several of which none reads what another makes."""
    parts: list[Unit] = []
    for node in nodes:
        part = unit_of(node)
        for source in [p for p in parts if any(n.out in part.accesses for n in p.nodes)]:
            part = joined(source, part, joined_space(source, part))
            parts.remove(source)
        parts.append(part)
    for part in parts:
        check(part.nodes, part.space, exported)


def _domain(node: Node, space: Space) -> set[int]:
    atoms = space.resolve([a for dim in node.out_dims for a in dim] + list(node.reduced))
    if len(set(atoms)) != len(atoms):
        raise Refused("it would read a tensor along a diagonal")
    return set(atoms)


def _check_reduction(
    nodes: list[Node], space: Space, reduced: set[int], domains: dict[Node, set[int]], whole: set[int], exported: set[Value]
) -> None:
    if whole == reduced and prod(space.sizes[a] for a in whole) > MAX_SERIAL:
        raise Refused(f"it would reduce more than {MAX_SERIAL} elements to one on a single thread")
    if is_row_reduction(nodes, space, reduced, whole):
        return
    after = depths(nodes)
    for node in nodes:
        if after[node.out] > bool(node.reduce) and domains[node] & reduced:
            raise Refused("a sum over columns would be spread over the rows again")
        if node.out in exported and set(space.resolve(a for dim in node.out_dims for a in dim)) & reduced:
            raise Refused("a kernel that sums over columns makes sums alone")


def is_row_reduction(nodes: list[Node], space: Space, reduced: set[int], whole: set[int]) -> bool:
    """Whether the reduced dims are the last ones of every tensor that has all dims."""
    made = {node.out for node in nodes}
    tensors = [flat(space, a.dims) for node in nodes for a in node.accesses if a.base not in made]
    tensors += [space.resolve(x for dim in node.out_dims for x in dim) for node in nodes]
    full = [atoms for atoms in tensors if set(atoms) == whole]
    return bool(full) and all(set(atoms[len(atoms) - len(reduced) :]) == reduced for atoms in full)


def flat(space: Space, dims: tuple[Dim, ...]) -> Atoms:
    """The atoms of a tensor's dims in memory order."""
    return space.resolve(a for dim in dims for a in dim.atoms)


def depths(nodes: list[Node]) -> dict[Value, int]:
    """For each value that the nodes make how many reductions stand before it, its own included. Nodes are in order."""
    found: dict[Value, int] = {}
    for node in nodes:
        before = max((found.get(a.base, 0) for a in node.accesses), default=0)
        found[node.out] = before + bool(node.reduce)
    return found


def reads(nodes: list[Node]) -> list[Access]:
    """How the nodes read tensors that none of them makes."""
    made = {node.out for node in nodes}
    return [a for node in nodes for a in node.accesses if a.base not in made]
