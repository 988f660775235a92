"""Which roots share loops: nests of a row loop, cut over the threads, with everything that a row needs inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from torch_mlir import ir

from shardc.backends.body.contraction import Contraction, find_contraction, is_contraction
from shardc.backends.body.graph import Argument
from shardc.backends.body.linear import Axis, Index, Linear, Picked, row_major
from shardc.backends.body.roots import Reads, Root, Roots
from shardc.backends.cpu.parts import part_axes
from shardc.dialects.kern.size import AnySize, hint

PARALLEL_ROWS = 16  # with fewer rows than this, a sum over the middle of a tensor is rather cut over what it sums


@dataclass(eq=False)
class Nest:
    """Roots run together. ``rows``: outer axes, cut over the threads; other axes are loops inside.

    A root is *carried* if its reduction runs over all rows: each thread has a partial result, joined after the nest.
    ``split``: there are no rows; the one axis of all loops is cut itself. ``merged`` are axes that became part of
    another (see :func:`merge_axes`). ``waits``: something it reads was written since the last barrier. ``transposed``:
    something is contiguous along a row axis, and rows are therefore run through in short pieces; ``turned`` are arguments
    of which a piece is copied first, so that it is contiguous along the row. A nest with a ``contraction`` has no rows:
    its loops are those of a matmul, and what reads the result is over them too. ``written_out`` are axes inside the rows
    (see :func:`~shardc.backends.cpu.parts.part_axes`) whose steps stand one after the other, without a loop.
    """

    rows: list[Axis]
    roots: list[Root]
    split: bool = False
    merged: set[Axis] = field(default_factory=set)
    sizes: dict[Axis, AnySize] = field(default_factory=dict)
    order: list[Axis] = field(default_factory=list)
    waits: bool = False
    transposed: bool = False
    turned: list[tuple[Argument, Index]] = field(default_factory=list)
    written_out: list[Axis] = field(default_factory=list)
    contraction: Contraction | None = None

    def carried(self, root: Root) -> bool:
        outer = set(self.order) if self.split else set(self.rows)
        return bool(outer) and outer <= root.reduced

    def inner(self, root: Root) -> list[Axis]:
        """The axes of the root's loops inside a row, outermost first."""
        axes = root.loops.keys() - set(self.rows) - self.merged
        return [a for a in self.order if a in axes]


def find_nests(roots: Roots, reads: dict[Root, Reads]) -> list[Nest]:
    """All roots in nests, in an order in which they can run."""
    done: set[Root] = set()
    nests: list[Nest] = []
    remaining = list(roots.items)
    components = _components(remaining)
    while remaining:
        if product := next((r for r in remaining if is_contraction(r) and _ready(r, done, roots, reads)), None):
            nests.append(_matmul(product, remaining, done, roots, reads))
            done |= set(nests[-1].roots)
            remaining = [r for r in remaining if r not in done]
            continue
        near = [r for r in remaining if components[r] == components[remaining[0]] and not is_contraction(r)]
        rows, members = max(
            ((rows, _members(rows, near, done, roots, reads)) for rows in _candidates(near, reads)),
            key=lambda found: (bool(found[1]), not _strided(*found, reads), len(found[1])),
        )
        nests.append(_nest(rows, members, reads))
        done |= set(members)
        remaining = [r for r in remaining if r not in done]
    _place_barriers(nests, roots, reads)
    return nests


def _ready(root: Root, done: set[Root], roots: Roots, reads: dict[Root, Reads]) -> bool:
    return all(isinstance(v, Argument) or roots.of[v] in done for v, _ in reads[root].ends)


def _matmul(product: Root, remaining: list[Root], done: set[Root], roots: Roots, reads: dict[Root, Reads]) -> Nest:
    """A contraction with the roots over its result's loops that read nothing but this, there, and what is done."""
    index = product.result_index(0)

    def reads_here(root: Root) -> bool:
        return all(
            isinstance(v, Argument) or roots.of[v] in done or (roots.of[v] is product and i == index)
            for v, i in reads[root].ends
        )

    after = [r for r in remaining if not r.is_reduction and r.parallel == product.parallel and reads_here(r)]
    nest = _nest(frozenset(), [product, *after], reads)
    nest.contraction = find_contraction(product, nest.order)
    return nest


