"""The structure of a kernel: all that decides its body. Layers of a model have kernels of equal structure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from shardc.passes.fuse.reading.graph import Node, Value
from shardc.passes.fuse.reading.space import Atoms, Space


def in_program(value: Value) -> Value:
    """``value``, or where a call that stays returns a view of it, that view."""
    if value.ir is not None or value.node is None:
        return value
    return next((view for view in value.node.others if view.ir is not None), value)


def structure(nodes: Sequence[Node], space: Space, results: Sequence[Value]) -> tuple[Hashable, list[Value]]:
    """The structure of a kernel of ``nodes`` that makes ``results``; and its tensors by the numbers that they
    have there, those that it makes included.

    It says what each node computes, from tensors of which types, read over which dims: what
    :class:`~shardc.passes.fuse.bodies.body.Body` looks at. Tensors and dims are numbered as they come up.
    """
    values: dict[Value, int] = {}
    atoms: dict[int, int] = {}
    found: list[Hashable] = []

    def named(group: Iterable[int]) -> Atoms:
        return tuple([atoms.setdefault(atom, len(atoms)) for atom in space.resolve(group)])

    for node in nodes:
        for access in node.accesses:
            value = access.base
            if value not in values:
                values[value] = len(values)
                found.append((value.type, in_program(value).type))
            found.append(values[value])
            found += [
                (named(dim.atoms), dim.size, dim.offset, dim.step, dim.sliced, dim.gathered)
                for dim in access.dims
            ]
        values[node.out] = len(values)
        found.append((node.what, tuple(map(named, (*node.out_dims, node.reduced, *node.indices)))))
    found += [(values[result.node.out], result.type) for result in results if result.node is not None]
    return (tuple(found), tuple(space.sizes[atom] for atom in atoms)), list(values)
