"""Layouts as DTensor says them: a DeviceMesh over the finest (sub-)axes in use, and a placement for each.

DTensor cuts a dim by several mesh dims in mesh order only. A layout with its axes in another order is placed on a
DeviceMesh with the same ranks and its dims permuted.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard

from .layout import Leaf
from .mesh import Axes, Axis, Mesh, inside


class DeviceMeshes:
    """The DeviceMeshes that the leaves of one program need. All ranks must make it together."""

    def __init__(self, mesh: Mesh, device_type: str, leaves: Iterable[Leaf]) -> None:
        leaves = list(leaves)
        self._mesh = mesh
        self._parts = mesh.finest(a for leaf in leaves for dim in leaf.space_dims(mesh) for a in dim)
        self._made: dict[Axes, DeviceMesh] = {}
        for order in [self._parts, *map(self._order, leaves)]:
            if order not in self._made:
                self._made[order] = self._make(order, device_type)

    @property
    def main(self) -> DeviceMesh:
        """The one in mesh order."""
        return self._made[self._parts]

    def of(self, leaf: Leaf) -> tuple[DeviceMesh, list[Placement]]:
        order = self._order(leaf)
        dims = self._dims(leaf)
        return self._made[order], [Shard(dims[part]) if part in dims else Replicate() for part in order]

    def _dims(self, leaf: Leaf) -> dict[Axis, int]:
        """The dim that each finest part cuts, major parts of a dim first."""
        dims = enumerate(leaf.space_dims(self._mesh))
        return {p: d for d, axes in dims for a in axes for p in self._parts if inside(p, a)}

    def _order(self, leaf: Leaf) -> Axes:
        """Mesh order, unless the leaf has axes of one dim the other way round."""
        dims = self._dims(leaf)
        place = {part: i for i, part in enumerate(self._parts)}
        wanted = sorted(dims, key=dims.__getitem__)
        if all(place[a] < place[b] for a, b in pairwise(wanted) if dims[a] == dims[b]):
            return self._parts
        return (*wanted, *(p for p in self._parts if p not in dims))

    def _make(self, order: Axes, device_type: str) -> DeviceMesh:
        ranks = torch.arange(self._mesh.world_size).view([size for _, _, size in self._parts])
        permuted = ranks.permute([self._parts.index(part) for part in order])
        return DeviceMesh(device_type, permuted, mesh_dim_names=tuple(map(self._name, order)))

    def _name(self, part: Axis) -> str:
        """``data`` for a whole axis, ``data_1`` for the second of its parts."""
        same = [p for p in self._parts if p[0] == part[0]]
        return part[0] if len(same) == 1 else f"{part[0]}_{same.index(part)}"
