"""Legality of kernels: all nodes need one iteration space, up to broadcasts and one set of reduced dims.

A kernel that reduces has *rows*, which its parallel dims count. A row reduction removes the dims of a row,
including the last dim of its tensors; any ops may precede and follow it. A column reduction removes the dims
that count rows, and its result is not broadcast over the rows again. A kernel may have both. A kernel with a
contraction has no other reduction: cheap pointwise ops may precede the contraction, any pointwise ops may
follow it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod

from shardc.dialects.aten.types import TensorType
from shardc.dialects.kern.size import Size, hint, symbols_of
from shardc.passes.fuse.bodies.whole import sources
from shardc.passes.fuse.grouping.gathers import apart, check_gathers
from shardc.passes.fuse.grouping.refused import Refused
from shardc.passes.fuse.reading.graph import Access, Node, Value
from shardc.passes.fuse.reading.space import Atoms, Dim, Mismatch, Space
from shardc.passes.fuse.reading.unit import Unit, joined, unit_of

MAX_NODES, MAX_POINTWISE, NODES_OF_A_SUM = 96, 256, 10
"""Limits of nodes in a kernel with many reductions, and in one without: a loop over time, written out. Each
reduction takes the place of ten nodes, because many sums do not fit into registers. Larger kernels compile
slowly."""
MAX_TENSORS = 64
"""Limit of tensors that a kernel reads. Slices of one tensor count as one."""
MAX_SERIAL = 1 << 16
"""Limit of elements that a kernel without a parallel dim reduces, since it runs on one thread."""

MIN_RUN, MIN_ROW_RUN = 16, 8
"""A cache line of f32, and the shortest contiguous run of elements in a row that is not contiguous as a
whole: groups of eight channels that are last."""

MAX_AGAIN = 1 << 14
"""Limit of elements of rows with expensive ops that a kernel computes again, not to write and read them."""

MAX_PAIRS = 8
"""Most pairs of reads of one tensor that are compared to find common dims."""

NO_COMMON_DIMS = "neither runs over all dims of the other"

Domain = frozenset[int]
"""Atoms that a node runs over."""


def joined_space(a: Unit, b: Unit) -> Space:
    """Return the space of both groups. Dims match where one reads the other's result, or both read one
    tensor.
    """
    space = a.space.joined(b.space)
    try:
        found = _match_made(space, a, b) + _match_made(space, b, a)
    except Mismatch:
        raise Refused("their shared dims are split in incompatible ways") from None
    shared = sorted((v for v in a.accesses if v in b.accesses), key=lambda v: size_hint(v.type), reverse=True)
    domains = {*a.domains.values(), *b.domains.values()} if shared else set()
    for value in shared:
        pairs = itertools.islice(itertools.product(a.accesses[value], b.accesses[value]), MAX_PAIRS)
        trials = (_matched_reads(space, first, second, domains) for first, second in pairs)
        matched = next((trial for trial in trials if trial is not None), None)
        found += matched is not None
        space = matched or space
    if not found:
        raise Refused("they read their shared tensors in incompatible orders")
    return space


def check_related(a: Unit, b: Unit) -> None:
    """Check that some dim of one group can be a dim of the other. Raises Refused if they share only scalars.

    For example, updates of parameters share a learning rate. :func:`check` would find that, too, but later.
    """
    if not any(a.domains.values()) or not any(b.domains.values()):
        return
    for x, y in ((a, b), (b, a)):
        related = (v for v in y.accesses if v in x.accesses or (v.node is not None and v.node in x.domains))
        if any(size != 1 for value in related for size in value.type.shape):
            return
    raise Refused(NO_COMMON_DIMS)


@lru_cache(maxsize=4096)
def size_hint(type_: TensorType) -> int:
    """Return the bytes of a tensor, estimated for symbolic sizes."""
    return hint(type_.size_bytes)


def _match_made(space: Space, maker: Unit, reader: Unit) -> int:
    found = 0
    for value, accesses in reader.accesses.items():
        node = value.node
        if node is None or node not in maker.domains:
            continue
        for access in accesses:
            found += 1
            if access.jumps and not access.gathers and (node.out is not value or node.reduce):
                raise Refused("one reads a slice of the other's result")
            if node.out is not value or (access.jumps and len(access.dims) != len(node.out_dims)):
                raise Refused("one reads the other's result, which has another shape, at computed indices")
            for dim, atoms in zip(access.dims, node.out_dims, strict=True):
                if not dim.gathered and not dim.sliced:
                    space.unify(atoms, dim.atoms)
    return found


def _matched_reads(space: Space, first: Access, second: Access, domains: set[Atoms]) -> Space | None:
    """Return the space in which two reads of a tensor agree; None if there is none, or a domain gets a
    diagonal.
    """
    sizes = ([dim.size for dim in read.dims] for read in (first, second))
    if next(sizes) != next(sizes) or first.gathers or second.gathers:
        return None
    if all(_alike(space, x, y) for x, y in zip(first.dims, second.dims, strict=True)):
        return space
    trial = space.joined(Space())
    try:
        for x, y in zip(first.dims, second.dims, strict=True):
            if (x.offset, x.step) != (y.offset, y.step):
                return None
            trial.unify(x.atoms, y.atoms)
        for atoms in domains:
            _domain(trial.resolve(atoms))
    except (Mismatch, Refused):
        return None
    return trial


def _alike(space: Space, x: Dim, y: Dim) -> bool:
    """Return whether two dims are already read over the same atoms."""
    same, other = ((d.size, d.offset, d.step, d.sliced, len(d.parts), space.resolve(d.atoms)) for d in (x, y))
    return same == other and all(_alike(space, a, b) for a, b in zip(x.parts, y.parts, strict=True))


def check(unit: Unit, exported: Callable[[], set[Value]] = set) -> None:
    """Check that ``unit`` can be one kernel. Raises Refused. ``exported`` returns the values that others
    read.
    """
    nodes, space = unit.nodes, unit.space
    most = max(MAX_NODES, MAX_POINTWISE - NODES_OF_A_SUM * sum(bool(node.reduce) for node in nodes))
    if len(nodes) > most:
        raise Refused(f"a kernel has at most {most} ops")
    inner = [v for v in unit.accesses if v.node is not None and v.node in unit.domains and v.node.out is v]
    if len(unit.accesses) - len(inner) > MAX_TENSORS and len(sources(unit.accesses)) > MAX_TENSORS:
        raise Refused(f"a kernel reads at most {MAX_TENSORS} tensors")
    check_gathers(nodes, space)
    if any(node.is_symbolic for node in nodes):
        _check_symbols(unit)
    kinds = {atoms: _domain(atoms) for atoms in set(unit.domains.values())}
    whole = frozenset().union(*kinds.values())
    if whole not in kinds.values():
        elsewhere = apart(nodes)
        if not elsewhere or not elsewhere.isdisjoint(node for v in exported() if (node := v.node)):
            raise Refused(NO_COMMON_DIMS)
        nodes = [node for node in nodes if node not in elsewhere]
        whole = frozenset().union(*(kinds[unit.domains[node]] for node in nodes))
        if not any(kinds[unit.domains[node]] == whole for node in nodes):
            raise Refused(NO_COMMON_DIMS)
    domains = {node: kinds[atoms] for node, atoms in unit.domains.items()}
    contraction = next((node for node in nodes if node.contracts), None)
    if contraction is not None:
        _check_contraction(contraction, nodes, space, domains, exported())
    elif any(node.reduce for node in nodes):
        _check_reductions(nodes, space, domains, whole, exported())


def _check_symbols(unit: Unit) -> None:
    """Check that a size that no argument of the graph has is the size of a tensor that the kernel reads."""
    read = [n for access in reads(unit.nodes) for n in access.base.type.shape]
    sizes = [n for node in unit.nodes for n in (*node.out.type.shape, *node.sizes)]
    sizes += [unit.space.sizes[a] for atoms in unit.domains.values() for a in atoms]
    missing = {s for s in symbols_of([*sizes, *read]) if not s.given}
    if not missing <= {n.symbol for n in read if isinstance(n, Size)}:
        where = "the graph's arguments nor from the tensors that it reads"
        raise Refused(f"a size of its tensors comes neither from {where}")


def check_parts(nodes: list[Node]) -> None:
    """Check that a call's nodes form one kernel, or several that do not read each other. Raises Refused."""
    parts: list[Unit] = []
    for node in nodes:
        part = unit_of(node)
        for source in [p for p in parts if any(n.out in part.accesses for n in p.nodes)]:
            part = joined(source, part, joined_space(source, part))
            parts.remove(source)
        parts.append(part)
    for part in parts:
        check(part)


