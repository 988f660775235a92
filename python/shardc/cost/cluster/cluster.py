"""Description of a cluster: kinds of devices, levels of links, hosts, collective library and price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal, NoReturn, get_args

from shardc.cost.cluster.device import Device, Host
from shardc.cost.cluster.facts import Facts, NotNegative, Positive
from shardc.cost.cluster.level import Level
from shardc.diagnostics.cluster import BadClusterSize, LinksDoNotConnect, TwoOfOneName

Algorithm = Literal[
    "ring", "tree", "two-level", "torus", "halving-doubling", "pairwise", "direct", "point-to-point"
]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


@dataclass(frozen=True)
class Library(Facts):
    """Library of collectives, such as NCCL, RCCL or Gloo."""

    name: str
    launch_s: NotNegative
    """Time that any collective takes besides its steps."""
    algorithms: tuple[Algorithm, ...] = ALGORITHMS
    """Algorithms that it can use."""
    overlaps: bool = True
    """Whether kernels run while it communicates. Over Gloo they do not, unless cores are idle."""


@dataclass(frozen=True)
class Cluster(Facts):
    """Devices, numbered like ranks, and the links that join them, the innermost level first.

    Neighbouring ranks are in one innermost group: of 64 nodes of 8, ranks 0 to 7 are a node. Raises
    LinksDoNotConnect, TwoOfOneName, BadClusterValue.
    """

    name: str
    devices: tuple[Device, ...]
    levels: tuple[Level, ...]
    library: Library
    host: Host | None = None
    dollars_per_device_hour: Positive | None = None
    """Price of a device per hour."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, parts in (("devices", self.devices), ("levels", self.levels)):
            if not parts:
                raise LinksDoNotConnect(name=self.name, problem=f"it has no {what}", key=what)
            self._refuse_twins(what, [part.name for part in parts])
        if problem := self._misfit():
            raise LinksDoNotConnect(name=self.name, problem=problem, key="devices")

    def _refuse_twins(self, what: str, names: list[str]) -> None:
        for twin in (name for name in names if names.count(name) > 1):
            raise TwoOfOneName(what=what, name=self.name, key=twin)

    def _misfit(self) -> str:
        counts = [device.count for device in self.devices]
        if counts == [None]:
            return ""
        if None in counts:
            return "it has several kinds of devices, and one of them has no count"
        joined = " x ".join(str(level.ways) for level in self.levels)
        total = sum(count or 0 for count in counts)
        return (
            ""
            if total == self.size
            else f"its levels join {joined} = {self.size} devices, but it has {total}"
        )

    @cached_property
    def size(self) -> int:
        """Return the number of devices."""
        return prod(level.ways for level in self.levels)

    def device(self, rank: int) -> Device:
        """Return the device of a rank. Raises IndexError."""
        if not 0 <= rank < self.size:
            raise IndexError(rank)
        for device in self.devices:
            if device.count is None or rank < device.count:
                return device
            rank -= device.count
        raise AssertionError

    def used(self, ranks: int) -> tuple[Device, ...]:
        """Return the kinds of the first ``ranks`` devices."""
        return tuple(dict.fromkeys(self.device(rank) for rank in self._first_of_kinds() if rank < ranks))

    def _first_of_kinds(self) -> Iterable[int]:
        first = 0
        for device in self.devices:
            yield first
            first += device.count or 0

    def resized(self, sizes: Iterable[int], name: str = "") -> Cluster:
        """Return the cluster with other sizes of its levels, the innermost first; missing sizes are 1.

        Raises BadClusterSize.
        """
        ways = [*sizes]
        name = name or "-".join((self.name, "x".join(map(str, ways))))
        if problem := self._too_large(ways):
            levels, most = self.levels, self.levels[0].most or self.levels[0].ways
            example = f"{self.name}-{most}" + ("x4" if len(levels) > 1 else "")
            count = most * (4 if len(levels) > 1 else 1)
            raise BadClusterSize(name=name, problem=problem, example=example, count=count)
        ways += [1] * (len(self.levels) - len(ways))
        levels = tuple(replace(level, ways=w) for level, w in zip(self.levels, ways, strict=True))
        return replace(self, name=name, levels=levels)

    def shrunk(self, devices: int) -> Cluster:
        """Return a cluster of the first ``devices`` devices.

        They must be whole groups of every level except the outermost that remains. Raises BadClusterSize.
        """
        if devices > self.size:
            self._refuse(devices, f"it has {self.size}")
        sizes, left = list[int](), devices
        for level in self.levels:
            sizes.append(min(level.ways, left))
            left = 0 if left % sizes[-1] else left // sizes[-1]
            changed = sizes[-1] != level.ways
            if not left or (changed and (level.dims or level.wiring)):
                self._refuse(devices, f"they do not fill whole groups of its {level.name}")
        levels = tuple(replace(level, ways=ways) for level, ways in zip(self.levels, sizes, strict=True))
        kinds, rest = list[Device](), devices
        for kind in self.devices:
            kinds += [replace(kind, count=kind.count and min(kind.count, rest))] if rest > 0 else []
            rest -= kind.count or rest
        one_kind = (replace(kinds[0], count=None),) if len(kinds) == 1 else tuple(kinds)
        return replace(self, name=self._name_of(sizes), levels=levels, devices=one_kind)

    def _name_of(self, sizes: list[int]) -> str:
        """Replace the sizes at the end of a name: ``h100-8x3`` for three nodes of ``h100-8x4``."""
        ways = [str(level.ways) for level in self.levels]
        ends = ["x".join(ways[:count]) for count in range(len(ways), 0, -1)]
        found = next((end for end in ends if self.name.endswith(f"-{end}")), "")
        stem = self.name.removesuffix(f"-{found}") if found else self.name
        return f"{stem}-{'x'.join(map(str, sizes[: found.count('x') + 1] if found else sizes))}"

    def _refuse(self, devices: int, problem: str) -> NoReturn:
        """Raise BadClusterSize for a number of its devices."""
        name, level = f"{devices} of {self.name}", self.levels[0]
        example = f"one {level.name} of it"
        raise BadClusterSize(name=name, problem=problem, example=example, count=level.ways)

    def _too_large(self, ways: list[int]) -> str:
        if len(ways) > len(self.levels):
            return f"{self.name} has {len(self.levels)} levels of links, not {len(ways)}"
        for level, count in zip(self.levels, ways, strict=False):
            if count < 1 or (level.most and count > level.most):
                return f"{level.name} joins 1 to {level.most or 'any number'}, not {count}"
            if level.dims:
                return f"{level.name} is a torus, whose dims a name cannot give: write a YAML file"
        return "" if len(self.devices) == 1 else "it has several kinds of devices: write a YAML file"
