"""Layouts in DTensor's terms: a DeviceMesh over the finest (sub-)axes in use, with a placement for each.

DTensor shards a dim over several mesh dims only in mesh order. For a layout with another order of axes, a
DeviceMesh with permuted dims is made. If several mesh dims shard a dim that they do not divide, DTensor
chunks chunks, which differs from one ``torch.chunk`` over all ranks. For such a dim the mesh dims are joined
into one.
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
"""Mesh dim of size 1, for tensors that only one pipeline rank has."""

Order = tuple[Axes, ...]
"""Dims of a DeviceMesh, each with the sub-axes that it joins: nearly always one."""


class DeviceMeshes:
    """DeviceMeshes for the leaves of one program. All ranks must construct it together.

    ``apart``: axis of pipeline stages. Ranks have different leaves along it, so each leaf is on the part of a
    DeviceMesh at one position of that axis.
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
        """DeviceMesh with its dims in mesh order."""
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
        """Return sub-axis -> the dim that it shards, with major sub-axes of a dim first."""
        dims = enumerate(leaf.space_dims(self._mesh))
        return {p: d for d, axes in dims for a in axes for p in self._parts if inside(p, a)}

    def _order(self, leaf: Leaf) -> Order:
        """Return mesh order, unless a dim's axes have another order, or several axes shard a padded dim."""
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
        """Return ``data`` for a whole axis, ``data_1`` for its second sub-axis."""
        same = [p for p in self._parts if p[0] == part[0]]
        return part[0] if len(same) == 1 else f"{part[0]}_{same.index(part)}"


def _apart(parts: Axes) -> Order:
    """Return an order with a mesh dim for each sub-axis."""
    return tuple((part,) for part in parts)


def whole(tensor: DTensor) -> Tensor:
    """Return the whole tensor on each rank. All ranks must call it together.

    It is gathered over one mesh dim after the other, the last first. ``full_tensor`` does the same, but warns
    for each mesh.
    """
    placements = list(tensor.placements)
    for dim in reversed(range(len(placements))):
        placements[dim] = Replicate()
        tensor = tensor.redistribute(placements=placements)
    return tensor.to_local()
