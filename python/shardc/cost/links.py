"""How fast the links along each mesh axis are: what makes one chain of collectives cheaper than another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from shardc.cost.origin import Assumed, Sheet
from shardc.dialects.dist.axis import Axis

WIRE: Annotated[float, Sheet("NVIDIA H100: 3.35 TB/s of memory, 450 GB/s of NVLink each way")] = 8.0
"""How much longer a byte takes to another device than from memory."""
_UNKNOWN = Assumed("links of one speed: the cost of a chain is the bytes that it moves")


@dataclass(frozen=True)
class LinkModel:
    """Bandwidth (bytes/s a device) and latency (s a collective) of mesh axes, by name; others have the
    defaults. A collective over several axes goes at the pace of the slowest.
    """

    bandwidths: tuple[tuple[str, float], ...] = ()
    latencies_s: tuple[tuple[str, float], ...] = ()
    default_bandwidth: Annotated[float, _UNKNOWN] = 1.0
    default_latency_s: Annotated[float, _UNKNOWN] = 0.0

    @staticmethod
    def of(bandwidths: Mapping[str, float], latencies_s: Mapping[str, float] | None = None) -> LinkModel:
        return LinkModel(tuple(sorted(bandwidths.items())), tuple(sorted((latencies_s or {}).items())))

    @property
    def is_uniform(self) -> bool:
        """Whether all axes have links of one speed."""
        return all(bandwidth == self.default_bandwidth for _, bandwidth in self.bandwidths)

    def link(self, axes: Iterable[Axis]) -> tuple[float, float]:
        """Latency (s) and bandwidth (bytes/s) of a collective over ``axes``: those of the slowest."""
        names, usual = {axis.name for axis in axes}, self.default_bandwidth
        bandwidths, latencies = dict(self.bandwidths), dict(self.latencies_s)
        slowest = min((bandwidths.get(name, usual) for name in names), default=usual)
        return max((latencies.get(name, self.default_latency_s) for name in names), default=0.0), slowest

    def fastest(self, axes: Iterable[Axis]) -> float:
        """The highest bandwidth (bytes/s) among ``axes``."""
        return max((self.link((axis,))[1] for axis in axes), default=self.default_bandwidth)

    def seconds(self, axes: Iterable[Axis], size_bytes: float) -> float:
        """Time to move ``size_bytes`` in and out of each device, along ``axes``."""
        latency_s, bandwidth = self.link(axes)
        return latency_s + size_bytes / bandwidth


UNIFORM = LinkModel()
