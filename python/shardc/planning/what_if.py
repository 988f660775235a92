"""Changes of a question, such as ``links=2x``, ``memory=141GB`` or ``batch=512``."""

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
    """New value, or a factor of the present one."""

    number: float
    is_factor: bool

    def of(self, value: float) -> float:
        return value * self.number if self.is_factor else self.number


@dataclass(frozen=True)
class WhatIf:
    """Change of one thing: a part of the cluster, a number of the question, or a choice of the plan.

    ``text``: the change as the user wrote it. ``amount``: the new number. ``word``: the new choice.
    """

    text: str
    name: str
    amount: Amount = Amount(1, is_factor=True)
    word: str = ""

    @property
    def is_of_cluster(self) -> bool:
        """True if only the cluster changes, so that no compile is needed."""
        return self.name in OF_CLUSTER

    def cluster(self, cluster: Cluster) -> Cluster:
        """Return the changed cluster."""
        return OF_CLUSTER[self.name](cluster, self.amount)

    def count(self, value: int) -> int:
        """Return the changed number of a question. Raises BadWhatIf unless it is a whole number from 1."""
        found = self.amount.of(value)
        if found != int(found) or found < 1:
            raise BadWhatIf(text=self.text, problem=f"{self.name} would be {found:g}", known=KNOWN)
        return int(found)


def read_what_if(text: str) -> WhatIf:
    """Parse a change such as ``links=2x``. Raises BadWhatIf."""
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
    """Scale a device's FLOP/s of all precisions by one factor. An absolute value is that of bf16.

    What was measured at other rates is left out."""
    factor = amount.number if amount.is_factor else amount.number / device.peak_flop_s("bf16")
    names = ("f64", "f32", "tf32", "bf16", "f16", "f8", "i8")
    peaks = {name: factor * device.peak_flop_s(name) for name in names}
    return replace(device, flop_s=replace(device.flop_s, **peaks), products=())


def _links(cluster: Cluster, amount: Amount) -> Cluster:
    """Scale the bandwidths of all levels. An absolute value sets that of the outermost level in use."""
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
        lambda device, amount: replace(device, memory_bytes_s=amount.of(device.memory_bytes_s), products=())
    ),
    "flops": _devices(_flops),
    "links": _links,
}
"""Parts of a cluster that can change."""
OF_QUESTION = ("batch", "length", "micro-batches")
"""Numbers of a question that can change. Each change needs another compile."""
PRECISIONS = ("bf16", "mixed", "f32")
OF_PLAN: Mapping[str, Sequence[str]] = {
    "recompute": POLICIES,
    "precision": PRECISIONS,
    "reduce-dtype": ("float32",),
}
"""Choices of a plan that can change. Each change needs another compile."""
KNOWN = ", ".join((*OF_CLUSTER, *OF_QUESTION, *OF_PLAN))
