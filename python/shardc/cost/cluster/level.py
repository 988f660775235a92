"""One level of a cluster's links, which join the devices of a node, nodes, or racks."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Literal

from shardc.cost.cluster.facts import Count, CountOrNone, Facts, NotNegative, Part, Positive
from shardc.diagnostics.cluster import LinksDoNotConnect

Topology = Literal["switch", "mesh", "ring", "torus", "tree", "bus"]
"""How links join parts.

``switch``: each device has a link to a switch that joins all at full rate. ``tree``: switches of switches.
``mesh``: links from device to device, as ``wiring`` gives them. ``ring``: each device has a link to either
neighbour. ``torus``: a ring in each of ``dims``. ``bus``: all devices share one link.
"""


@dataclass(frozen=True)
class Ramp(Facts):
    """How far collectives of few bytes stay below the links' rate (decision 76)."""

    extra_steps: NotNegative = 0.0
    """Idle steps of a ring, besides those in which it sends."""
    fill: NotNegative = 0.0
    """Share of the tensor's bytes that filling the ring's pipeline costs, for each hop."""
    fill_bytes: NotNegative = 0.0
    """Maximum number of bytes that filling costs."""


@dataclass(frozen=True)
class Level(Facts):
    """Links that join ``ways`` parts: devices at the innermost level, groups of the level below at others."""

    name: str
    ways: Count
    """Number of joined parts."""
    bandwidth_bytes_s: Positive
    """Rate of a link, one way. Switch, tree: a device's link; ring, torus, mesh: each; bus: the only one."""
    latency_s: NotNegative
    """Time of a step of a collective with hardly any data."""
    topology: Topology = "switch"
    most: Count | None = None
    """Maximum number of parts."""
    efficiency: Part = 1.0
    """Share of the links' rate that long collectives reach."""
    sharers: Count = 1
    """Neighbouring devices that share one link, such as the network adapter of two GPUs."""
    oversubscription: Positive = 1.0
    """Ratio of the rate of all links together to that of the switches above them."""
    ramp: Ramp = field(default_factory=Ramp)
    dims: tuple[Count, ...] = ()
    """Sizes of a torus, the innermost first."""
    wiring: tuple[tuple[CountOrNone, ...], ...] = ()
    """For a mesh, the number of links from each device to each device."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if problem := self._problem():
            raise LinksDoNotConnect(name=self.name, problem=problem, key="wiring" if self.wiring else "dims")

    def _problem(self) -> str:
        if (self.topology == "torus") != bool(self.dims):
            return f"a {self.topology} {'has no dims' if self.dims else 'needs dims'}"
        if self.dims and prod(self.dims) != self.ways:
            return f"a torus of {' x '.join(map(str, self.dims))} does not have {self.ways} ways"
        if (self.topology == "mesh") != bool(self.wiring):
            return f"a {self.topology} {'has no wiring' if self.wiring else 'needs wiring'}"
        sizes = {len(self.wiring), *map(len, self.wiring)}
        if self.wiring and (len(sizes) > 1 or max(sizes) < self.ways):
            return f"wiring is not a square of at least {self.ways} rows"
        if any(self.wiring[i][j] != self.wiring[j][i] for i in range(len(self.wiring)) for j in range(i)):
            return "wiring has links that only one end lists"
        return ""
