"""A cluster: kinds of devices, levels of links, hosts, what collectives are made of, and its price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Literal, get_args

from shardc.cost.cluster.device import Device, Host
from shardc.cost.cluster.facts import Facts, NotNegative, Positive
from shardc.cost.cluster.level import Level
from shardc.diagnostics.cluster import BadClusterSize, LinksDoNotConnect, TwoOfOneName

Algorithm = Literal["ring", "tree", "two-level", "torus", "halving-doubling", "pairwise", "point-to-point"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


@dataclass(frozen=True)
class Library(Facts):
    """What performs collectives: NCCL, RCCL, Gloo."""

    name: str
    launch_s: NotNegative
    """Time that any collective takes besides its steps."""
    algorithms: tuple[Algorithm, ...] = ALGORITHMS
    """Those that it can use."""


@dataclass(frozen=True)
class Cluster(Facts):
    """Devices, numbered as ranks are, and the links that join them, the innermost level first.

    Neighbouring ranks are in one innermost group: of 64 nodes of 8, ranks 0 to 7 are a node. Raises
    LinksDoNotConnect, TwoOfOneName, BadClusterValue.
    """

    name: str
    devices: tuple[Device, ...]
    levels: tuple[Level, ...]
    library: Library
    host: Host | None = None
    dollars_per_device_hour: Positive | None = None
    """Price of a device and hour."""

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
        return "" if total == self.size else f"levels join {joined} = {self.size}, and there are {total}"

    @cached_property
    def size(self) -> int:
        """The number of devices."""
        return prod(level.ways for level in self.levels)

    def device(self, rank: int) -> Device:
        """The device of a rank. Raises IndexError."""
        if not 0 <= rank < self.size:
            raise IndexError(rank)
        for device in self.devices:
            if device.count is None or rank < device.count:
                return device
            rank -= device.count
        raise AssertionError

    def used(self, ranks: int) -> tuple[Device, ...]:
        """The kinds that the first ``ranks`` devices are of."""
        return tuple(dict.fromkeys(self.device(rank) for rank in self._first_of_kinds() if rank < ranks))

    def _first_of_kinds(self) -> Iterable[int]:
        first = 0
        for device in self.devices:
            yield first
            first += device.count or 0

    def resized(self, sizes: Iterable[int], name: str = "") -> Cluster:
        """The same with other ways of its levels, the innermost first; those without a size have one way.

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

    def _too_large(self, ways: list[int]) -> str:
        if len(ways) > len(self.levels):
            return f"{self.name} has {len(self.levels)} levels of links, not {len(ways)}"
        for level, count in zip(self.levels, ways, strict=False):
            if count < 1 or (level.most and count > level.most):
                return f"{level.name} joins 1 to {level.most or 'any number'}, not {count}"
            if level.dims:
                return f"{level.name} is a torus, whose dims a name does not say: write a file"
        return "" if len(self.devices) == 1 else "it has several kinds of devices: write a file"
