"""What a collective over mesh axes costs: what makes one chain of collectives cheaper than another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from shardc.cost.cluster.mapping import Placement
from shardc.cost.collective import sent_bytes
from shardc.cost.collectives.seconds import seconds
from shardc.cost.origin import Sheet
from shardc.dialects.dist.axis import Axis

WIRE: Annotated[float, Sheet("NVIDIA H100: 3.35 TB/s of memory, 450 GB/s of NVLink each way")] = 8.0
"""How much longer a byte takes to another device than from memory."""


@dataclass(frozen=True)
class LinkModel:
    """The links of a mesh on a cluster. Without a cluster links are alike, and a collective costs the bytes
    that a device sends.
    """

    placement: Placement | None = None

    @property
    def is_uniform(self) -> bool:
        """Whether all axes have links of one speed."""
        return self.placement is None

    def seconds(self, kind: str, axes: Iterable[Axis], ways: int, local_bytes: float) -> float:
        """Seconds of a collective over ``axes``, of ``ways`` devices that hold ``local_bytes`` each."""
        if self.placement is None:
            return sent_bytes(kind, ways, local_bytes)
        return seconds(kind, self.placement.links(map(_part, axes)), local_bytes)

    def fastest(self, axes: Iterable[Axis]) -> float:
        """Bytes/s that no collective over some of ``axes`` exceeds: of all levels' links together."""
        if self.placement is None:
            return 1.0
        spans = self.placement.links(map(_part, axes)).spans
        return sum(span.member_bytes_s for span in spans) or 1.0


def _part(axis: Axis) -> tuple[str, int, int]:
    return axis.name, axis.pre, axis.size


UNIFORM = LinkModel()
