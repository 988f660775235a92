"""Finds loops of different roots that are the same, through what the roots read from each other and share."""

from __future__ import annotations

from shardc.backends.body.graph import Argument, Generic, Value
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

    def join(self, a: Axis, b: Axis) -> None:
        a, b = sorted((self.find(a), self.find(b)))
        if a == b or self.sizes[a] != self.sizes[b]:
            return
        if {root for root, _ in self.members[a]} & {root for root, _ in self.members[b]}:
            return
        self.parent[b] = a
        self.members[a] |= self.members.pop(b)


def join_axes(roots: Roots) -> None:
    """Renames the loops of all roots, so that loops that can be run together have one name.

    What a root reads of another root joins first, then what two roots both read of an argument, or one of
    them writes to it, then the ops that both compute.
    """
    classes = _Classes({axis: size for root in roots.items for axis, size in root.loops.items()})
    arguments: list[tuple[Value, tuple[int, ...], Index]] = []
    computed: list[tuple[Generic, Index]] = []
    for root in roots.items:
        arguments += [(written, written.shape, index) for written, index in roots.written(root)]
        reads = roots.reads(root)
        computed += [
            (value.generic, value.generic.dims_at(value.number, index)) for value, index in reads.between
        ]
        for (value, index), (shape, seen) in zip(reads.ends, reads.shapes, strict=True):
            if isinstance(value, Argument):
                arguments.append((value, shape, seen))
                continue
            if index is None:
                continue
            made = roots.of[value]
            for here, there in zip(index, made.result_index(getattr(value, "number", 0)), strict=True):
                if here.plain() is not None and there.plain() is not None:
                    classes.join(here.plain(), there.plain())
    shared: dict[object, Axis] = {}
    for *what, index in [*arguments, *computed]:
        for dim, position in enumerate(index):
            if position.plain() is not None:
                classes.join(position.plain(), shared.setdefault((*what, dim), position.plain()))
    for root in roots.items:
        root.dims = tuple(d.rename(classes.find) for d in root.dims)
