"""Identification of equal loops of different roots, from what the roots read from each other and share."""

from __future__ import annotations

from collections.abc import Hashable

from shardc.backends.body.graph import Argument
from shardc.backends.body.linear import Axis, Index
from shardc.backends.body.roots import Roots
from shardc.dialects.kern.size import AnySize


class _Classes:
    """Union-find over axes ``(root, dim)``. Never joins two loops of one root, or loops of unequal sizes."""

    def __init__(self, sizes: dict[Axis, AnySize]) -> None:
        self.parent = {axis: axis for axis in sizes}
        self.members = {axis: {axis} for axis in sizes}
        self.sizes = sizes

    def find(self, axis: Axis) -> Axis:
        while self.parent[axis] != axis:
            self.parent[axis] = axis = self.parent[self.parent[axis]]
        return axis

    def join(self, a: Axis | None, b: Axis | None) -> None:
        """Join two axes into one; do nothing if either is None."""
        if a is None or b is None:
            return
        a, b = sorted((self.find(a), self.find(b)), key=_position)
        if a == b or self.sizes[a] != self.sizes[b]:
            return
        if {_position(m)[0] for m in self.members[a]} & {_position(m)[0] for m in self.members[b]}:
            return
        self.parent[b] = a
        self.members[a] |= self.members.pop(b)


def _position(axis: Axis) -> tuple[int, int]:
    """Return the root and the dim of a loop's axis."""
    assert isinstance(axis, tuple)
    return axis


def join_axes(roots: Roots) -> None:
    """Rename the loops of all roots, so that loops that can run together have the same name.

    Loops are joined first through reads of one root by another, then through arguments that two roots read or
    write, and then through ops that both compute.
    """
    classes = _Classes({axis: size for root in roots.items for axis, size in root.loops.items()})
    arguments: list[tuple[Hashable, Index]] = []
    computed: list[tuple[Hashable, Index]] = []
    for root in roots.items:
        arguments += [((written, written.shape), index) for written, index in roots.written(root)]
        reads = roots.reads(root)
        computed += [(value.generic, value.loops_at(index)) for value, index in reads.between]
        for (value, index), (shape, seen) in zip(reads.ends, reads.shapes, strict=True):
            if isinstance(value, Argument):
                arguments.append(((value, shape), seen))
            elif index is not None:
                there = roots.of[value].result_index(getattr(value, "number", 0))
                for mine, other in zip(index, there, strict=True):
                    classes.join(mine.plain(), other.plain())
    shared: dict[Hashable, Axis | None] = {}
    for what, index in [*arguments, *computed]:
        for dim, position in enumerate(index):
            axis = position.plain()
            if axis is not None:
                classes.join(axis, shared.setdefault((what, dim), axis))
    for root in roots.items:
        root.dims = tuple(d.rename(classes.find) for d in root.dims)