def _components(items: list[Root]) -> dict[Root, int]:
    """Numbers that are the same for roots with a loop in common; those without loops have one number."""
    number: dict[Root, int] = {}
    of_axis: dict[Axis, int] = {}
    for at, root in enumerate(items):
        met = {of_axis[a] for a in root.loops if a in of_axis}
        number[root] = at if root.loops else -1
        of_axis.update({a: at for a in root.loops})
        if met:
            of_axis = {a: at if n in met else n for a, n in of_axis.items()}
            number = {r: at if n in met else n for r, n in number.items()}
    return number


def _candidates(remaining: list[Root], reads: dict[Root, Reads]) -> list[frozenset[Axis]]:
    """Sets of row axes to try, the better of equal ones first."""
    found: list[frozenset[Axis]] = []
    for root in remaining:
        if not root.is_reduction:
            found.append(root.parallel)
            continue
        fast = fast_axis([root], reads)
        carried = [root.reduced] if root.combiners else []
        if fast in root.parallel:
            rest = root.parallel - {fast}
            many = hint(prod(root.loops[a] for a in rest)) >= PARALLEL_ROWS
            found += [rest, *carried] if many else [*carried, rest]
        else:
            found += [root.parallel] if root.parallel else carried
            found += carried
        found.append(root.parallel)
    return list(dict.fromkeys(found))


def _members(
    rows: frozenset[Axis], remaining: list[Root], done: set[Root], roots: Roots, reads: dict[Root, Reads]
) -> list[Root]:
    """Which of the remaining roots can run in one nest over ``rows``: connected by their axes, each after what it reads."""
    members: list[Root] = []
    for root in remaining:
        in_row = rows <= root.parallel
        carried = bool(rows) and rows <= root.reduced and root.combiners is not None
        alone = not rows and root.parallel | root.reduced and members
        if (in_row or carried) and not alone and all(
            roots.of[v] in done or (i is not None and _in_row(roots.of[v], v, i, rows, members))
            for v, i in reads[root].ends
            if not isinstance(v, Argument)
        ):
            members.append(root)
    return members


def _strided(rows: frozenset[Axis], members: list[Root], reads: dict[Root, Reads]) -> bool:
    """Whether a reduction inside the rows would step across what lies contiguous: a vector lane at a time."""
    return any(root.reduced and rows <= root.parallel and fast_axis([root], reads) in rows for root in members)


def _in_row(made: Root, value: object, index: object, rows: frozenset[Axis], members: list[Root]) -> bool:
    """What ``made`` gives is there, at this very index, once its loops in the row are through."""
    return (
        made in members and made.is_reduction and rows <= made.parallel and made.result_index(value.number) == index
    )


def fast_axis(members: list[Root], reads: dict[Root, Reads]) -> Axis | None:
    """The axis along which most of the elements that are read and written lie contiguous."""
    sizes = {axis: size for root in members for axis, size in root.loops.items()}
    votes = dict.fromkeys(sizes, 0)
    for found in _offsets(members, reads):
        touched = hint(prod(sizes.get(axis, 1) for axis in found.axes))
        for axis, factor in found.terms:
            if axis in votes:
                votes[axis] += touched * (factor == 1)
    return max(votes, key=lambda axis: votes[axis]) if votes else None


def _offsets(members: list[Root], reads: dict[Root, Reads]) -> list[Linear]:
    found = [row_major(index, shape) for r in members for shape, index in reads[r].shapes]
    for root in members:
        found += [row_major(root.result_index(n), root.result_shape(n)) for n in range(root.result_count())]
    return found


