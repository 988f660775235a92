"""Costs of collectives over mesh axes, for comparing chains of collectives."""

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
"""Ratio of the time of a byte to another device to that of a byte from memory."""


@dataclass(frozen=True)
class LinkModel:
    """Links of a mesh on a cluster. Without a cluster all links are equal, and the cost is the sent bytes."""

    placement: Placement | None = None

    @property
    def is_uniform(self) -> bool:
        """Return whether links of all axes have the same speed."""
        return self.placement is None

    @property
    def overlaps(self) -> bool:
        """Return whether kernels run while messages are sent."""
        return self.placement is None or self.placement.cluster.library.overlaps

    def seconds(self, kind: str, axes: Iterable[Axis], ways: int, local_bytes: float) -> float:
        """Return the seconds of a collective over ``axes`` with ``ways`` members of ``local_bytes`` each."""
        if self.placement is None:
            return sent_bytes(kind, ways, local_bytes)
        return seconds(kind, self.placement.links(map(_part, axes)), local_bytes)

    def fastest(self, axes: Iterable[Axis]) -> float:
        """Return an upper bound in bytes/s of collectives over some of ``axes``: the sum of all levels."""
        if self.placement is None:
            return 1.0
        spans = self.placement.links(map(_part, axes)).spans
        return sum(span.member_bytes_s for span in spans) or 1.0


def _part(axis: Axis) -> tuple[str, int, int]:
    return axis.name, axis.pre, axis.size


UNIFORM = LinkModel()
