"""Axes inside a row whose steps are written out: parts of concatenations, and few channels or coordinates."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from torch_mlir import ir

from shardc.backends.body import nest as body
from shardc.backends.body.graph import Generic
from shardc.backends.body.linear import Axis, Index
from shardc.backends.body.nest import fast_axis
from shardc.backends.body.roots import Reads, Root
from shardc.cost.work import ADDITIONS
from shardc.dialects.kern.generic import loop_of
from shardc.dialects.kern.size import AnySize

MAX_PARTS = 32
"""Maximum number of parts of a nest's concatenations, because each part copies the loop's body."""
SHORT = 4
"""Most steps of an axis that is written out because they share work. LLVM reads and writes as many adjacent
elements of each step of a vector loop by shuffles."""
SHARED_WORK = 8
"""Least work, in additions, that steps share: a division and a root, say."""

MAX_WORK = 1000
"""Most work, in additions, of the written-out sums of a row."""
MAX_ADJACENT = 8
"""Most adjacent elements of a row that are lanes of eight vectors."""
MAX_STORED = 16
"""Most elements of such a row that are results: they are in registers until all its sums are known."""

CASTS = ("arith.index_cast", "arith.trunci", "arith.extsi")


def shared_axes(nest: body.Nest, reads: dict[Root, Reads], chosen: Collection[Axis]) -> set[Axis]:
    """Return short axes of a pointwise nest whose steps share work, such as the length of a vector.

    ``chosen``: axes that are written out in any case.
    """
    found: set[Axis] = set()
    parts = prod(int(nest.sizes[axis]) for axis in nest.rows if axis in chosen)
    for axis in nest.rows:
        size = nest.sizes[axis]
        if axis in chosen or not isinstance(size, int) or size > SHORT:
            continue
        shared = sum(shared_work([root], reads, axis) for root in nest.roots if axis in root.loops)
        if shared >= SHARED_WORK and parts * size <= MAX_PARTS and len(found) + 1 < len(nest.rows):
            found.add(axis)
            parts *= size
    return found


def is_side_by_side(rows: Collection[Axis], members: Sequence[Root], reads: dict[Root, Reads]) -> bool:
    """Return whether short sums inside of rows are best written out, so that rows are lanes of vectors.

    That is so if neighbours in memory are in different rows: a sum over 20 days, or a softmax over 10
    classes of each pixel; or if a row has few elements (:data:`MAX_ADJACENT`). Then a row is read from memory
    once, and what is computed of it stays in registers.
    """
    sums = [root for root in members if root.reduced]
    sizes = {axis: size for root in members for axis, size in root.loops.items() if axis not in rows}
    whole = all(root.reduced == root.loops.keys() - set(rows) for root in sums)
    if not sums or not whole or any(not set(rows) <= root.parallel for root in members):
        return False
    if not rows or not all(isinstance(size, int) for size in sizes.values()):
        return False
    if fast_axis(sums, reads) not in rows and prod(map(int, sizes.values())) > MAX_ADJACENT:
        return False
    work = 0
    for root in members:
        copies = prod(int(sizes[axis]) for axis in root.loops if axis in sizes)
        work += copies * (1 + sum(map(_work, _bodies(root, reads[root]))))
        if copies > (MAX_PARTS if root.reduced else MAX_STORED) or work > MAX_WORK:
            return False
    return True


def _bodies(root: Root, reads: Reads) -> list[Generic]:
    """Return the ops that an element of a root's results comes from."""
    found = dict.fromkeys((value.generic, value.loops_at(index)) for value, index in reads.between)
    return [generic for generic, _ in found] + ([root.generic] if root.generic else [])


def _work(generic: Generic) -> int:
    """Return the work of an op's body, in additions."""
    numbers = [op for op in generic.body_ops if not isinstance(op.results[0].type, ir.IndexType)]
    return sum(ADDITIONS.get(op.name, 1) for op in numbers if len(op.operands))


def shared_work(roots: Sequence[Root], reads: dict[Root, Reads], axis: Axis) -> int:
    """Return the work for elements of the results of ``roots`` that does not depend on ``axis``, in
    additions.
    """
    bodies = [
        (value.generic, value.loops_at(index)) for root in roots for value, index in reads[root].between
    ]
    bodies += [(root.generic, root.dims) for root in roots if root.generic]
    every = dict.fromkeys(bodies)
    return sum(_same_work(generic, dims, axis) for generic, dims in every)


def _same_work(generic: Generic, dims: Index, axis: Axis) -> int:
    differs: set[ir.Value] = set()
    for number in generic.read_operands:
        if any(axis in position.axes for position in generic.operand_index(number, dims)):
            differs.add(generic.block.arguments[number])
    work = 0
    for op in generic.body_ops:
        loop, extract = loop_of(op.results[0]), generic.extracts.get(op.results[0])
        if loop is not None:
            differs.update(op.results if axis in dims[loop].axes else ())
        elif extract is not None:
            index = extract.index(generic, dims)
            differs.update(op.results if any(axis in position.axes for position in index) else ())
        elif not differs.isdisjoint(op.operands):
            differs.update(op.results)
        elif not isinstance(op.results[0].type, ir.IndexType | ir.IntegerType):
            work += ADDITIONS.get(op.name, 1) if len(op.operands) else 0
    return work


def part_axes(members: list[Root], reads: dict[Root, Reads], sizes: Mapping[Axis, AnySize]) -> set[Axis]:
    """Return the axes that select the parts of a concatenation: their index is compared with constants.

    With such an axis fixed, each part is a simple vector loop.
    """
    found: set[Axis] = set()
    for root in members:
        bodies = [(v.generic, v.generic.dims_at(v.number, index)) for v, index in reads[root].between]
        bodies += [(root.generic, root.dims)] if root.generic else []
        for generic, dims in bodies:
            found |= {a for dim in _chosen_by(generic) for a, _ in dims[dim].terms if a in sizes}
    static = all(isinstance(sizes[a], int) for a in found)
    return found if static and prod(sizes[a] for a in found) <= MAX_PARTS else set()


def _chosen_by(generic: Generic) -> Iterator[int]:
    """Yield the dims of ``generic`` whose index is compared with constants."""
    for op in generic.body_ops:
        if (loop := loop_of(op.results[0])) is not None and _is_compared(op.results[0]):
            yield loop


def _is_compared(value: ir.Value) -> bool:
    """Return True if every use of ``value`` is a comparison with a constant."""
    for user in (use.owner.operation for use in value.uses):
        if user.name == "arith.cmpi":
            made = [v.owner.operation for v in user.operands if not isinstance(v, ir.BlockArgument)]
            same = any(op.name == "arith.constant" for op in made)
        else:
            same = user.name in CASTS and _is_compared(user.results[0])
        if not same:
            return False
    return True
