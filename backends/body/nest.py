"""Grouping of roots into nests. A nest has loops over rows, and all computation of a row inside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from shardc.backends.body.graph import Argument, Computed, Value
from shardc.backends.body.linear import Axis, Index, Linear, Picked, row_major
from shardc.backends.body.roots import Reads, Root, Roots
from shardc.diagnostics.kernels import KernelNotSupported
from shardc.dialects.kern.generic import loop_of
from shardc.dialects.kern.size import AnySize, hint


@dataclass(eq=False)
class Nest:
    """Roots that run together. ``rows``: outer axes, divided among threads or programs; others are inner
    loops.

    A root is *carried* if its reduction runs over all rows. Then each thread or program has a partial result,
    and they are joined after the nest. ``order``: all axes, the slowest in memory first. ``merged``: axes
    that became part of another one (:func:`merge_axes`).
    """

    rows: list[Axis]
    roots: list[Root]
    merged: set[Axis] = field(default_factory=set)
    sizes: dict[Axis, AnySize] = field(default_factory=dict)
    order: list[Axis] = field(default_factory=list)

    def carried(self, root: Root) -> bool:
        return bool(self.rows) and set(self.rows) <= root.reduced

    def inner(self, root: Root) -> list[Axis]:
        """Return the axes of the root's loops inside a row, outermost first."""
        axes = root.loops.keys() - set(self.rows) - self.merged
        return [a for a in self.order if a in axes]


def is_ready(root: Root, done: set[Root], roots: Roots, reads: dict[Root, Reads]) -> bool:
    return all(isinstance(v, Argument) or roots.of[v] in done for v, _ in reads[root].ends)


def components(items: list[Root]) -> dict[Root, int]:
    """Number the connected components of roots with common loops. Roots without loops form one component."""
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


def members_of(
    rows: frozenset[Axis], remaining: list[Root], done: set[Root], roots: Roots, reads: dict[Root, Reads]
) -> list[Root]:
    """Return the remaining roots that fit one nest over ``rows``: they share axes, and follow their reads."""
    members: list[Root] = []
    for root in remaining:
        inside = rows <= root.parallel
        carried = bool(rows) and rows <= root.reduced and root.combiners is not None
        alone = not rows and root.parallel | root.reduced and members
        made = [(roots.of[v], v, i) for v, i in reads[root].ends if not isinstance(v, Argument)]
        ready = all(r in done or _in_row(r, v, i, rows, members) for r, v, i in made)
        if (inside or carried) and not alone and ready:
            members.append(root)
    return members


def _in_row(
    made: Root, value: Value, index: Index | None, rows: frozenset[Axis], members: list[Root]
) -> bool:
    """Return True if ``made`` has computed ``value`` at ``index`` when its loops in the row end."""
    if made not in members or not isinstance(value, Computed) or not made.is_reduction:
        return False
    return rows <= made.parallel and made.result_index(value.number) == index


def fast_axis(members: list[Root], reads: dict[Root, Reads]) -> Axis | None:
    """Return the axis along which most of the elements read and written are contiguous."""
    sizes = {axis: size for root in members for axis, size in root.loops.items()}
    votes = dict.fromkeys(sizes, 0)
    for found in offsets_of(members, reads):
        touched = hint(prod(sizes.get(axis, 1) for axis in found.axes))
        for axis, factor in found.terms:
            for along in axis.adjacent if isinstance(axis, Picked) else [axis]:
                if along in votes:
                    votes[along] += touched * (factor == 1)
    return max(votes, key=lambda axis: votes[axis]) if votes else None


def offsets_of(members: list[Root], reads: dict[Root, Reads]) -> list[Linear]:
    found = [row_major(index, shape) for r in members for shape, index in reads[r].shapes]
    for root in members:
        found += [row_major(root.result_index(n), root.result_shape(n)) for n in range(root.result_count())]
    return found


def merge_axes(nest: Nest, offsets: list[Linear], reads: dict[Root, Reads]) -> None:
    """Merge adjacent axes if all accesses are contiguous over both: ``i * size(j) + j`` becomes ``j``.

    The outer axis stays in index expressions with the value 0, since the inner axis covers its loop.
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
            # The pair has the inner axis's name. The next outer axis must be contiguous to both.
            nest.merged.add(outer)
            nest.sizes[inner] *= nest.sizes[outer]
            nest.order.remove(outer)
            if outer in nest.rows:
                nest.rows.remove(outer)


def _counted(root: Root, reads: Reads) -> set[Axis]:
    """Return axes whose position is used by ``linalg.index``."""
    bodies = [(v.generic, v.loops_at(index)) for v, index in reads.between]
    bodies += [(root.generic, root.dims)] if root.generic else []
    found: set[Axis] = set()
    for generic, dims in bodies:
        loops = (loop_of(op.results[0]) for op in generic.body_ops)
        found |= {a for loop in loops if loop is not None for a, _ in dims[loop].terms}
    return found


def check_in_place(roots: Roots, reads: dict[Root, Reads], nests: Sequence[Nest]) -> None:
    """Raise KernelNotSupported if loops other than those that overwrite an operand read it."""
    for root in roots.items:
        for argument, index in roots.written(root):
            touch = {r for r in roots.items if any(value is argument for value, _ in reads[r].ends)} | {root}
            same = all(i == index for r in touch for value, i in reads[r].ends if value is argument)
            if not same or not any(touch <= set(nest.roots) for nest in nests):
                raise KernelNotSupported(what="a result in the memory of an operand that other loops read")


@contextmanager
def recursion(depth: int) -> Iterator[None]:
    """Context with a recursion limit of at least ``depth``."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
