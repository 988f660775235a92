"""One change of a question: ``links=2x``, ``memory=141GB``, ``batch=512``, and what it does to a price."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.cost.cluster.cluster import Cluster
from shardc.cost.cluster.device import Device
from shardc.diagnostics.planning import BadWhatIf
from shardc.options.recompute import POLICIES

UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_VALUE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[kMGT]?)(B|B/s|FLOP/s)?")
_FACTOR = re.compile(r"(?P<number>\d+(\.\d+)?)x")


@dataclass(frozen=True)
class Amount:
    """A new value, or a factor of the one that is there."""

    number: float
    is_factor: bool

    def of(self, value: float) -> float:
        return value * self.number if self.is_factor else self.number


@dataclass(frozen=True)
class WhatIf:
    """A change, as text, and what is asked for: a part of the cluster, a number of the question, or a choice
    of the plan, which is a ``word``.
    """

    text: str
    name: str
    amount: Amount = Amount(1, is_factor=True)
    word: str = ""

    @property
    def is_of_cluster(self) -> bool:
        """Whether the answer needs no compile."""
        return self.name in OF_CLUSTER

    def cluster(self, cluster: Cluster) -> Cluster:
        """The changed cluster."""
        return OF_CLUSTER[self.name](cluster, self.amount)

    def count(self, value: int) -> int:
        """The changed number of a question. Raises BadWhatIf where it is no whole number from 1."""
        found = self.amount.of(value)
        if found != int(found) or found < 1:
            raise BadWhatIf(text=self.text, problem=f"{self.name} would be {found:g}", known=KNOWN)
        return int(found)


def read_what_if(text: str) -> WhatIf:
    """``links=2x``. Raises BadWhatIf."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or name not in (*OF_CLUSTER, *OF_QUESTION, *OF_PLAN):
        problem = f"there is no {name!r} to change" if equals else "it has no value"
        raise BadWhatIf(text=text, problem=problem, known=KNOWN)
    if name in OF_PLAN:
        if value not in OF_PLAN[name]:
            problem = f"{name} is one of {', '.join(OF_PLAN[name])}"
            raise BadWhatIf(text=text, problem=problem, known=KNOWN)
        return WhatIf(text, name, word=value)
    factor, absolute = _FACTOR.fullmatch(value), _VALUE.fullmatch(value)
    found = factor or absolute
    if found is None or not float(found["number"]):
        problem = f"{value!r} is neither a factor (2x) nor a number above 0 (80GB)"
        raise BadWhatIf(text=text, problem=problem, known=KNOWN)
    number = float(found["number"]) * (1 if factor else UNITS[found["unit"]])
    return WhatIf(text, name, Amount(number, factor is not None))


def _devices(change: Callable[[Device, Amount], Device]) -> Callable[[Cluster, Amount], Cluster]:
    def changed(cluster: Cluster, amount: Amount) -> Cluster:
        return replace(cluster, devices=tuple(change(device, amount) for device in cluster.devices))

    return changed


def _flops(device: Device, amount: Amount) -> Device:
    """All precisions by one factor: an absolute value is that of bf16."""
    factor = amount.number if amount.is_factor else amount.number / device.peak_flop_s("bf16")
    names = ("f64", "f32", "tf32", "bf16", "f16", "f8", "i8")
    peaks = {name: factor * device.peak_flop_s(name) for name in names}
    return replace(device, flop_s=replace(device.flop_s, **peaks))


def _links(cluster: Cluster, amount: Amount) -> Cluster:
    """The rates of all levels; an absolute value is that of the outermost level that joins anything."""
    used = [level for level in cluster.levels if level.ways > 1] or [*cluster.levels]
    changed = used if amount.is_factor else used[-1:]
    levels = tuple(
        replace(level, bandwidth_bytes_s=amount.of(level.bandwidth_bytes_s)) if level in changed else level
        for level in cluster.levels
    )
    return replace(cluster, levels=levels)


OF_CLUSTER: Mapping[str, Callable[[Cluster, Amount], Cluster]] = {
    "memory": _devices(lambda device, amount: replace(device, memory_bytes=amount.of(device.memory_bytes))),
    "memory-rate": _devices(
        lambda device, amount: replace(device, memory_bytes_s=amount.of(device.memory_bytes_s))
    ),
    "flops": _devices(_flops),
    "links": _links,
}
"""Parts of a cluster that can be other ones."""
OF_QUESTION = ("batch", "length", "micro-batches")
"""Numbers of a question that can be other ones; they take another compile."""
PRECISIONS = ("bf16", "mixed", "f32")
OF_PLAN: Mapping[str, Sequence[str]] = {
    "recompute": POLICIES,
    "precision": PRECISIONS,
    "reduce-dtype": ("float32",),
}
"""Choices that can be other ones; they take another compile."""
KNOWN = ", ".join((*OF_CLUSTER, *OF_QUESTION, *OF_PLAN))