def _domain(atoms: Atoms) -> Domain:
    domain = frozenset(atoms)
    if len(domain) != len(atoms):
        raise Refused("it would read a tensor along a diagonal")
    return domain


def _check_reductions(
    nodes: list[Node], space: Space, domains: dict[Node, Domain], whole: Domain, exported: set[Value]
) -> None:
    kinds = {node: kind for node in nodes if (kind := frozenset(space.resolve(node.reduced)))}
    if whole in kinds.values() and hint(prod(space.sizes[a] for a in whole)) > MAX_SERIAL:
        raise Refused(f"it would reduce more than {MAX_SERIAL} elements to one on a single thread")
    tensors = _full(nodes, space, whole)
    rows = row_dims(tensors, space, set(kinds.values()))
    if not rows:  # the order of dims of values that are not written does not matter
        tensors = _full(nodes, space, whole, exported)
        rows = row_dims(tensors, space, set(kinds.values()))
    if rows and not any(_is_row(rows, atoms, space) for atoms in tensors):
        _check_made_again(nodes, domains, whole)
    _check_rows_again([node for node in nodes if kinds.get(node) == rows], nodes, space, domains, whole)
    columns = set(kinds.values()) - {rows}
    if len(columns) > 1 or any(rows and not whole - rows <= reduced for reduced in columns):
        raise Refused("they reduce different dims")
    for reduced in columns:
        summed: set[Value] = set()
        for node in nodes:
            if any(a.base in summed for a in node.accesses):
                summed.add(node.out)
                if domains[node] & reduced:
                    raise Refused("a sum over columns would be broadcast over the rows again")
            elif kinds.get(node) == reduced:
                summed.add(node.out)


