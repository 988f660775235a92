"""Grouping of roots into functions: a program takes some rows, with all computation of a row inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from shardc.backends.body.linear import Axis
from shardc.backends.body.nest import Nest, components, fast_axis, members_of, merge_axes, offsets_of
from shardc.backends.body.roots import Reads, Root, Roots
from shardc.backends.triton.config import CARRIED_ROWS, PERSISTENT
from shardc.cost.machine import Gpu
from shardc.diagnostics.triton import TritonKernelNotSupported
from shardc.dialects.kern.size import hint


@dataclass(eq=False)
class Function(Nest):
    """Nest that one ``@triton.jit`` function computes.

    ``stages``: roots grouped by the reductions of the row that they wait for. ``across``: memory is
    contiguous across rows, which must be read together.
    """

    stages: list[list[Root]] = field(default_factory=list)
    across: bool = False

    def needs_whole_rows(self) -> bool:
        """Return True if a reduction runs inside of a row, so that a program needs the whole row."""
        inner = [(r, set(self.inner(r))) for r in self.roots if r.is_reduction]
        return any(axes & r.reduced for r, axes in inner)

    def spaces(self) -> list[tuple[Axis, ...]]:
        """Return the axes of each loop inside a row: a row's elements in one order."""
        return list(dict.fromkeys(tuple(self.inner(r)) for r in self.roots if self.inner(r)))


def find_functions(
    roots: Roots, reads: dict[Root, Reads], target: Gpu, without: Sequence[Root] = ()
) -> list[Function]:
    """Group all roots, except those in ``without``, into functions in a valid order.

    Raises TritonKernelNotSupported for a reduction with an unknown combiner.
    """
    done: set[Root] = set(without)
    found: list[Function] = []
    remaining = [r for r in roots.items if r not in done]
    near = components(remaining)
    for root in remaining:
        if root.is_reduction and root.combiners is None:
            raise TritonKernelNotSupported(what="a reduction that does more than combine terms")
    while remaining:
        close = [r for r in remaining if near[r] == near[remaining[0]]]
        candidates = _candidates(close, reads, target)
        fits = {rows: [r for r in close if _fits(rows, r)] for rows in candidates}
        members = {rows: members_of(rows, fits[rows], done, roots, reads) for rows in candidates}
        tried = [_function(rows, members[rows], roots, reads) for rows in candidates]
        best = max(tried, key=lambda f: (bool(f.roots), _is_read_in_lines(f, target), len(f.roots)))
        if not best.roots:
            raise TritonKernelNotSupported(what="reductions that depend on each other's rows")
        found.append(best)
        done |= set(best.roots)
        remaining = [r for r in remaining if r not in done]
    return found


def _is_read_in_lines(function: Function, target: Gpu) -> bool:
    """Return True if tiles across rows can be high enough to read whole lines of memory."""
    summed = [r for r in function.roots if r.reduced - set(function.rows)]
    widths = [prod(function.sizes[a] for a in function.inner(r)) for r in summed]
    return not function.across or max(map(hint, widths)) * target.warp_size <= PERSISTENT


def with_scalars(functions: list[Function]) -> list[Function]:
    """Move roots without loops into the first function with rows, where one program computes them."""
    rows = [f for f in functions if f.order]
    alone = [root for f in functions if not f.order for root in f.roots]
    if not rows or not alone:
        return functions
    rows[0].roots = [*alone, *rows[0].roots]
    rows[0].stages[0] = [*alone, *rows[0].stages[0]]
    return rows


def _candidates(near: list[Root], reads: dict[Root, Reads], target: Gpu) -> list[frozenset[Axis]]:
    """Return sets of row axes to try. Of equally good ones, the first is preferred."""
    found: list[frozenset[Axis]] = []
    for root in near:
        if not root.is_reduction:
            found.append(root.parallel)
        elif not root.parallel:
            found.append(root.reduced)
        else:
            count = hint(prod(root.loops[a] for a in root.parallel))
            side_by_side = target.warp_size if fast_axis([root], reads) in root.parallel else 1
            enough = count >= 2 * target.units * side_by_side
            long = hint(prod(root.loops[a] for a in root.reduced)) >= CARRIED_ROWS
            found += [root.reduced, root.parallel] if long and not enough else [root.parallel, root.reduced]
    return list(dict.fromkeys(found))


def _function(rows: frozenset[Axis], members: list[Root], roots: Roots, reads: dict[Root, Reads]) -> Function:
    inside = [r for r in members if r.is_reduction and r.reduced - rows]
    widths = (hint(prod(size for a, size in r.loops.items() if a not in rows)) for r in members)
    width = max(widths, default=1)
    if inside and width > PERSISTENT:  # a sum over rows of sums within a row needs whole rows
        shared = [r for r in members if r.is_reduction and rows <= r.reduced]
        members = [r for r in members if r not in shared] if len(shared) < len(members) else shared[:1]
    sizes = {axis: size for root in members for axis, size in root.loops.items()}
    offsets = offsets_of(members, reads)
    slowest = {axis: max((hint(o.factor(axis)) for o in offsets), default=0) for axis in sizes}
    order = sorted(sizes, key=lambda axis: -slowest[axis])
    made = Function([a for a in order if a in rows], members, sizes=sizes, order=order)
    if members:
        merge_axes(made, offsets, reads)
        made.stages = _stages(members, roots, reads)
        summed = [r for r in members if r.is_reduction and rows <= r.parallel]
        made.across = any(fast_axis([r], reads) in rows for r in summed)
    return made


def _fits(rows: frozenset[Axis], root: Root) -> bool:
    """Return True if a program of rows can compute the root: it reduces within a row, or over all rows."""
    if not root.is_reduction:
        return True
    inside = root.loops.keys() - rows
    is_carried = rows <= root.reduced and (inside <= root.parallel or inside <= root.reduced)
    return root.parallel == rows or is_carried


def _stages(members: list[Root], roots: Roots, reads: dict[Root, Reads]) -> list[list[Root]]:
    level: dict[Root, int] = {}
    for root in members:
        before = [roots.of[v] for v, _ in reads[root].ends if v in roots.of]
        level[root] = max((level[r] + 1 for r in before if r in level), default=0)
    stages: list[list[Root]] = [[] for _ in range(max(level.values()) + 1)]
    for root in members:
        stages[level[root]].append(root)
    return stages
