"""Grouping of roots into nests: a row loop, divided among threads, with all computation of a row inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from shardc.backends.body import nest as body
from shardc.backends.body.contraction import Contraction, find_contraction, is_contraction
from shardc.backends.body.graph import Argument
from shardc.backends.body.linear import Axis, Index, Linear, Picked, row_major
from shardc.backends.body.nest import components, fast_axis, is_ready, members_of, merge_axes, offsets_of
from shardc.backends.body.roots import Reads, Root, Roots
from shardc.backends.cpu.emit.written_out import is_side_by_side, part_axes, shared_axes, shared_work
from shardc.dialects.kern.size import AnySize, hint

PARALLEL_ROWS = 16
"""Number of rows below which a sum over the middle of a tensor is divided along the summed axis instead."""
CARRIED_ROWS = 64
"""Number of terms below which it is not, because joining partial sums takes as long as adding the terms."""
LEAST_ENDS, MOST_OF_ENDS, WORK_OF_ENDS = 256, 1024, 12
"""Least number of rows, most elements of one, and least work for a row as a whole, in additions, for which
loops of its own do that work."""
NOWHERE: Axis = (-1, -1)
"""An axis that nothing depends on."""
BLOCK, BLOCK_BYTES, MOST_BYTES = 64, 1 << 14, 1 << 17
"""Least elements of a block, bytes of a tensor in it (half of the first cache), and most of them."""


@dataclass(eq=False)
class Nest(body.Nest):
    """Nest whose rows are divided among threads.

    ``split``: there are no rows, and the single axis of all loops is divided. ``waits``: it reads values that
    were written since the last barrier. ``transposed``: some tensor is contiguous along a row axis, so rows
    are processed in short tiles. ``turned``: arguments of which a tile is copied first, to be contiguous
    along the row; before, they are along the row axis ``across``.
    ``contraction``: the nest has the loops of a matmul instead of rows, and roots that read
    its result run in them. ``written_out``: axes inside the rows that are unrolled (see :func:`part_axes`).
    ``lanes``: everything inside the rows is written out, and the last row axis is the innermost loop
    (:func:`is_side_by_side`). ``block``: an axis inside the rows, and how many elements of it are computed
    at a time, so that what several loops of a row read stays in the first cache (see :func:`_block`).
    ``row_work``: work that all elements of a row share, in additions, such as the root of a sum.
    """

    split: bool = False
    waits: bool = False
    transposed: bool = False
    turned: list[tuple[Argument, Index]] = field(default_factory=list)
    across: Axis | None = None
    written_out: list[Axis] = field(default_factory=list)
    contraction: Contraction | None = None
    lanes: bool = False
    block: tuple[Axis, int] | None = None
    row_work: int = 0

    def carried(self, root: Root) -> bool:
        return bool(self.order) and set(self.order) <= root.reduced if self.split else super().carried(root)


def find_nests(roots: Roots, reads: dict[Root, Reads]) -> list[Nest]:
    """Group all roots into nests, in a valid order."""
    done: set[Root] = set()
    nests: list[Nest] = []
    remaining = list(roots.items)
    near_ones = components(remaining)
    while remaining:
        ready = (r for r in remaining if is_contraction(r) and is_ready(r, done, roots, reads))
        if product := next(ready, None):
            nests.append(_matmul(product, remaining, done, roots, reads))
        else:
            near = [r for r in remaining if near_ones[r] == near_ones[remaining[0]] and not is_contraction(r)]
            rows, members = _best_rows(near, done, roots, reads)
            nests.append(_nest(rows, members, reads))
        done |= set(nests[-1].roots)
        remaining = [r for r in remaining if r not in done]
    _place_barriers(nests, roots, reads)
    return nests


def _best_rows(
    near: list[Root], done: set[Root], roots: Roots, reads: dict[Root, Reads]
) -> tuple[frozenset[Axis], list[Root]]:
    """Return the row axes that most roots can share, and these roots.

    Row axes for which reductions read contiguous memory are preferred.
    """
    choices = list[tuple[frozenset[Axis], list[Root], bool]]()
    for rows in _candidates(near, reads):
        members = members_of(rows, near, done, roots, reads)
        is_lanes = is_side_by_side(rows, members, reads)
        if not is_lanes:
            members = members_of(rows, _suited(rows, near, reads), done, roots, reads)
        choices.append((rows, members, is_lanes))
    rows, members, is_lanes = max(
        choices, key=lambda c: (bool(c[1]), c[2] or not _strided(*c[:2], reads), len(c[1]), c[2])
    )
    return rows, members if is_lanes else _without_ends(rows, members, roots, reads)


def _without_ends(
    rows: frozenset[Axis], members: list[Root], roots: Roots, reads: dict[Root, Reads]
) -> list[Root]:
    """Return the members without those that compute much of the sums of short rows.

    In loops of their own, they have rows as lanes of vectors: a softplus of three norms over rows of 100 took
    as long as the norms.
    """
    inner = [root for root in members if rows < root.loops.keys() and rows <= root.parallel]
    elements = max((hint(prod(root.loops.values())) for root in inner), default=0)
    every = max((hint(prod(root.loops[a] for a in rows)) for root in inner), default=0)
    if every < LEAST_ENDS or elements > MOST_OF_ENDS * every:
        return members
    ends = [root for root in members if root.loops.keys() == rows]
    for root in reversed(members):  # what other members read stays
        if root not in ends:
            read = {roots.of.get(v) for v, _ in reads[root].ends}
            ends = [end for end in ends if end not in read]
    if shared_work(ends, reads, NOWHERE) < WORK_OF_ENDS:
        return members
    return [root for root in members if root not in ends]


def _matmul(
    product: Root, remaining: list[Root], done: set[Root], roots: Roots, reads: dict[Root, Reads]
) -> Nest:
    """Return the nest of a contraction, with the roots over the same loops that need no other new root."""
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


def _candidates(remaining: list[Root], reads: dict[Root, Reads]) -> list[frozenset[Axis]]:
    """Return sets of row axes to try. Of equally good ones, the first is preferred."""
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
            many |= bool(rest) and hint(prod(root.loops[a] for a in root.reduced)) < CARRIED_ROWS
            found += [rest, *carried] if many else [*carried, rest]
        else:
            found += [root.parallel] if root.parallel else carried
            found += carried
        found.append(root.parallel)
    return list(dict.fromkeys(found))


def _suited(rows: frozenset[Axis], roots: list[Root], reads: dict[Root, Reads]) -> list[Root]:
    """Return the roots that are not written across the rows. The others need separate nests."""
    inside = {r for r in roots if rows < r.loops.keys() and not (r.is_reduction and rows <= r.parallel)}
    return [root for root in roots if root not in inside or fast_axis([root], reads) not in rows]


def _strided(rows: frozenset[Axis], members: list[Root], reads: dict[Root, Reads]) -> bool:
    """Return True if a reduction inside the rows would read memory with a stride."""
    inside = (root for root in members if root.reduced and rows <= root.parallel)
    return any(fast_axis([root], reads) in rows for root in inside)


def _nest(rows: frozenset[Axis], members: list[Root], reads: dict[Root, Reads]) -> Nest:
    sizes = {axis: size for root in members for axis, size in root.loops.items()}
    offsets = offsets_of(members, reads)
    slowest = {axis: max((hint(o.factor(axis)) for o in offsets), default=0) for axis in sizes}
    order = sorted(sizes, key=lambda axis: -slowest[axis])
    nest = Nest([a for a in order if a in rows], members, sizes=sizes, order=order)
    merge_axes(nest, offsets, reads)
    chosen = part_axes(members, reads, sizes)
    parts = [a for a in nest.order if a in chosen]
    if any(nest.inner(root) for root in members) or not nest.rows:
        nest.lanes = is_side_by_side(rows, members, reads)
        inside = [a for a in nest.order if a not in nest.rows]
        nest.written_out = inside if nest.lanes else [a for a in parts if a in inside]
        nest.block = None if nest.lanes else _block(nest) or _block_of_sums(nest, reads)
        nest.row_work = shared_work(members, reads, inside[-1]) if inside else 0
        return nest
    chosen |= shared_axes(nest, reads, chosen)
    parts = [a for a in nest.order if a in chosen]
    free = [a for a in nest.rows if a not in parts or len(parts) == len(nest.rows)]
    fast = free[-1]
    for written in (a for a in free if a != fast and all(o.factor(a) == 1 for o in _results(members))):
        turned = _turned(fast, written, members, reads)
        if next(turned, None) is not None:  # what is read across the rows can be transposed in registers
            fast = written
    nest.rows.remove(fast)
    nest.order = [a for a in nest.order if a != fast] + [fast]
    apart = [o for o in offsets if hint(o.factor(fast)) > 1]
    nest.transposed = any(o.factor(axis) == 1 for o in apart for axis in nest.rows if axis not in parts)
    if nest.transposed:
        for row in (axis for axis in nest.rows if axis not in parts):
            turned = list(dict.fromkeys(_turned(row, fast, members, reads)))
            if turned and nest.across is None:
                nest.turned, nest.across = turned, row
    elif not nest.transposed:  # within the loop over ``fast``, common reads of the parts are loaded once
        nest.written_out = [a for a in parts if a != fast]
        nest.rows = [a for a in nest.rows if a not in nest.written_out]
        nest.order = [a for a in nest.order if a not in nest.written_out] + nest.written_out
    nest.split = not nest.rows
    return nest


def _results(members: list[Root]) -> list[Linear]:
    """Return the offsets at which roots write."""
    every = ((root, n) for root in members for n in range(root.result_count()))
    return [row_major(root.result_index(n), root.result_shape(n)) for root, n in every]


def _block(nest: Nest) -> tuple[Axis, int] | None:
    """Return the axis inside the rows along which nothing is reduced, if blocks of it make loops faster.

    A softmax over channels [N, C, pixels] reads a sample three times, in loops over C and pixels. In blocks
    of pixels it reads it once from memory. Blocks have :data:`BLOCK_BYTES` of each tensor, or a few cache
    lines of each row.
    """
    if not nest.rows or not nest.order:
        return None
    axis, inner = nest.order[-1], [nest.inner(root) for root in nest.roots]
    if axis in (*nest.rows, *nest.written_out) or not all(axis in axes for axes in inner):
        return None
    sizes = {a: nest.sizes[a] for axes in inner for a in axes}
    if any(nest.carried(root) or axis in root.reduced for root in nest.roots) or not _are_static(sizes):
        return None
    across = max(prod(int(sizes[a]) for a in axes if a != axis) for axes in inner)
    size, passes = int(sizes[axis]), sum(len(axes) > 1 for axes in inner)
    wanted = max(BLOCK, BLOCK_BYTES // (4 * across) // BLOCK * BLOCK)
    fits = 4 * across * wanted <= MOST_BYTES
    return (axis, wanted) if passes > 1 and size > wanted and fits else None


def _block_of_sums(nest: Nest, reads: dict[Root, Reads]) -> tuple[Axis, int] | None:
    """Return the axis inside rows of which all are summed, if blocks of it make reads faster.

    Sums over pairs of rows read each row many times. Blocks have :data:`BLOCK_BYTES` of the rows that one
    step of the outermost row axis reads. What is read once only is read in whole rows.
    """
    inner = {axis for root in nest.roots for axis in nest.inner(root)}
    if len(nest.rows) < 2 or len(inner) != 1 or not all(nest.carried(root) for root in nest.roots):
        return None
    (axis,), (_, *rows) = inner, nest.rows
    ends = [end for root in nest.roots for end in reads[root].ends]
    offsets = [row_major(index, value.shape) for value, index in ends if index is not None]
    read = [offset for offset in offsets if hint(offset.factor(axis)) != 0]
    again = all(any(hint(offset.factor(row)) == 0 for row in nest.rows) for offset in read)
    if not (read and again and len(offsets) == len(ends) and _are_static(nest.sizes)):
        return None
    if any(axis in root.reduced for root in nest.roots):
        return None
    varying = [[row for row in rows if hint(offset.factor(row)) != 0] for offset in read]
    across = max(prod(int(nest.sizes[row]) for row in each) for each in varying)
    wanted = max(BLOCK, BLOCK_BYTES // (4 * across) // BLOCK * BLOCK)
    return (axis, wanted) if int(nest.sizes[axis]) > wanted and 4 * across * wanted <= MOST_BYTES else None


def _are_static(sizes: Mapping[Axis, AnySize]) -> bool:
    return all(isinstance(size, int) for size in sizes.values())


def _turned(
    row: Axis, fast: Axis, members: list[Root], reads: dict[Root, Reads]
) -> Iterator[tuple[Argument, Index]]:
    """Yield the arguments that are read across the rows, with their indices."""
    for value, index in (end for root in members for end in reads[root].ends):
        if isinstance(value, Argument) and index is not None:
            offset = row_major(index, value.shape)
            picks = any(isinstance(axis, Picked) for axis, _ in offset.terms)
            if not picks and offset.factor(row) == 1 and hint(offset.factor(fast)) > 1:
                yield value, index


def _place_barriers(nests: list[Nest], roots: Roots, reads: dict[Root, Reads]) -> None:
    written: set[Root] = set()
    for nest in nests:
        touched = [v for r in nest.roots for v, _ in (*reads[r].ends, *reads[r].between)]
        read = {roots.of[v] for v in touched if v in roots.of} - set(nest.roots)
        if read & written:
            nest.waits = True
            written = set()
        carried = {r for r in nest.roots if nest.carried(r)}
        written = carried or written | set(nest.roots)  # the reduction of carried results has a barrier


def read_later(nest: Nest, nests: list[Nest], roots: Roots, reads: dict[Root, Reads]) -> set[Root]:
    """Return the roots of ``nest`` that other nests read."""
    others = [r for other in nests if other is not nest for r in other.roots]
    found = {roots.of[v] for r in others for v, _ in reads[r].ends if not isinstance(v, Argument)}
    return found & set(nest.roots)
