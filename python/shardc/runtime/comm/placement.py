"""Layouts as DTensor says them: a DeviceMesh over the finest (sub-)axes in use, and a placement for each.

DTensor cuts a dim by several mesh dims in mesh order only. A layout with its axes in another order is placed
on a DeviceMesh with the same ranks and its dims permuted. Where it cuts a dim by several mesh dims that do
not divide it, it chunks chunks, which is not what ``torch.chunk`` gives for all ranks at once: such a dim is
cut by one mesh dim, which joins the others.
"""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from .layout import Leaf
from .mesh import Axes, Axis, Mesh, inside, ways

ALONE = "alone"
"""The mesh dim of one rank, for what a rank of a pipeline shares with nobody."""

Order = tuple[Axes, ...]
"""The dims of a DeviceMesh: the parts that each joins, nearly always one."""


class DeviceMeshes:
    """The DeviceMeshes that the leaves of one program need. All ranks must make it together.

    Along the axis ``apart`` ranks have leaves of their own, on a DeviceMesh's part at one place there.
    """

    def __init__(self, mesh: Mesh, device: str, leaves: Iterable[Leaf], apart: Axis | None = None) -> None:
        leaves = list(leaves)
        self._mesh, self._apart = mesh, apart
        self._parts = mesh.finest(a for leaf in leaves for dim in leaf.space_dims(mesh) for a in dim)
        self._made: dict[Order, DeviceMesh] = {}
        for order in [_apart(self._parts), *map(self._order, leaves)]:
            if order not in self._made:
                self._made[order] = self._make(order, device)

    @property
    def main(self) -> DeviceMesh:
        """The one in mesh order."""
        return self._made[_apart(self._parts)]

    def of(self, leaf: Leaf) -> tuple[DeviceMesh, list[Placement]]:
        order, dims = self._order(leaf), self._dims(leaf)
        mesh = self._made[order]
        if self._apart is not None:
            order = tuple(parts for parts in order if parts != (self._apart,))
            mesh = mesh[self._names(order) or (ALONE,)]
        heads = [parts[0] for parts in order]
        return mesh, [Shard(dims[p]) if p in dims else Replicate() for p in heads] or [Replicate()]

    def _dims(self, leaf: Leaf) -> dict[Axis, int]:
        """The dim that each finest part cuts, major parts of a dim first."""
        dims = enumerate(leaf.space_dims(self._mesh))
        return {p: d for d, axes in dims for a in axes for p in self._parts if inside(p, a)}

    def _order(self, leaf: Leaf) -> Order:
        """Mesh order, unless axes of one dim are the other way round, or several axes cut a padded dim."""
        dims = self._dims(leaf)
        place = {part: i for i, part in enumerate(self._parts)}
        wanted = sorted(dims, key=dims.__getitem__)
        joined = [tuple(p for p in wanted if dims[p] == d) for d in dict.fromkeys(dims[p] for p in wanted)]
        rest = tuple(p for p in self._parts if p not in dims)
        if any(
            len(parts) > 1 and leaf.padded and leaf.padded[dims[parts[0]]] != leaf.shape[dims[parts[0]]]
            for parts in joined
        ):
            return (*joined, *_apart(rest))
        if all(place[a] < place[b] for a, b in pairwise(wanted) if dims[a] == dims[b]):
            return _apart(self._parts)
        return _apart((*wanted, *rest))

    def _make(self, order: Order, device_type: str) -> DeviceMesh:
        ranks = torch.arange(self._mesh.world_size).view([size for _, _, size in self._parts])
        permuted = ranks.permute([self._parts.index(part) for parts in order for part in parts])
        shaped = permuted.reshape([ways(parts) for parts in order])
        names = self._names(order)
        if order == ((self._apart,),):
            shaped, names = shaped.unsqueeze(1), (*names, ALONE)
        return DeviceMesh(device_type, shaped, mesh_dim_names=names)

    def _names(self, order: Order) -> tuple[str, ...]:
        return tuple("_".join(map(self._name, parts)) for parts in order)

    def _name(self, part: Axis) -> str:
        """``data`` for a whole axis, ``data_1`` for the second of its parts."""
        same = [p for p in self._parts if p[0] == part[0]]
        return part[0] if len(same) == 1 else f"{part[0]}_{same.index(part)}"


def _apart(parts: Axes) -> Order:
    """A mesh dim for each part."""
    return tuple((part,) for part in parts)


def whole(tensor: DTensor) -> Tensor:
    """Return the whole tensor on each rank; all call it together.

    It is gathered over one mesh dim after the other, the last first. ``full_tensor`` does the same, with a
    warning for each mesh.
    """
    placements = list(tensor.placements)
    for dim in reversed(range(len(placements))):
        placements[dim] = Replicate()
        tensor = tensor.redistribute(placements=placements)
    return tensor.to_local()