def _check_made_again(nodes: list[Node], domains: dict[Node, Domain], whole: Domain) -> None:
    """Check that the terms of a column sum are not recomputed for dims of its broadcast. Raises Refused."""
    summed = {access.base for node in nodes if node.reduce for access in node.accesses}
    for node in nodes:
        again = node.heavy and node.out in summed and domains[node] == whole
        others = (n for n in nodes if not n.reduce and n.call != node.call and domains[n] == whole)
        if again and any(a.base is node.out for other in others for a in other.accesses):
            what = "the terms of a sum over columns would be recomputed"
            raise Refused(f"{what} for the values to which the sum is broadcast")


def _check_rows_again(
    reductions: list[Node], nodes: list[Node], space: Space, domains: dict[Node, Domain], whole: Domain
) -> None:
    """Check that a softmax of few rows, say, is not computed again for many others. Raises Refused."""
    heavy = {domains[node] for node in nodes if node.heavy and node in domains}
    for domain in {domains[node] for node in reductions} & heavy:
        times, elements = (hint(prod(space.sizes[a] for a in atoms)) for atoms in (whole - domain, domain))
        if (times - 1) * elements > MAX_AGAIN:
            raise Refused(f"rows with expensive ops would be computed {times} times")


def _check_contraction(
    contraction: Node, nodes: list[Node], space: Space, domains: dict[Node, Domain], exported: set[Value]
) -> None:
    result = domains[contraction] - set(space.resolve(contraction.reduced))
    operands = [set(flat(space, access.dims)) for access in contraction.accesses]
    for node in nodes:
        if node is not contraction and node.reduce:
            raise Refused("a matmul and another reduction need two kernels")
        if node is contraction or domains[node] <= result:
            continue
        if not any(domains[node] <= operand for operand in operands):
            raise Refused("it runs over the dim that a matmul sums")
        if node.heavy:
            raise Refused("it would be recomputed for each block of a matmul")
        if node.out in exported:
            raise Refused(
                "an operand computed inside a matmul's kernel is not stored, but other ops read it too"
            )


def row_dims(full: Sequence[Atoms], space: Space, kinds: set[Domain]) -> Domain:
    """Return the set of reduced dims in ``kinds`` that is a row; empty if there is none.

    In every tensor that has all dims (``full``), its dims are the last ones, or contiguous in runs of
    :data:`MIN_ROW_RUN` elements; or they precede other dims, whose elements are computed side by side; or
    they have at most :data:`MIN_RUN` elements, for which the order of the dims does not matter.
    """
    for fits in (_is_row, _is_before_others, _is_short):
        found = [kind for kind in kinds if full and all(fits(kind, atoms, space) for atoms in full)]
        if found:
            return min(found, key=lambda kind: (len(kind), sorted(kind)))
    return frozenset()


def _full(nodes: list[Node], space: Space, whole: Domain, exported: set[Value] | None = None) -> list[Atoms]:
    """Return the dims of every tensor that has all of ``whole``, in memory order.

    ``exported``: values of ``nodes`` that are written; all if it is None.
    """
    made = {node.out for node in nodes}
    tensors = [flat(space, a.dims) for node in nodes for a in node.accesses if a.base not in made]
    written = [node for node in nodes if exported is None or node.out in exported]
    tensors += [space.resolve(x for dim in node.out_dims for x in dim) for node in written]
    return [atoms for atoms in tensors if set(atoms) == whole]


def _is_row(kind: Domain, atoms: Atoms, space: Space) -> bool:
    run = list(itertools.takewhile(kind.__contains__, reversed(atoms)))
    return len(run) == len(kind) or hint(prod(space.sizes[a] for a in run)) >= MIN_ROW_RUN


def _is_before_others(kind: Domain, atoms: Atoms, space: Space) -> bool:
    return bool(atoms) and atoms[-1] not in kind


def _is_short(kind: Domain, atoms: Atoms, space: Space) -> bool:
    sizes = [space.sizes[a] for a in kind]
    return all(isinstance(n, int) for n in sizes) and 1 < prod(map(hint, sizes)) <= MIN_RUN


def flat(space: Space, dims: tuple[Dim, ...]) -> Atoms:
    """Return the atoms of a tensor's dims in memory order."""
    return space.resolve(a for dim in dims for a in dim.atoms)


def depths(nodes: list[Node]) -> dict[Value, int]:
    """Return, for each value in order, the number of reductions, and of computed reads of them, before it."""
    found: dict[Value, int] = {}
    for node in nodes:
        before = [found.get(a.base, 0) + (a.jumps and a.base in found) for a in node.accesses]
        found[node.out] = max(before, default=0) + bool(node.reduce)
    return found


def reads(nodes: list[Node]) -> list[Access]:
    """Return the nodes' accesses of tensors from outside."""
    made = {node.out for node in nodes}
    return [a for node in nodes for a in node.accesses if a.base not in made]