def _nest(rows: frozenset[Axis], members: list[Root], reads: dict[Root, Reads]) -> Nest:
    sizes = {axis: size for root in members for axis, size in root.loops.items()}
    offsets = _offsets(members, reads)
    slowest = {axis: max((hint(o.factor(axis)) for o in offsets), default=0) for axis in sizes}
    order = sorted(sizes, key=lambda axis: -slowest[axis])
    nest = Nest([a for a in order if a in rows], members, sizes=sizes, order=order)
    merge_axes(nest, offsets, reads)
    parts = [a for a in nest.order if a in part_axes(members, reads, sizes)]
    if any(nest.inner(root) for root in members) or not nest.rows:
        nest.written_out = [a for a in parts if a not in nest.rows]
        return nest
    fast = [a for a in nest.rows if a not in parts or len(parts) == len(nest.rows)][-1]
    nest.rows.remove(fast)
    nest.transposed = any(o.factor(axis) == 1 and hint(o.factor(fast)) > 1 for o in offsets for axis in nest.rows)
    if nest.transposed and len(nest.rows) == 1:
        nest.turned = list(dict.fromkeys(_turned(nest.rows[0], fast, members, reads)))
    elif not nest.transposed:  # inside of the loop over ``fast``, what the parts both read is loaded once
        nest.written_out = [a for a in parts if a != fast]
        nest.rows = [a for a in nest.rows if a not in nest.written_out]
        nest.order = [a for a in nest.order if a not in nest.written_out] + nest.written_out
    nest.split = not nest.rows
    return nest


def _turned(row: Axis, fast: Axis, members: list[Root], reads: dict[Root, Reads]) -> Iterator[tuple[Argument, Index]]:
    """The arguments that are read across the rows, each with its index."""
    for value, index in (end for root in members for end in reads[root].ends):
        if isinstance(value, Argument) and index is not None:
            offset = row_major(index, value.shape)
            picks = any(isinstance(axis, Picked) for axis, _ in offset.terms)
            if not picks and offset.factor(row) == 1 and hint(offset.factor(fast)) > 1:
                yield value, index


def merge_axes(nest: Nest, offsets: list[Linear], reads: dict[Root, Reads]) -> None:
    """Joins neighbours that everything reads and writes as one contiguous axis: ``i * size(j) + j`` becomes ``j``.

    The outer one stays in the index expressions and counts as nothing; its loop is part of the inner one's.
    """
    indices = [index for r in nest.roots for _, index in reads[r].between]
    together = [{a for position in index for a, _ in position.terms} for index in indices]
    together += [{a for a, _ in o.terms} for o in offsets]
    counted = {a for r in nest.roots for a in _counted(r, reads[r])}
    kinds = {axis: [(axis in r.parallel, axis in r.reduced) for r in nest.roots] for axis in nest.order}
    for at in range(len(nest.order) - 2, -1, -1):
        outer, inner = nest.order[at], nest.order[at + 1]
        if (
            (outer in nest.rows) == (inner in nest.rows)
            and kinds[outer] == kinds[inner]
            and not counted & {outer, inner}
            and all((outer in axes) == (inner in axes) for axes in together)
            and all(o.factor(outer) == nest.sizes[inner] * o.factor(inner) for o in offsets)
        ):
            # the pair is known by the inner one's name; the next outer one must be contiguous to both
            nest.merged.add(outer)
            nest.sizes[inner] *= nest.sizes[outer]
            nest.order.remove(outer)
            if outer in nest.rows:
                nest.rows.remove(outer)


def _counted(root: Root, reads: Reads) -> set[Axis]:
    """Axes whose position itself is asked for, by ``linalg.index``."""
    bodies = [(v.generic, v.generic.dims_at(v.number, index)) for v, index in reads.between]
    bodies += [(root.generic, root.dims)] if root.generic else []
    found: set[Axis] = set()
    for generic, dims in bodies:
        for op in generic.block.operations:
            if op.operation.name == "linalg.index":
                found |= {a for a, _ in dims[ir.IntegerAttr(op.attributes["dim"]).value].terms}
    return found


def _place_barriers(nests: list[Nest], roots: Roots, reads: dict[Root, Reads]) -> None:
    written: set[Root] = set()
    for nest in nests:
        touched = [v for r in nest.roots for v, _ in (*reads[r].ends, *reads[r].between)]
        read = {roots.of[v] for v in touched if v in roots.of} - set(nest.roots)
        if read & written:
            nest.waits = True
            written = set()
        carried = {r for r in nest.roots if nest.carried(r)}
        written = carried or written | set(nest.roots)  # joining carried results has a barrier of its own
