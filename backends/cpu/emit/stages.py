"""Stages of a row, separated by reductions, and the choice of values to store instead of recompute."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from shardc.backends.body.graph import Argument, Computed, Slice, Value, View
from shardc.backends.body.linear import Axis, Index, row_major
from shardc.backends.body.roots import Reads, Root, Roots
from shardc.backends.cpu.config import Config
from shardc.backends.cpu.emit.buffers import width_bytes
from shardc.backends.cpu.emit.nests import Nest
from shardc.cost.work import ADDITIONS
from shardc.dialects.kern.size import AnySize, hint


@dataclass(eq=False)
class Loop:
    """Loop nest inside a row, over ``axes``, for ``roots`` and for the values ``kept`` for later stages.

    ``ahead``: reads of the next row's first stage that this loop prefetches, contiguous along its axis.
    """

    axes: list[Axis]
    roots: list[Root]
    kept: list[tuple[Computed, Index]] = field(default_factory=list)
    ahead: list[tuple[Argument, Index]] = field(default_factory=list)


@dataclass(eq=False)
class Stages:
    """Loops of each stage, in order. ``again``: values that a root has stored, with the root."""

    stages: list[list[Loop]]
    again: dict[tuple[Computed, Index], Root]

    @property
    def loops(self) -> list[Loop]:
        """All loops in order."""
        return [loop for stage in self.stages for loop in stage]


def find_stages(nest: Nest, roots: Roots, reads: dict[Root, Reads], config: Config) -> Stages:
    """Sort the roots of a nest into stages and loops."""
    level: dict[Root, int] = {}
    for root in nest.roots:
        before = [roots.of[v] for v, _ in reads[root].ends if not isinstance(v, Argument)]
        level[root] = max((level[r] + 1 for r in before if r in level), default=0)
    loops: dict[tuple[int, *tuple[Axis, ...]], Loop] = {}
    for root in nest.roots:
        axes = nest.inner(root)
        loops.setdefault((level[root], *axes), Loop(axes, [])).roots.append(root)
    stages = [[loop for key, loop in loops.items() if key[0] == n] for n in range(max(level.values()) + 1)]
    if nest.lanes:  # LLVM finds equal ops of stages, and keeps their results in registers
        return Stages(stages, {})
    _look_ahead(nest, stages, roots, reads, config)
    return Stages(stages, _keep(nest, stages, roots, reads, config.recompute_cost))


def _look_ahead(
    nest: Nest, stages: list[list[Loop]], roots: Roots, reads: dict[Root, Reads], config: Config
) -> None:
    """Fill ``ahead`` of the first loop with enough arithmetic to hide prefetching, or of the last loop.

    A softmax that prefetches the next row during its exponentials takes three quarters of the time of one
    that prefetches during its divisions. A layer norm that prefetches during its sum of squares is slower.
    """
    loops = [loop for stage in stages[1:] for loop in stage if len(loop.axes) == 1]
    if len(nest.rows) != 1 or not loops:
        return
    (axis,) = loops[-1].axes
    known: dict[Value, int] = {}

    def dear(loop: Loop) -> bool:
        read = (v for root in loop.roots for v, _ in root.read())
        return any(cost(v, roots, known) >= config.recompute_cost for v in read)

    fetching = next((loop for loop in loops if loop.axes == [axis] and dear(loop)), loops[-1])
    ends = (end for loop in stages[0] for root in loop.roots for end in reads[root].ends)
    for value, index in dict.fromkeys(ends):
        if not isinstance(value, Argument) or index is None:
            continue
        if hint(prod(value.shape)) * width_bytes(value.element) >= config.far_bytes:
            offset = row_major(index, value.shape)
            here = {nest.rows[0], axis, *nest.merged}  # no other loop's axis, nor a place read from memory
            plain = all(a in here for a, _ in offset.terms)
            if plain and offset.factor(axis) == 1 and offset.factor(nest.rows[0]) != 0:
                fetching.ahead.append((value, index))


def _keep(
    nest: Nest, stages: list[list[Loop]], roots: Roots, reads: dict[Root, Reads], recompute_cost: int
) -> dict[tuple[Computed, Index], Root]:
    """Fill ``kept`` with costly values that a later stage reads. Return those that a root stores anyway."""
    costs: dict[Value, int] = {}
    made: dict[tuple[Computed, Index], Loop] = {}
    again: dict[tuple[Computed, Index], Root] = {}

    def dear(value: Computed, index: Index) -> bool:
        return (value, index) in made and cost(value, roots, costs) >= recompute_cost

    for stage in stages:
        for loop in stage:
            for root in loop.roots:
                for found in roots.reads(root, dear).stopped:
                    _remember(found, made[found], again)
        for loop in stage:
            for root in loop.roots:
                for value, index in reads[root].between:
                    axes = {a for position in index for a, _ in position.terms}
                    if loop.axes and set(loop.axes) == axes - set(nest.rows) - nest.merged:
                        made.setdefault((value, index), loop)
    return again


def _remember(found: tuple[Computed, Index], loop: Loop, again: dict[tuple[Computed, Index], Root]) -> None:
    if found in again or found in loop.kept:
        return
    stored = (r for r in loop.roots if not r.is_reduction and (r.value, r.dims) == found)
    if (root := next(stored, None)) is not None:
        again[found] = root
    else:
        loop.kept.append(found)


def cost(value: Value, roots: Roots, known: dict[Value, int]) -> int:
    """Return the cost of one element, from memory and other roots, in additions."""
    if isinstance(value, View | Slice):
        return cost(value.source, roots, known)
    if not isinstance(value, Computed):
        return 0
    if value not in known:
        generic = value.generic
        own = sum(ADDITIONS.get(op.name, 1) for op in generic.body_ops)
        read = [generic.operands[n] for n in generic.read_operands]
        known[value] = own + sum(cost(v, roots, known) for v in read if v not in roots.of)
    return known[value]


def work_of(roots: Roots) -> AnySize:
    """Return the work of all loops of a kernel, in additions."""
    known: dict[Value, int] = {}
    return sum(prod(r.sizes) * (2 + sum(cost(v, roots, known) for v, _ in r.read())) for r in roots.items)
