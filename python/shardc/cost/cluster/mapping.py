"""Placement of a mesh on a cluster: the links that groups along mesh axes use, and how they share them.

Ranks number the devices, so the last axis of a mesh is the innermost. For ``{"data": 64, "tensor": 8}`` on 64
nodes of 8, a ``tensor`` group is a node, and a ``data`` group has one device of each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.device import Device
from shardc.cost.cluster.level import Level
from shardc.cost.cluster.names import node_of
from shardc.diagnostics.cluster import MeshDoesNotFit

Part = tuple[str, int, int]
"""An axis or a part of one, as ``dialects.dist.axis.Axis``: name, size of the major part, own size."""
Strided = tuple[int, int]
"""Number of members, and distance in ranks from one to the next."""


@dataclass(frozen=True)
class Span:
    """Members of a group that one level joins: ``ways`` parts of the group, with ``inside`` members in each.

    ``stride``: distance from one part to the next, in parts of the level. ``groups``: groups that use the
    links of one part at the same time, since all devices do the same.
    """

    level: Level
    ways: int
    inside: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def sharing(self) -> int:
        """Return the number of groups that share one link."""
        level = self.level
        if level.topology == "bus":
            return -(-level.ways * self.groups // self.ways)
        if level.topology in ("ring", "torus"):
            return self.stride
        return max(1, level.sharers // min(level.sharers, self.inside))

    @property
    def member_bytes_s(self) -> float:
        """Return each member's one-way rate through this level while all devices send."""
        level = self.level
        rate = level.efficiency * level.bandwidth_bytes_s / level.oversubscription
        if level.topology == "bus":
            return rate / (level.ways * self.inside * self.groups)
        if level.topology in ("ring", "torus"):
            return rate * (2 if self.is_closed else 1) / self.sharing
        if level.topology == "mesh":
            return rate * self._fewest_links() / level.sharers
        return rate / level.sharers

    @property
    def is_innermost(self) -> bool:
        """Return whether its links are those of single devices."""
        return self.inside * self.groups == 1

    @property
    def is_closed(self) -> bool:
        """Return whether it closes a ring of more than two parts, so that both directions carry data."""
        return self.ways > 2 and self.ways * self.stride == self.level.ways

    def _fewest_links(self) -> int:
        """Return the fewest links that a member has to other members, at least one."""
        wiring, step = self.level.wiring, self.stride
        fewest = []
        for block in range(0, self.level.ways, self.ways * step):
            for first in range(block, min(block + step, self.level.ways)):
                members = range(first, min(first + self.ways * step, self.level.ways), step)
                fewest += [sum(wiring[i][j] for j in members) for i in members]
        return max(1, min(fewest, default=1))


@dataclass(frozen=True)
class Links:
    """Links of a group of devices, innermost first, and the library's overhead and algorithms."""

    spans: tuple[Span, ...]
    launch_s: float = 0.0
    algorithms: tuple[str, ...] = ()

    @cached_property
    def ways(self) -> int:
        """Return the number of members."""
        return prod(span.ways for span in self.spans)


@dataclass(frozen=True)
class Placement:
    """Mesh, given by the names and sizes of its axes, on the first devices of a cluster.

    Raises MeshDoesNotFit.
    """

    cluster: Cluster
    axes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        size, count, name = prod(n for _, n in self.axes), self.cluster.size, self.cluster.name
        if size > count:
            shown = ", ".join(f"{axis}={n}" for axis, n in self.axes)
            raise MeshDoesNotFit(mesh=shown, size=size, name=name, count=count, example=self._example(size))

    @staticmethod
    def of(cluster: Cluster, mesh: Mapping[str, int]) -> Placement:
        """Return the placement of a mesh such as ``{"data": 64, "tensor": 8}``."""
        return Placement(cluster, tuple(mesh.items()))

    def _example(self, size: int) -> str:
        """Suggest a cluster of the same kind with enough devices, if the node has a name."""
        node, first = node_of(self.cluster.name), self.cluster.levels[0]
        ways = first.most or first.ways
        return f", such as {node}-{ways}x{-(-size // ways)}" if node else ""

    def __hash__(self) -> int:
        return hash((self.cluster.name, self.axes))

    def links(self, axes: Iterable[str | Part]) -> Links:
        """Return the links of a group of devices that differ on ``axes``: names, or parts.

        Raises KeyError.
        """
        return _links(self, frozenset(map(self._whole, axes)))

    def _whole(self, axis: str | Part) -> Part:
        return axis if isinstance(axis, tuple) else (axis, 1, dict(self.axes)[axis])

    def strided(self, axis: Part) -> Strided:
        """Return the size of an axis, and the distance in ranks between neighbours. Raises KeyError."""
        name, pre, ways = axis
        names = [other for other, _ in self.axes]
        if name not in names:
            raise KeyError(name)
        at = names.index(name)
        size, below = self.axes[at][1], prod(n for _, n in self.axes[at + 1 :])
        return ways, size // (pre * ways) * below

    def slowest_along(self, axis: str) -> list[Device]:
        """Return the slowest device at each place along an axis, by 16-bit products. Raises KeyError."""
        return [min(kinds, key=lambda kind: kind.peak_flop_s("bf16")) for kinds in self.kinds_along(axis)]

    def kinds_along(self, axis: str) -> list[list[Device]]:
        """Return the kinds of device at each place along an axis. Raises KeyError."""
        ways, stride = self.strided(self._whole(axis))
        found: list[dict[Device, None]] = [{} for _ in range(ways)]
        for rank in range(prod(n for _, n in self.axes)):
            found[rank // stride % ways][self.cluster.device(rank)] = None
        return [[*kinds] for kinds in found]

    def spans(self, strided: list[Strided]) -> Iterable[Span]:
        """Yield the span of a group at each level, from the innermost."""
        members, devices = prod(ways for ways, _ in strided), 1
        for level in _rings(self.cluster.levels):
            inner, outer = _blocks(strided, devices), _blocks(strided, devices * level.ways)
            inside = -(-members // inner)
            stride = max(1, min((s for w, s in strided if w * s > devices), default=1) // devices)
            yield Span(level, -(-inner // outer), inside, stride, max(1, devices // inside))
            devices *= level.ways


@lru_cache(maxsize=4096)
def _links(placement: Placement, axes: frozenset[Part]) -> Links:
    strided = _joined(sorted(map(placement.strided, axes), key=lambda one: one[1]))
    spans = tuple(span for span in placement.spans(strided) if span.ways > 1)
    library = placement.cluster.library
    return Links(spans, library.launch_s, library.algorithms)


def _rings(levels: Iterable[Level]) -> Iterable[Level]:
    """Yield the levels, with a torus as one ring per dim."""
    for level in levels:
        if level.topology == "torus":
            for number, ways in enumerate(level.dims):
                name = f"{level.name} {'xyz'[number] if number < 3 else number}"
                yield replace(level, name=name, ways=ways, dims=(ways,))
        else:
            yield level


def _joined(strided: list[Strided]) -> list[Strided]:
    """Merge axes that continue one another; the axes are sorted by stride."""
    found: list[Strided] = []
    for ways, stride in strided:
        if found and found[-1][0] * found[-1][1] == stride:
            found[-1] = (found[-1][0] * ways, found[-1][1])
        else:
            found.append((ways, stride))
    return found


def _blocks(strided: Iterable[Strided], size: int) -> int:
    """Return the most blocks of ``size`` neighbouring devices that any group touches."""
    return prod(_touched(ways, stride, size) for ways, stride in strided)


def _touched(ways: int, stride: int, size: int) -> int:
    if stride >= size and stride % size == 0:
        return ways
    extent = ways * stride
    if extent % size == 0 or size % extent == 0:
        return max(1, min(ways, extent // size))
    return min(ways, -(-extent // size) + 1)
